"""What the speaker knows of one configured peer's session. Pure: lines in, events out.

Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bgp.speaker.attribute_values import Session as Agreed
from bgp.speaker.encoding import Terms
from bgp.speaker.exabgp import protocol
from bgp.speaker.exabgp.offers import Hearing
from bgp.speaker.interface import (
    DownReason,
    EndOfRib,
    Family,
    IPAddress,
    PathsReceived,
    Peer,
    PeerOpen,
)
from bgp.speaker.path_keys import PathKey, path_key
from bgp.speaker.wire import Decoder

FAULT_PAUSE = 10.0
"""How often faults of one peer are logged at most, in seconds."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A session that we end, and what to tell the peer."""

    reason: DownReason
    detail: str
    code: int
    subcode: int


@dataclass
class Session:
    """One peer. `ending`: we have asked for its end, and take nothing more from it.

    `number`: ExaBGP's for the Established session. `refreshed`: families of which the peer was
    told all once more a moment ago, and whether it has asked again.
    """

    peer: Peer
    up: bool = False
    number: int = 0
    refreshed: dict[Family, bool] = field(default_factory=dict)
    opened: PeerOpen | None = None
    ending: Ending | None = None
    _decoder: Decoder | None = None
    _paths: set[PathKey] = field(default_factory=set)
    _quiet_until: float = 0.0

    @property
    def refreshes(self) -> bool:
        """The peer repeats its paths when asked."""
        return self.opened is not None and self.opened.route_refresh

    @property
    def hold_time(self) -> int:
        """Seconds: the smaller of the two proposals (RFC 4271 4.2)."""
        theirs = self.opened.hold_time if self.opened is not None else 0
        return min(theirs or self.peer.hold_time, self.peer.hold_time)

    def start(self, said: protocol.Up) -> Hearing:
        """The session is Established; what it can be told."""
        self.up, self.ending, self._decoder, self.number = True, None, None, said.session
        self._paths.clear()
        self.refreshed.clear()
        internal = self.peer.internal
        terms = Terms(
            internal,
            0 if internal else self.peer.local_as,
            said.four_octet_as,
            said.own4,
            said.own6,
        )
        return Hearing(said.session, said.families & frozenset(self.peer.families), terms)

    def stop(self, reason: DownReason, words: str) -> tuple[DownReason, str]:
        """Note that the session ended; returns why: our reason, if there is one, else ExaBGP's."""
        ending, self.ending, self.up = self.ending, None, False
        self._paths.clear()
        return (ending.reason, ending.detail) if ending else (reason, words)

    def receive_update(
        self, raw: protocol.RawUpdate
    ) -> tuple[list[PathsReceived | EndOfRib], Ending | None, str]:
        """One UPDATE: its events, whether it ends the session, and what to log of it."""
        if self._decoder is None:
            self._decoder = Decoder(self.peer.address, self._agreed(raw.flags))
        update = self._decoder.decode(raw.body)
        ending = None
        if update.reset is not None:
            detail = f"UPDATE: {update.reset}"
            ending = Ending(
                DownReason.NOTIFICATION_SENT, detail, update.reset.code, update.reset.subcode
            )
        elif self._too_many(update.events):
            detail = f"more than {self.peer.max_prefixes} paths"
            ending = Ending(DownReason.LIMIT, detail, 6, 1)
            update.events.clear()
            self._paths.clear()
        words = "; ".join(update.faults)
        if words and (now := time.monotonic()) >= self._quiet_until:
            self._quiet_until = now + FAULT_PAUSE
            return update.events, ending, words
        return update.events, ending, ""

    def _agreed(self, flags: str) -> Agreed:
        return Agreed(
            internal=self.peer.internal,
            four_octet_as="4" in flags,
            add_path4="a" in flags,
            add_path6="A" in flags,
            has_ipv6=Family.IPV6 in self.peer.families,
        )

    def _too_many(self, events: list[PathsReceived | EndOfRib]) -> bool:
        limit = self.peer.max_prefixes
        if not limit:
            return False
        for event in events:
            if isinstance(event, PathsReceived):
                self._paths.difference_update(
                    [path_key(each.prefix, each.path_id) for each in event.withdrawn]
                )
                self._paths.update(
                    [path_key(each.prefix, each.path_id) for each in event.announced]
                )
        return len(self._paths) > limit


def changed_fields(old: Peer, new: Peer) -> list[str]:
    """The fields in which two definitions of a peer differ, without their values: one is a key."""
    return [name for name in Peer.__slots__ if getattr(old, name) != getattr(new, name)]


def down_reason(words: str) -> DownReason:
    """ExaBGP's reason for a `down`, by its beginning: the words occur elsewhere too."""
    if words.startswith("notification received ("):
        return DownReason.NOTIFICATION_RECEIVED
    if words.startswith("notification sent ("):
        return DownReason.NOTIFICATION_SENT
    return DownReason.CLOSED


class Penalties:
    """Peers that passed their limit, and until when they stay out: longer each time.

    Another definition of the peer ends it at once: perhaps the limit was raised.
    """

    PAUSES = (60.0, 120.0, 300.0, 900.0)

    def __init__(self) -> None:
        self._until: dict[IPAddress, tuple[float, Peer, str]] = {}
        self._count: dict[IPAddress, tuple[int, float]] = {}

    def punish(self, peer: Peer, now: float, why: str = "") -> float:
        """The peer passed a limit (`why`); returns for how many seconds it stays out."""
        times, last = self._count.get(peer.address, (0, 0.0))
        times = 0 if now - last > 2 * self.PAUSES[-1] else times
        pause = self.PAUSES[min(times, len(self.PAUSES) - 1)]
        why = why or f"more than {peer.max_prefixes} paths"
        self._until[peer.address] = now + pause, peer, why
        self._count[peer.address] = times + 1, now
        return pause

    def without(self, peers: dict[IPAddress, Peer], now: float) -> dict[IPAddress, Peer]:
        """The peers that may have a session now."""
        for address, (until, peer, _) in list(self._until.items()):
            if now >= until or peers.get(address) != peer:
                del self._until[address]
        if not self._until:
            return peers
        return {address: peer for address, peer in peers.items() if address not in self._until}

    def conditions(self, now: float) -> list[tuple[str, str]]:
        """Conditions for an operator: peers that are held down."""
        return [
            (
                f"BGP peer {address}",
                f"sent {why}: its session is held down for {max(0, round(until - now))} s more",
            )
            for address, (until, _, why) in self._until.items()
        ]
