"""Next hops, resolved: from an address that a peer named to a gateway on a link.

A next hop of a mesh peer in another rack is on no link of ours; the kernel cannot take it.
It is looked up, longest prefix first, in the routes that others made (connected, static,
DHCP), and where an external peer announced something more specific, in that. Several ways
stay several ways (wall 6).

Invariants:
  NHR-1  A resolved hop is on a link: its gateway was on-link or another route's gateway.
  NHR-2  Resolution ends: a path is never resolved through itself, and not through more than
         `MAX_DEPTH` others.
Tested in tests/felix/test_calc_nexthops.py (hypothesis) and test_forwarding.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from felix.calc.paths import LearnedPath
from linux.routes import NextHop, Route

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
MAX_DEPTH = 3


class Resolver:
    """Resolves next hops over one state of the kernel's routes and the external paths.

    `routes` are the main table's routes that are not felix's own; `dead` are indexes of links
    that carry nothing now. Immutable in use; make a new one when something changed.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        external: Mapping[IPNetwork, LearnedPath],
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self._best: dict[IPNetwork, Route] = {}
        for route in routes:
            known = self._best.get(route.dst)
            if known is None or route.metric < known.metric:
                self._best[route.dst] = route
        self._external = external
        self._dead = dead
        lengths = {(n.version, n.prefixlen) for n in (*self._best, *external)}
        self._lengths = sorted(lengths, reverse=True)
        self._cache: dict[tuple[IPAddress, frozenset[IPNetwork]], tuple[NextHop, ...]] = {}

    def resolve(self, path: LearnedPath) -> tuple[NextHop, ...]:
        """The hops by which a path's next hops are reached; empty if none is."""
        skip = frozenset((path.prefix,)) if path.external else frozenset()
        return self._alive(_unique(h for hop in path.next_hops for h in self._hops(hop, skip)))

    def _alive(self, hops: tuple[NextHop, ...]) -> tuple[NextHop, ...]:
        alive = tuple(hop for hop in hops if hop.oif not in self._dead)
        return alive or hops

    def _hops(self, address: IPAddress, skip: frozenset[IPNetwork]) -> tuple[NextHop, ...]:
        cached = self._cache.get((address, skip))
        if cached is None:
            cached = self._cache[address, skip] = self._lookup(address, skip)
        return cached

    def _lookup(self, address: IPAddress, skip: frozenset[IPNetwork]) -> tuple[NextHop, ...]:
        if address.is_link_local:
            # It means something on one link only, and nobody said on which.
            return ()
        host = ip_network(address)
        for version, length in self._lengths:
            if version != address.version:
                continue
            prefix = host.supernet(new_prefix=length)
            route = self._best.get(prefix)
            if route is not None:
                return _through(route, address)
            path = self._external.get(prefix)
            if path is not None and prefix not in skip:
                if len(skip) > MAX_DEPTH:
                    return ()
                deeper = skip | {prefix}
                return _unique(h for hop in path.next_hops for h in self._hops(hop, deeper))
        return ()


def _through(route: Route, address: IPAddress) -> tuple[NextHop, ...]:
    if route.type != "unicast":
        return ()
    return tuple(
        NextHop(address if hop.gateway is None else hop.gateway, hop.oif, hop.onlink)
        for hop in route.next_hops
        if hop.oif
    )


def _unique(hops: Iterable[NextHop]) -> tuple[NextHop, ...]:
    return tuple(dict.fromkeys(hops))
