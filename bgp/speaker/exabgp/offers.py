"""The commands that turn the routes offered to each session into the desired ones.

A change costs what it changes, not the number of routes times the number of peers: a
reflector offers thousands of routes to hundreds of clients. Sessions that need the same change
on equal terms share the bytes and the commands.

  OFR-2  While End-of-RIB is withheld no session is told it; each session is told it once.
  OFR-1  A route that a peer cannot be told (its attributes fit no message, no next hop of ours is
         of its family) is a condition of that peer, until it is told or withdrawn, or its session
         ends. An earlier route for the prefix is withdrawn.
Tested in tests/bgp/test_offers.py against the plain definition.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bgp.speaker import encoding
from bgp.speaker.encoding import BEGIN_OF_REFRESH, END_OF_REFRESH, Terms
from bgp.speaker.exabgp import command_lines
from bgp.speaker.exabgp.command_lines import Command
from bgp.speaker.interface import Family, IPAddress, IPNetwork, Route

log = logging.getLogger(__name__)

_Audience = frozenset[IPAddress]
_KEPT = 1000
"""Routes that cannot be told are remembered for a peer, at most."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Hearing:
    """An Established session: its number, what it carries, and how a route is written for it."""

    number: int
    families: frozenset[Family]
    terms: Terms


@dataclass(frozen=True, slots=True)
class _Part:
    """Routes of one audience, written for sessions of equal terms, and those that do not fit."""

    messages: tuple[bytes, ...]
    unfit: tuple[tuple[IPNetwork, str], ...]


class Offers:
    """The routes on offer, and the peers that hear them: those with an Established session."""

    def __init__(self) -> None:
        self._routes: frozenset[Route] = frozenset()
        self._up: dict[IPAddress, Hearing] = {}
        self._sent: dict[IPAddress, int] = {}
        self._unfit: dict[IPAddress, dict[IPNetwork, str]] = {}
        self._withheld = False
        self._owed: set[IPAddress] = set()
        self._parts: dict[tuple[_Audience | None, Family], list[Route]] = {}
        self._encoded: dict[tuple[_Audience | None, Family, Terms], _Part] = {}

    def up(self, address: IPAddress, hearing: Hearing) -> Iterator[Command]:
        """A session is Established: all routes for it, then End-of-RIB (SPK-2)."""
        self._up[address] = hearing
        messages, self._sent[address] = self._whole(address, hearing, hearing.families)
        if self._withheld:
            self._owed.add(address)
        else:
            messages += _ends(hearing)
        return command_lines.send(messages, [hearing.number])

    def withhold(self, withheld: bool) -> list[Command]:
        """Withhold End-of-RIB from now on, or send it to the sessions that lack it (OFR-2)."""
        self._withheld = withheld
        if withheld:
            return []
        owed, self._owed = self._owed, set()
        heard = [self._up[address] for address in owed]
        return [each for one in heard for each in command_lines.send(_ends(one), [one.number])]

    def down(self, address: IPAddress) -> None:
        """A session ended."""
        self._up.pop(address, None)
        self._owed.discard(address)
        self._sent.pop(address, None)
        self._unfit.pop(address, None)

    def clear(self) -> None:
        """ExaBGP ended, and all sessions with it."""
        self._up.clear()
        self._owed.clear()
        self._sent.clear()
        self._unfit.clear()

    def sent(self, address: IPAddress) -> int:
        """The number of routes offered to a peer now."""
        return self._sent.get(address, 0) - len(self._unfit.get(address, ()))

    def conditions(self) -> list[tuple[str, str]]:
        """Which routes a peer is not told, for an operator."""
        reports = []
        for address, table in self._unfit.items():
            names = ", ".join(map(str, list(table)[:_SHOWN]))
            more = f" and {len(table) - _SHOWN} more" if len(table) > _SHOWN else ""
            why = next(iter(table.values()))
            reports.append((f"BGP peer {address}", f"it is not told {names}{more}: {why}"))
        return reports

    def again(self, address: IPAddress, family: Family, enhanced: bool) -> Iterator[Command]:
        """The answer to a peer that asks for all once more (RFC 2918; `enhanced`: RFC 7313)."""
        hearing = self._up.get(address)
        if hearing is None or family not in hearing.families:
            return iter(())
        messages, _ = self._whole(address, hearing, frozenset({family}))
        if enhanced:
            messages.insert(0, encoding.route_refresh(family, BEGIN_OF_REFRESH))
            messages.append(encoding.route_refresh(family, END_OF_REFRESH))
        return command_lines.send(messages, [hearing.number])

    def change(self, routes: Collection[Route]) -> list[Command]:
        """Offer exactly these from now on; what to say for it."""
        desired = frozenset(routes)
        fresh, gone = desired - self._routes, self._routes - desired
        self._routes = desired
        if fresh or gone:
            self._parts.clear()
            self._encoded.clear()
        known: dict[tuple[_Audience | None, Family], _Audience] = {}
        announced: dict[_Audience, list[Route]] = {}
        replaced: dict[IPNetwork, list[_Audience]] = {}
        for route in fresh:
            audience = self._audience(route, known)
            announced.setdefault(audience, []).append(route)
            replaced.setdefault(route.prefix, []).append(audience)
        lost: dict[_Audience, list[IPNetwork]] = {}
        for route in gone:
            audience = self._audience(route, known)
            for address in audience:
                self._sent[address] -= 1
            lost.setdefault(audience.difference(*replaced.get(route.prefix, ())), []).append(
                route.prefix
            )
        for audience, some in announced.items():
            for address in audience:
                self._sent[address] += len(some)
        commands: list[Command] = []
        for audience in {**lost, **announced}:  # no prefix is in both for one peer
            for terms, some_peers in self._alike(audience):
                gone_nets = lost.get(audience, [])
                self._forget_unfit(some_peers, gone_nets)
                messages = [*encoding.withdraw(gone_nets)]
                messages += self._announced(announced.get(audience, []), terms, some_peers)
                numbers = [self._up[address].number for address in some_peers]
                commands += command_lines.send(messages, numbers)
        return commands

    def _audience(
        self, route: Route, known: dict[tuple[_Audience | None, Family], _Audience]
    ) -> _Audience:
        family = Family.of(route.prefix)
        audience = known.get((route.peers, family))
        if audience is None:
            those: Iterable[IPAddress] = self._up if route.peers is None else route.peers
            audience = known[route.peers, family] = frozenset(
                address
                for address in those
                if address in self._up and family in self._up[address].families
            )
        return audience

    def _alike(self, audience: _Audience) -> Iterable[tuple[Terms, list[IPAddress]]]:
        """The peers of an audience, those of equal terms together."""
        groups: dict[Terms, list[IPAddress]] = {}
        for address in audience:
            groups.setdefault(self._up[address].terms, []).append(address)
        return groups.items()

    def _whole(
        self, address: IPAddress, hearing: Hearing, families: frozenset[Family]
    ) -> tuple[list[bytes], int]:
        """All messages of these families for a peer, and the number of routes in them.

        What several peers are meant to hear is written once for all of equal terms: a hundred
        sessions that begin together cost one table, not a hundred.
        """
        if not self._parts:
            for route in self._routes:
                audience = route.peers, Family.of(route.prefix)
                self._parts.setdefault(audience, []).append(route)
        messages: list[bytes] = []
        count = 0
        for (peers, family), routes in self._parts.items():
            if family not in families or not (peers is None or address in peers):
                continue
            count += len(routes)
            key = peers, family, hearing.terms
            part = self._encoded.get(key)
            if part is None:
                unfit: list[tuple[IPNetwork, str]] = []
                made = tuple(encoding.announce(routes, hearing.terms, unfit))
                part = self._encoded[key] = _Part(made, tuple(unfit))
            messages += part.messages
            self._note_unfit([address], part.unfit, [route.prefix for route in routes])
        return messages, count

    def _announced(
        self, routes: Collection[Route], terms: Terms, peers: Collection[IPAddress]
    ) -> list[bytes]:
        """The messages for these peers (OFR-1)."""
        unfit: list[tuple[IPNetwork, str]] = []
        messages = [*encoding.announce(routes, terms, unfit)]
        self._note_unfit(peers, unfit, [route.prefix for route in routes] if self._unfit else ())
        return messages

    def _note_unfit(
        self,
        peers: Collection[IPAddress],
        unfit: Collection[tuple[IPNetwork, str]],
        nets: Collection[IPNetwork],
    ) -> None:
        """Note which of `nets` cannot be offered to these peers; the others can (OFR-1)."""
        self._forget_unfit(peers, nets)
        for net, why in unfit:
            for address in peers:
                table = self._unfit.setdefault(address, {})
                if net in table or len(table) < _KEPT:
                    table[net] = why
        if unfit:
            net, why = next(iter(unfit))
            log.error("%d routes cannot be told, %s: %s", len(unfit), net, why)

    def _forget_unfit(self, peers: Iterable[IPAddress], nets: Collection[IPNetwork]) -> None:
        if not self._unfit:
            return
        for address in self._unfit.keys() & set(peers):
            table = self._unfit[address]
            for net in nets:
                table.pop(net, None)
            if not table:
                del self._unfit[address]


def _ends(hearing: Hearing) -> list[bytes]:
    return [encoding.end_of_rib(family) for family in Family if family in hearing.families]
