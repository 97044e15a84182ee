"""Endpoints as rows of bytes: the same as objects, whatever is listed, listed again, or broken."""

from __future__ import annotations

import logging
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.graph import Calculator
from felix.store.ingest import EndpointRows
from libcalico.datastore.capabilities import name_of
from libcalico.datastore.interface import Row
from libcalico.model import AffinityKey, BlockAffinity, ResourceKey, codec
from tests.felix.calc.policy.test_model import ADDRESSES, NAMESPACES, PROFILES
from tests.felix.calc.policy.test_model import labels as some_labels
from tests.felix.policy_objects import ME, Object, Told, allow, namespace, pod, policy

HERE = pod("here", "10.0.0.100", {"app": "here"})
NEEDS = [
    policy("p", selector="app == 'here'", types=["Ingress"],
           ingress=[allow(source={"selector": "app == 'x'"}),
                    allow(source={"namespaceSelector": "has(team)"})]),
    policy("q", selector="app == 'here'", types=["Egress"],
           egress=[allow(protocol="TCP", destination={"ports": ["http"]})]),
]  # fmt: skip
BASE = [namespace("red", team="x"), namespace("blue"), namespace("default"), *NEEDS]


class Fed:
    """A calculation, in sync, that gets its endpoints as rows."""

    def __init__(self) -> None:
        self.calc = Calculator(ME)
        self.own: list[tuple[str, bool]] = []
        self.changes = 0
        self.rows = EndpointRows(self.calc, self._own, self._changed)
        self.told = Told()
        self.revision = 0
        for key, value in BASE:
            self.calc.update(key, value)
        self.calc.in_sync = True
        self.put(HERE)

    def _own(self, key: ResourceKey, value: Any, revision: int) -> None:
        self.own.append((key.name, value is not None))
        self.calc.update(key, value, revision)

    def _changed(self) -> None:
        self.changes += 1

    def row(self, item: Object, revision: int = 0) -> Row:
        self.revision += 1
        key, value = item
        return name_of(key), codec.encode_value(key, value), revision or self.revision

    def put(self, *items: Object) -> None:
        self.rows.apply_rows([self.row(item) for item in items])
        self.flush()

    def list(self, *rows: Row) -> None:
        self.rows.begin()
        self.rows.apply_rows(rows)
        self.rows.end(self.revision)
        self.flush()

    def flush(self) -> None:
        self.told.apply(self.calc.policy.flush())


def as_objects(items: list[Object]) -> Told:
    """What is told where they come as objects."""
    calc, told = Calculator(ME), Told()
    for key, value in [*BASE, HERE, *items]:
        calc.update(key, value)
    calc.in_sync = True
    told.apply(calc.policy.flush())
    return told


@st.composite
def endpoints(draw: st.DrawFn) -> Object:
    return pod(
        draw(st.sampled_from(["p1", "p2", "p3", "p4"])),
        draw(st.lists(st.sampled_from([*ADDRESSES, "10.9.0.0/16"]), max_size=2, unique=True)),
        draw(some_labels),
        namespace=draw(st.sampled_from(NAMESPACES)),
        node="n2",
        profiles=draw(st.sampled_from(PROFILES)),
        ports=draw(st.sampled_from([{}, {"http": ("TCP", 80)}])),
        account=draw(st.sampled_from(["", "web"])),
    )


@settings(deadline=None)
@given(st.lists(endpoints(), max_size=8), st.lists(endpoints(), max_size=8))
def test_rows_mean_what_objects_mean(first: list[Object], second: list[Object]) -> None:
    fed = Fed()
    here = fed.row(HERE, 1)
    for item in first:
        fed.put(item)
    assert fed.told == as_objects(first)
    # A listing that is begun anew is all there is.
    fed.list(here, *(fed.row(item) for item in second))
    assert fed.told == as_objects(second)
    for key in {key for key, _ in second}:
        fed.rows.gone(name_of(key), fed.revision)
    fed.flush()
    assert fed.told == as_objects([])
    assert len(fed.rows) == 1


def test_only_the_endpoints_of_this_node_are_decoded_whole() -> None:
    fed = Fed()
    fed.put(pod("there", "10.0.0.1", {"app": "x"}, node="n2"), pod("two", "10.0.0.2"))
    assert fed.own == [("here", True), ("two", True)]
    assert len(fed.rows) == 3
    assert set(fed.told.endpoints) == {HERE[0], pod("two", "")[0]}


def test_equal_rows_listed_again_are_no_work() -> None:
    fed = Fed()
    rows = [fed.row(pod(f"p{n}", f"10.0.0.{n}", {"app": "x"}, node="n2")) for n in range(5)]
    fed.list(fed.row(HERE, 1), *rows)
    before, spent, own = fed.changes, fed.calc.policy.operations.total, len(fed.own)
    fed.list(fed.row(HERE, 1), *rows)
    assert (fed.changes, fed.calc.policy.operations.total, len(fed.own)) == (before, spent, own)


def test_a_deletion_that_changes_nothing_asks_for_no_turn() -> None:
    fed = Fed()
    named, other = (pod(name, "10.0.0.7", {"app": app}, node="n2")
                    for name, app in (("named", "x"), ("other", "y")))  # fmt: skip
    fed.put(named, other)
    before = fed.changes
    fed.rows.gone(name_of(other[0]), fed.revision)
    assert fed.changes == before, "no set has it"
    fed.rows.gone(name_of(named[0]), fed.revision)
    assert fed.changes == before + 1
    here = fed.calc.endpoints.get(HERE[0])
    assert here is not None
    fed.calc.endpoints.retract(HERE[0], here.container_id)
    fed.flush()
    fed.rows.gone(name_of(HERE[0]), fed.revision)
    assert fed.own[-1] == ("here", False)
    assert fed.changes == before + 1, "its owner was told, and knew"


def test_equal_revisions_of_another_store_are_other_rows() -> None:
    fed = Fed()
    one = pod("p", "10.0.0.1", {"app": "x"}, node="n2")
    fed.list(fed.row(HERE, 1), fed.row(one, 7))
    fed.list(fed.row(HERE, 1), fed.row(pod("p", "10.0.0.2", {"app": "x"}, node="n2"), 7))
    assert {"10.0.0.2"} in fed.told.sets.values()


def test_a_listing_that_broke_off_takes_nothing_away() -> None:
    fed = Fed()
    one = fed.row(pod("p", "10.0.0.1", {"app": "x"}, node="n2"))
    fed.list(fed.row(HERE, 1), one)
    fed.rows.begin()
    fed.list(fed.row(HERE, 1), one)
    assert {"10.0.0.1"} in fed.told.sets.values()
    fed.list(fed.row(HERE, 1))
    assert {"10.0.0.1"} not in fed.told.sets.values()


def test_an_endpoint_that_moves_to_another_node_and_back() -> None:
    fed = Fed()
    for node in ("n2", ME, "n2", ME):
        item = pod("p", "10.0.0.1", {"app": "x"}, node=node)
        fed.put(item)
        assert fed.told == as_objects([item])
    fed.rows.gone("default/p", fed.revision)
    fed.flush()
    assert fed.told == as_objects([])


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff", b"[]", b'{"metadata":{"labels":{"a":1}}}', b"null", b"[" * 100_000],
)
def test_what_cannot_be_read_counts_as_absent(raw: bytes, caplog: Any) -> None:
    fed = Fed()
    fed.put(pod("p", "10.0.0.1", {"app": "x"}, node="n2"))
    with caplog.at_level(logging.ERROR):
        fed.rows.apply_rows([("default/p", raw, 99), ("default/here", raw, 99)])
    fed.flush()
    assert "not readable" in caplog.text
    assert fed.told.endpoints == {}
    assert len(fed.rows) <= 1


def test_null_reads_as_absent() -> None:
    fed = Fed()
    raw = (b'{"kind":"WorkloadEndpoint","metadata":{"labels":null,"name":"p","namespace":"red"},'
           b'"spec":{"node":"n2","ipNetworks":["10.0.0.1/32"],"profiles":["kns.red"],'
           b'"ports":null}}')  # fmt: skip
    fed.rows.apply_rows([("red/p", raw, 5)])
    fed.flush()
    assert {"10.0.0.1"} in fed.told.sets.values()


def test_what_is_no_address_is_named_by_a_condition_until_it_is_one() -> None:
    fed = Fed()
    fed.put(pod("p", ["10.0.0.1", "junk/32"], {"app": "x"}, node="n2"))
    key = pod("p", "")[0]
    assert "'junk/32'" in fed.calc.policy.conditions[key]
    fed.put(pod("p", "10.0.0.1", {"app": "x"}, node="n2"))
    assert key not in fed.calc.policy.conditions


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1/32",
        "010.0.0.1/32",
        "10.0.0.256/32",
        "10.0.0.1/31",
        "1.2.3/32",
        "10.0.0.1",
        " 10.0.0.1/32",
        "10.0.0.1 /32",
        "10.0.0.1\0/32",
        "\uff11.0.0.1/32",
        "/32",
        "fd00::1/32",
    ],
)
def test_addresses_are_read_as_in_objects(text: str) -> None:
    item = pod("p", [text if "/" in text else text + "/32"], {"app": "x"}, node="n2")
    fed = Fed()
    fed.put(item)
    assert fed.told == as_objects([item])


def test_rows_say_who_borrows_an_address() -> None:
    fed, block = Fed(), ip_network("10.9.0.0/26")
    there = {block: {block[7]: "n2"}}

    def borrowed() -> object:
        return fed.calc.blocks.borrowed

    item = pod("p1", "10.9.0.7", node="n2")
    fed.put(item, pod("p2", "10.9.0.8", node="n3"))
    assert borrowed() == {}
    fed.calc.update(AffinityKey("n3", block), BlockAffinity())
    assert borrowed() == there
    fed.put(pod("p1", "10.9.0.7", node="n4"))
    assert borrowed() == {block: {block[7]: "n4"}}
    fed.put(pod("p1", "10.9.0.9", node="n4"))
    assert borrowed() == {block: {block[9]: "n4"}}
    fed.rows.gone(name_of(item[0]), fed.revision)
    assert borrowed() == {}
    fed.put(item)
    assert borrowed() == there
    fed.put(pod("p1", "10.9.0.7", node=ME))
    assert borrowed() == {block: {block[7]: ME}}, "it is this node's now"
    fed.put(item)
    assert borrowed() == there, "and comes the ordinary way from now on"
    fed.list(fed.row(HERE))
    assert borrowed() == {}
