"""RFC 4456: who hears of what, and what a reflected path carries."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from bgp.routes.reflection import NO_ADVERTISE, NO_EXPORT, is_client, marks, passes
from tests.bgp.make import path, source

CLIENT, OTHER, EXTERNAL = source(client=True), source(), source(9, internal=False)
INTERNAL = ("client", "other")


@pytest.mark.promise("F-39")
@pytest.mark.parametrize("reflects", [False, True])
@pytest.mark.parametrize("sender", ["client", "other", "external"])
@pytest.mark.parametrize("hearer", ["client", "other", "external"])
def test_who_hears_of_what(sender: str, hearer: str, reflects: bool) -> None:
    """RFC 4456 section 6, as a table; RFL-2."""
    sent = path({"client": CLIENT, "other": OTHER, "external": EXTERNAL}[sender])
    told = passes(sent, internal=hearer in INTERNAL, client=hearer == "client", reflects=reflects)
    if "external" in (sender, hearer):
        assert told
    else:
        assert told is (reflects and "client" in (sender, hearer))


def test_communities_that_stop_a_path() -> None:
    inward = {"internal": True, "client": False, "reflects": False}
    outward = {**inward, "internal": False}
    assert passes(path(EXTERNAL, communities=(NO_EXPORT,)), **inward)
    assert not passes(path(EXTERNAL, communities=(NO_EXPORT,)), **outward)
    assert not passes(path(EXTERNAL, communities=(NO_ADVERTISE,)), **inward)
    assert not passes(path(EXTERNAL, as_path=(1, 2), as_path_length=1), **inward)


def test_marks() -> None:
    """RFL-1."""
    assert marks(path(), "1.0.0.1") == (IPv4Address("1.1.1.2"), ("1.0.0.1",))
    again = path(originator_id=IPv4Address("1.1.1.7"), cluster_list=("2.0.0.2",))
    assert marks(again, "1.0.0.1") == (IPv4Address("1.1.1.7"), ("1.0.0.1", "2.0.0.2"))


def test_clients() -> None:
    assert is_client("1.0.0.1", "", True)
    assert is_client("1.0.0.1", "2.0.0.2", True)
    assert not is_client("1.0.0.1", "1.0.0.1", True)
    assert not is_client("1.0.0.1", "", False)
    assert not is_client("", "1.0.0.1", True)
