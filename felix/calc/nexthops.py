"""Next hops, resolved: from an address that a peer named to a gateway on a link.

A next hop of a mesh peer in another rack is on no link of ours; the kernel cannot take it.
It is looked up, longest prefix first, in the routes that others made (connected, static,
DHCP), and where an external peer announced something more specific, in that. Several ways
stay several ways (wall 6).

What was looked at on the way is part of the answer (`Resolution`): so a change of an external path
costs those answers that it concerns, not all.

Invariants:
  NHR-1  A resolved hop is on a link: its gateway was on-link or another route's gateway.
  NHR-2  Resolution ends: a path is never resolved through itself, and not through more than
         `MAX_DEPTH` others.
  NHR-3  A way stays true while no external path that covers one of its addresses changes.
Tested in tests/felix/calc/test_nexthops.py (hypothesis) and test_forwarding.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from felix.calc.learned_routes import Via
from linux import prefixes
from linux.prefixes import Prefix
from linux.route_values import NextHop, Route

MAX_DEPTH = 3
_LINK_LOCAL = prefixes.Networks(map(prefixes.parse, ("169.254.0.0/16", "fe80::/10")))
_NO_PATHS: frozenset[Prefix] = frozenset()


class Resolution(NamedTuple):
    """The hops by which next hops are reached; none if they are not.

    `addresses` were looked up for it, `through` are the external paths that it takes.
    """

    hops: tuple[NextHop, ...]
    addresses: frozenset[bytes]
    through: frozenset[Prefix]


class Resolver:
    """Resolves next hops over one state of the kernel's routes and the external paths.

    `routes` are the main table's routes that are not felix's own; `dead` are indexes of links
    that carry nothing now.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        external: Mapping[Prefix, Via],
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self._best: dict[Prefix, Route] = {}
        for route in routes:
            known = self._best.get(route.prefix)
            if known is None or route.metric < known.metric:
                self._best[route.prefix] = route
        self._external = dict(external)
        self._dead = dead
        # (bytes of an address, length): how many prefixes have it.
        self._counted = Counter((len(p) - 1, p[-1]) for p in (*self._best, *external))
        self._lengths: dict[int, list[int]] | None = None

    @property
    def external(self) -> Mapping[Prefix, Via]:
        """The external paths that others may be resolved by."""
        return self._external

    def put(self, prefix: Prefix, via: Via | None) -> bool:
        """An external path is this one now, or none; returns whether that is news."""
        before = self._external.get(prefix)
        if before == via:
            return False
        if via is None:
            del self._external[prefix]
        else:
            self._external[prefix] = via
        if before is None or via is None:
            size = (len(prefix) - 1, prefix[-1])
            many = self._counted[size]
            self._counted[size] += 1 if before is None else -1
            if not many or not self._counted[size]:
                self._lengths = None
        return True

    def way(self, via: Via, own: Prefix | None = None) -> Resolution:
        """How next hops are reached; never through `own`, the path that is resolved."""
        addresses: set[bytes] = set()
        through: set[Prefix] = set()
        skip = _NO_PATHS if own is None else frozenset((own,))
        hops = tuple(
            dict.fromkeys(
                hop
                for address in via.next_hops
                for hop in self._lookup(address, skip, 0, addresses, through)
            )
        )
        alive = tuple(hop for hop in hops if hop.oif not in self._dead)
        return Resolution(alive or hops, frozenset(addresses), frozenset(through))

    def _sizes(self, size: int) -> list[int]:
        if self._lengths is None:
            self._lengths = {4: [], 16: []}
            for (each, length), many in self._counted.items():
                if many:
                    self._lengths[each].append(length)
            for lengths in self._lengths.values():
                lengths.sort(reverse=True)
        return self._lengths[size]

    def _lookup(
        self,
        address: bytes,
        skip: frozenset[Prefix],
        depth: int,
        addresses: set[bytes],
        through: set[Prefix],
    ) -> Iterator[NextHop]:
        if _LINK_LOCAL.hold(address):
            # It has a meaning on one link only, and the path does not name the link.
            return
        addresses.add(address)
        size = len(address)
        value = int.from_bytes(address, "big")
        for length in self._sizes(size):
            free = (size << 3) - length
            masked = (value >> free << free).to_bytes(size, "big")
            prefix = Prefix(masked + bytes((length,)))
            route = self._best.get(prefix)
            if route is not None:
                yield from _through(route, address)
                return
            via = self._external.get(prefix)
            if via is not None and prefix not in skip:
                through.add(prefix)
                if depth < MAX_DEPTH:
                    deeper = skip | {prefix}
                    for hop in via.next_hops:
                        yield from self._lookup(hop, deeper, depth + 1, addresses, through)
                return


def _through(route: Route, address: bytes) -> Iterator[NextHop]:
    if route.type == "unicast":
        for hop in route.next_hops:
            if hop.oif:
                gateway = ip_address(address) if hop.gateway is None else hop.gateway
                yield NextHop(gateway, hop.oif, hop.onlink)
