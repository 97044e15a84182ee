"""Which paths felix takes, and the snapshot protocol."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from felix.calc.learned_routes import PathFacts, PathTable, RouteAcceptance, Via
from libcalico.local.node_api import Path
from linux.prefixes import Prefix, pack, parse, text

FACTS = PathFacts(
    routed=frozenset({ip_network("10.65.0.0/16"), ip_network("fd65::/48")}),
    own_blocks=frozenset({ip_network("10.65.0.0/26"), ip_network("fd65::/122")}),
    lent=frozenset({ip_address("10.65.0.9")}),
    own_addresses=frozenset({ip_address("10.99.1.1"), ip_address("2001:db8::1")}),
    services=frozenset({ip_network("10.96.0.0/12"), ip_network("203.0.113.7/32")}),
)


def judged(prefix: str, origin: str = "node", hops: tuple[str, ...] = ("10.99.1.2",)) -> str:
    table = PathTable()
    table.change([Path(prefix, list(hops), origin)], [])
    for reason in table.malformed.values():
        return reason
    ((packed, via),) = table.paths.items()
    return RouteAcceptance(FACTS).refusal(packed, via)


@pytest.mark.parametrize(
    ("prefix", "origin"),
    [
        ("10.65.1.0/26", "node"),
        ("10.65.0.9/32", "node"),
        ("10.65.7.7/32", "node"),
        ("fd65::1000/122", "node"),
        ("10.96.0.10/32", "node"),
        ("10.97.0.0/16", "node"),
        ("203.0.113.7/32", "node"),
        ("10.65.1.0/26", "external"),
        ("0.0.0.0/0", "external"),
        ("::/0", "external"),
        ("192.0.2.0/24", "external"),
        ("10.65.0.0/16", "external"),
    ],
)
def test_taken(prefix: str, origin: str) -> None:
    assert judged(prefix, origin) == ""


@pytest.mark.parametrize(
    ("prefix", "origin", "words"),
    [
        ("0.0.0.0/0", "node", "in no pool"),
        ("10.64.0.0/15", "node", "in no pool"),
        ("192.0.2.0/24", "node", "in no pool"),
        ("10.96.0.0/12", "node", "whole range of services"),
        ("10.64.0.0/10", "node", "in no pool"),
        ("10.65.0.0/26", "node", "inside a block"),
        ("10.65.0.0/26", "external", "inside a block"),
        ("10.65.0.8/32", "external", "inside a block"),
        ("10.65.0.8/31", "node", "inside a block"),
        ("fd65::5/128", "node", "inside a block"),
        ("10.99.1.1/32", "external", "address of this node"),
        ("2001:db8::1/128", "external", "address of this node"),
        ("169.254.1.0/24", "external", "link-local"),
        ("fe80::/64", "external", "link-local"),
        ("127.0.0.0/8", "external", "loopback"),
        ("224.0.0.0/4", "external", "multicast"),
        ("10.65.1.1/26", "node", "host bits"),
        ("nonsense", "node", "does not appear"),
        ("10.65.1.0/26", "moon", "neither node nor external"),
    ],
)
def test_refused(prefix: str, origin: str, words: str) -> None:
    assert words in judged(prefix, origin)


def test_next_hops_must_be_addresses_of_others() -> None:
    assert "no next hop" in judged("10.65.1.0/26", hops=())
    assert "next hop is this node" in judged("10.65.1.0/26", hops=("10.99.1.1",))
    assert "does not appear" in judged("10.65.1.0/26", hops=("x",))
    for hop in ("127.0.0.1", "224.0.0.5", "0.0.0.0", "255.255.255.255"):
        assert "no host address" in judged("192.0.2.0/24", "external", ("10.99.1.2", hop))


NETWORKS = st.integers(0, 32).flatmap(
    lambda length: st.integers(0, (1 << length) - 1).map(
        lambda n: IPv4Network((n << (32 - length), length))
    )
)


@given(NETWORKS, st.booleans())
@example(IPv4Network("10.96.0.0/26"), False)
@example(IPv4Network("10.96.0.0/12"), False)
@example(IPv4Network("10.65.0.0/26"), False)
def test_no_accepted_path_takes_from_an_own_block(prefix: IPv4Network, external: bool) -> None:
    via = Via((ip_address("10.99.1.2").packed,), external)
    if not RouteAcceptance(FACTS).refusal(pack(prefix), via):
        inside = any(prefix.version == b.version and prefix.subnet_of(b) for b in FACTS.own_blocks
                     if isinstance(b, IPv4Network))  # fmt: skip
        assert not inside or prefix == ip_network("10.65.0.9/32")
        if not external:
            pool, services = IPv4Network("10.65.0.0/16"), IPv4Network("10.96.0.0/12")
            single = IPv4Network("203.0.113.7/32")
            part_of_services = prefix.subnet_of(services) and prefix != services
            assert prefix.subnet_of(pool) or part_of_services or prefix == single


def test_a_snapshot_takes_away_only_what_it_did_not_name() -> None:
    table = PathTable()
    a, b, c = (parse(f"10.65.{n}.0/26") for n in (1, 2, 3))

    def path(prefix: Prefix) -> Path:
        return Path(text(prefix), ["10.99.1.2"])

    assert table.change([path(a), path(b)], []) == {a, b}
    assert not table.complete
    table.begin()
    assert table.change([path(b), path(c)], []) == {c}
    assert table.paths.keys() == {a, b, c}
    assert table.end() == {a}
    assert table.complete
    assert table.change([path(b)], [text(c), "nonsense"]) == {c}
    table.begin()
    table.change([path(a)], [])
    table.change([], [text(a)])
    assert table.end() == {b}
    assert table.paths == {}


def test_a_malformed_path_is_remembered_by_name() -> None:
    table = PathTable()
    table.change([Path("10.65.1.0/33", ["10.99.1.2"])], [])
    assert "10.65.1.0/33" in table.malformed
    table.change([], ["10.65.1.0/33"])
    assert table.malformed == {}


def test_a_malformed_path_ends_the_one_before_it() -> None:
    """What bgp tells now is not the old way (RFC 7606 2, treat-as-withdraw)."""
    table = PathTable()
    table.change([Path("10.65.1.0/26", ["10.99.1.2"])], [])
    prefix = parse("10.65.1.0/26")
    assert table.change([Path("10.65.1.0/26", ["0.0.0.0"])], []) == {prefix}
    assert table.paths == {}
    assert table.malformed == {"10.65.1.0/26": "its next hop 0.0.0.0 is no host address"}
    assert table.change([Path("10.65.1.0/26", ["0.0.0.0"])], []) == set()
    assert table.change([Path("10.65.1.0/26", ["10.99.1.3"])], []) == {prefix}
    assert table.malformed == {}
