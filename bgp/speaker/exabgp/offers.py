"""Which peer is to be told what: the difference between two wishes, as command lines.

A change costs what it changes, not the number of routes times the number of peers: a
reflector offers thousands of routes to hundreds of clients. Peers that need the same change
share the lines. Tested in tests/bgp/test_offers.py against the plain definition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from bgp.speaker.exabgp import protocol
from bgp.speaker.interface import Family, IPAddress, IPNetwork, Peer, Route

T = TypeVar("T")
_Audience = frozenset[IPAddress]


class Offers:
    """The routes on offer, and the peers that hear them: those with an Established session."""

    def __init__(self) -> None:
        self._routes: frozenset[Route] = frozenset()
        self._up: dict[IPAddress, Peer] = {}
        self._sent: dict[IPAddress, int] = {}
        self._left: dict[IPAddress, frozenset[IPNetwork]] = {}
        """What a peer whose session ended may have been told: lines may still be under way."""

    def up(self, peer: Peer) -> Iterator[str]:
        """A session is Established: all routes for it, then End-of-RIB (SPK-2).

        First what is offered no more is withdrawn, should ExaBGP have it from before.
        """
        self._up[peer.address] = peer
        wish = [route for route in self._routes if _meant_for(route, peer)]
        self._sent[peer.address] = len(wish)
        gone = self._left.pop(peer.address, frozenset()) - {route.prefix for route in wish}
        for family in peer.families:
            nets = [net for net in gone if Family.of(net) is family]
            yield from protocol.withdraw(nets, [peer.address])
        yield from _announce(wish, [peer])
        for family in peer.families:
            yield protocol.end_of_rib(peer.address, family)

    def down(self, address: IPAddress) -> None:
        """A session ended."""
        peer = self._up.pop(address, None)
        self._sent.pop(address, None)
        if peer is not None:
            told = {route.prefix for route in self._routes if _meant_for(route, peer)}
            self._left[address] = frozenset(told)

    def forget(self, address: IPAddress) -> None:
        """The peer is no longer configured: ExaBGP has nothing of it either."""
        self.down(address)
        self._left.pop(address, None)

    def clear(self) -> None:
        """ExaBGP ended, and all sessions with it."""
        self._up.clear()
        self._sent.clear()
        self._left.clear()

    def sent(self, address: IPAddress) -> int:
        """How many routes are offered to a peer now."""
        return self._sent.get(address, 0)

    def change(self, routes: Collection[Route]) -> list[str]:
        """Offer exactly these from now on; what to say for it."""
        wanted = frozenset(routes)
        fresh, gone = wanted - self._routes, self._routes - wanted
        self._routes = wanted
        known: dict[tuple[_Audience | None, Family], _Audience] = {}
        told: dict[_Audience, list[Route]] = {}
        replaced: dict[IPNetwork, list[_Audience]] = {}
        for route in fresh:
            audience = self._audience(route, known)
            told.setdefault(audience, []).append(route)
            replaced.setdefault(route.prefix, []).append(audience)
        lost: dict[_Audience, list[IPNetwork]] = {}
        for route in gone:
            audience = self._audience(route, known)
            for address in audience:
                self._sent[address] -= 1
            lost.setdefault(audience.difference(*replaced.get(route.prefix, ())), []).append(
                route.prefix
            )
        for audience, some in told.items():
            for address in audience:
                self._sent[address] += len(some)
        lines: list[str] = []
        for audience, prefixes in _in_order(lost):
            for family in Family:
                some_prefixes = [net for net in prefixes if Family.of(net) is family]
                lines += protocol.withdraw(some_prefixes, audience)
        for audience, some in _in_order(told):
            lines += _announce(some, [self._up[address] for address in audience])
        return lines

    def _audience(
        self, route: Route, known: dict[tuple[_Audience | None, Family], _Audience]
    ) -> _Audience:
        family = Family.of(route.prefix)
        found = known.get((route.peers, family))
        if found is None:
            those: Iterable[IPAddress] = self._up if route.peers is None else route.peers
            found = known[route.peers, family] = frozenset(
                address
                for address in those
                if address in self._up and family in self._up[address].families
            )
        return found


def _meant_for(route: Route, peer: Peer) -> bool:
    meant = route.peers is None or peer.address in route.peers
    return meant and Family.of(route.prefix) in peer.families


def _announce(routes: Iterable[Route], peers: Collection[Peer]) -> Iterator[str]:
    by_family: dict[Family, list[Route]] = {}
    for route in routes:
        by_family.setdefault(Family.of(route.prefix), []).append(route)
    for family in Family:
        yield from protocol.announce(by_family.get(family, ()), peers)


def _in_order(table: Mapping[_Audience, T]) -> list[tuple[_Audience, T]]:
    return sorted(table.items(), key=lambda item: sorted(map(int, item[0])))
