"""Next hops over a routing table, with hypothesis against a plain restatement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from felix.calc import nexthops
from felix.calc.learned_routes import Via
from linux.prefixes import Prefix, parse
from linux.routes import NextHop, Route

ETH0, ETH1 = 2, 3
CONNECTED = Route(ip_network("10.99.1.0/24"), (NextHop(None, ETH0),), protocol=2)
DEFAULT = Route(ip_network("0.0.0.0/0"), (NextHop(ip_address("10.99.1.254"), ETH0),))
SECOND = Route(ip_network("10.98.0.0/24"), (NextHop(None, ETH1),), protocol=2)


def hop(gateway: str, oif: int = ETH0) -> NextHop:
    return NextHop(ip_address(gateway), oif)


class Known(NamedTuple):
    prefix: Prefix
    via: Via


def path(prefix: str, *hops: str, external: bool = False) -> Known:
    return Known(parse(prefix), Via(tuple(ip_address(hop).packed for hop in hops), external))


class Resolver:
    """The resolver, asked as `felix.calc.remote` asks."""

    def __init__(
        self,
        routes: Iterable[Route],
        external: Mapping[Prefix, Known],
        dead: frozenset[int] = frozenset(),
    ) -> None:
        known = {prefix: path.via for prefix, path in external.items()}
        self._real = nexthops.Resolver(routes, known, dead)

    def resolve(self, path: Known) -> tuple[NextHop, ...]:
        return self._real.way(path.via, path.prefix if path.via.external else None).hops


def test_a_peer_on_the_link_is_the_gateway() -> None:
    assert Resolver([CONNECTED, DEFAULT], {}).resolve(path("10.65.1.0/26", "10.99.1.2")) == (
        hop("10.99.1.2"),
    )


def test_a_peer_in_another_rack_is_reached_by_the_router() -> None:
    found = Resolver([CONNECTED, DEFAULT], {}).resolve(path("10.65.1.0/26", "10.99.2.2"))
    assert found == (hop("10.99.1.254"),)


def test_several_next_hops_stay_several() -> None:
    resolver = Resolver([CONNECTED, SECOND], {})
    found = resolver.resolve(path("10.65.1.0/26", "10.99.1.2", "10.98.0.7"))
    assert set(found) == {hop("10.99.1.2"), hop("10.98.0.7", ETH1)}


def test_two_ways_by_one_router_are_one() -> None:
    found = Resolver([CONNECTED, DEFAULT], {}).resolve(
        path("10.65.1.0/26", "10.99.2.2", "10.99.2.3")
    )
    assert found == (hop("10.99.1.254"),)


def test_a_route_with_several_ways_gives_several() -> None:
    both = Route(ip_network("10.99.2.0/24"), (hop("10.99.1.253"), hop("10.99.1.254")))
    found = Resolver([CONNECTED, both], {}).resolve(path("10.65.1.0/26", "10.99.2.2"))
    assert set(found) == {hop("10.99.1.253"), hop("10.99.1.254")}


def test_what_an_external_peer_announced_is_more_specific_than_the_default() -> None:
    external = path("10.99.2.0/24", "10.99.1.253", external=True)
    resolver = Resolver([CONNECTED, DEFAULT], {external.prefix: external})
    assert resolver.resolve(path("10.65.1.0/26", "10.99.2.2")) == (hop("10.99.1.253"),)


def test_a_path_is_never_resolved_through_itself() -> None:
    external = path("10.99.2.0/24", "10.99.2.9", external=True)
    resolver = Resolver([CONNECTED, DEFAULT], {external.prefix: external})
    assert resolver.resolve(external) == (hop("10.99.1.254"),)
    assert Resolver([CONNECTED], {external.prefix: external}).resolve(external) == ()


def test_paths_that_need_each_other_end() -> None:
    a = path("192.0.2.0/24", "198.51.100.1", external=True)
    b = path("198.51.100.0/24", "192.0.2.1", external=True)
    resolver = Resolver([CONNECTED], {a.prefix: a, b.prefix: b})
    assert resolver.resolve(a) == resolver.resolve(b) == ()


def test_a_dead_link_is_left_out_while_another_lives() -> None:
    resolver = Resolver([CONNECTED, SECOND], {}, frozenset({ETH1}))
    found = resolver.resolve(path("10.65.1.0/26", "10.99.1.2", "10.98.0.7"))
    assert found == (hop("10.99.1.2"),)
    assert resolver.resolve(path("10.65.1.0/26", "10.98.0.7")) == (hop("10.98.0.7", ETH1),)


def test_blackholes_and_nothing_resolve_to_nothing() -> None:
    hole = Route(ip_network("10.99.2.0/24"), (), "unreachable")
    assert Resolver([CONNECTED, DEFAULT, hole], {}).resolve(path("10.65.1.0/26", "10.99.2.2")) == ()
    assert Resolver([], {}).resolve(path("10.65.1.0/26", "10.99.2.2")) == ()


def test_the_lower_metric_wins() -> None:
    worse = Route(DEFAULT.dst, (hop("10.99.1.9"),), metric=100)
    found = Resolver([CONNECTED, worse, DEFAULT], {}).resolve(path("10.65.1.0/26", "10.99.2.2"))
    assert found == (hop("10.99.1.254"),)


def test_ipv6_is_the_same() -> None:
    link = Route(ip_network("2001:db8::/64"), (NextHop(None, ETH0),), protocol=2)
    found = Resolver([link, CONNECTED], {}).resolve(path("fd65::/122", "2001:db8::2"))
    assert found == (NextHop(ip_address("2001:db8::2"), ETH0),)


NETWORKS = st.integers(0, 6).flatmap(
    lambda length: st.integers(0, (1 << length) - 1).map(
        lambda n: IPv4Network((n << (32 - length), length))
    )
)
ADDRESSES = st.integers(0, 63).map(lambda n: IPv4Address(n << 26))


@given(st.lists(st.tuples(NETWORKS, st.integers(1, 4)), max_size=12), ADDRESSES)
def test_the_longest_prefix_decides(
    table: list[tuple[IPv4Network, int]], address: IPv4Address
) -> None:
    routes = {net: Route(net, (NextHop(None, oif),)) for net, oif in table}
    covering = [net for net in routes if address in net]
    found = Resolver(routes.values(), {}).resolve(path("10.65.1.0/26", str(address)))
    if not covering:
        assert found == ()
    else:
        best = max(covering, key=lambda net: net.prefixlen)
        assert found == (NextHop(address, routes[best].oif),)
