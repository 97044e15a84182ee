"""A second speaker: sessions in memory, no BGP at all. It proves the interface (wall 10).

Two speakers of one `Fabric` have a session when each is configured with the other. The same
contract tests run on it and on ExaBGP; the agent's tests use it where time and bytes do not
matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from bgp.speaker.interface import (
    Announced,
    Attributes,
    DownReason,
    EndOfRib,
    Event,
    Family,
    IPAddress,
    PathsReceived,
    Peer,
    PeerDown,
    PeerOpen,
    PeerUp,
    Route,
    SpeakerDown,
    SpeakerUp,
    Withdrawn,
)


@dataclass
class Fabric:
    """Who is reachable at which address."""

    speakers: dict[IPAddress, MemorySpeaker] = field(default_factory=dict)


class MemorySpeaker:
    """Implements `bgp.speaker.interface.Speaker`."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._peers: dict[IPAddress, Peer] = {}
        self._up: dict[IPAddress, dict[Route, None]] = {}
        self._routes: frozenset[Route] = frozenset()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._withheld = False
        self._owed: set[IPAddress] = set()

    async def configure(self, peers: Collection[Peer]) -> None:
        wanted = {peer.address: peer for peer in peers}
        for address, peer in list(self._peers.items()):
            if wanted.get(address) != peer:
                gone = address not in wanted
                self._close(address, DownReason.REMOVED if gone else DownReason.CLOSED)
        self._peers = wanted
        for peer in wanted.values():
            self._fabric.speakers[peer.local_address] = self
        self._events.put_nowait(SpeakerUp())
        for address in wanted:
            self._connect(address)

    async def announce(self, routes: Collection[Route]) -> None:
        self._routes = frozenset(routes)
        for address in self._up:
            self._offer(address)

    def withhold(self, withheld: bool) -> None:
        self._withheld = withheld
        if not withheld:
            owed, self._owed = self._owed, set()
            for address in owed & self._up.keys():
                self._offer(address, end=True)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    def conditions(self) -> list[tuple[str, str]]:
        return []

    async def close(self) -> None:
        for address in list(self._up):
            self._close(address, DownReason.CLOSED)
        self._peers = {}

    def crash(self) -> None:
        """Die and come back at once."""
        for address in list(self._up):
            self._other_end(address, DownReason.CLOSED)
        self._up.clear()
        self._events.put_nowait(SpeakerDown("crash"))
        self._events.put_nowait(SpeakerUp())
        for address in self._peers:
            self._connect(address)

    def _connect(self, address: IPAddress) -> None:
        other = self._fabric.speakers.get(address)
        mine = self._peers[address]
        theirs = other._peers.get(mine.local_address) if other else None
        if other is None or theirs is None or address in self._up:
            return
        if (mine.remote_as, mine.local_as) != (theirs.local_as, theirs.remote_as):
            return
        self._established(mine, theirs)
        other._established(theirs, mine)
        self._offer(address, end=True)
        other._offer(mine.local_address, end=True)

    def _established(self, mine: Peer, theirs: Peer) -> None:
        families = frozenset(theirs.families)
        self._events.put_nowait(
            PeerOpen(
                mine.address,
                theirs.local_as,
                theirs.router_id,
                theirs.hold_time,
                theirs.restart_time,
                families,
                families,
            )
        )
        self._events.put_nowait(PeerUp(mine.address, mine))
        self._up[mine.address] = {}

    def _close(self, address: IPAddress, reason: DownReason) -> None:
        if address in self._up:
            self._other_end(address, DownReason.CLOSED)
            del self._up[address]
            self._events.put_nowait(PeerDown(address, reason))

    def _other_end(self, address: IPAddress, reason: DownReason) -> None:
        other, local = self._fabric.speakers[address], self._peers[address].local_address
        if local in other._up:
            del other._up[local]
            other._events.put_nowait(PeerDown(local, reason))

    def _offer(self, address: IPAddress, end: bool = False) -> None:
        peer, offered = self._peers[address], self._up[address]
        wish = {
            route: None
            for route in self._routes
            if Family.of(route.prefix) in peer.families
            and (route.peers is None or address in route.peers)
        }
        other = self._fabric.speakers[address]
        named = {route.prefix for route in wish}
        gone = tuple(Withdrawn(route.prefix) for route in offered if route.prefix not in named)
        if gone:
            other._events.put_nowait(PathsReceived(peer.local_address, Attributes(), (), gone))
        for route in wish:
            if route not in offered:
                announced = Announced(route.prefix, route.next_hop or peer.local_address)
                other._events.put_nowait(
                    PathsReceived(peer.local_address, _attributes(route, peer), (announced,))
                )
        self._up[address] = wish
        if end and self._withheld:
            self._owed.add(address)
        elif end:
            for family in peer.families:
                other._events.put_nowait(EndOfRib(peer.local_address, family))


def _attributes(route: Route, peer: Peer) -> Attributes:
    """What a route looks like at the other end."""
    path = route.as_path if peer.internal else (peer.local_as, *route.as_path)
    return Attributes(
        origin=route.origin,
        as_path=path,
        as_path_length=len(path),
        local_pref=route.local_pref if peer.internal else None,
        med=route.med,
        originator_id=route.originator_id,
        cluster_list=route.cluster_list,
        communities=route.communities,
        large_communities=route.large_communities,
    )
