"""Graceful restart (RFC 4724): whose paths outlive a session, and for how long. Pure.

Two roles. As the *helper* we keep the paths of a peer whose session closed with no
NOTIFICATION from either side; any NOTIFICATION ends them at once. As the *restarting* side
we tell felix that our snapshot is complete only when all peers have sent End-of-RIB, so
that felix does not remove routes which a peer is about to name.

The death of our own speaker is neither: no peer restarted, so all paths stay until each peer has
sent its routes again, with or without the capability.

  GR-1  A path is kept only if its peer announced graceful restart for its family, or our own
        speaker died; and never without an end: End-of-RIB, or a timer.
  GR-2  If the new session says that forwarding state was lost, stale paths go at once.
  GR-3  A second restart before End-of-RIB does not keep what was stale already.
Time is a parameter (seconds, monotonic). Tested in tests/bgp/test_graceful_restart.py.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from bgp.speaker.interface import DownReason, Family, IPAddress, PeerOpen

OWN_RESTART_TIME = 120.0
START_DEADLINE = 60.0
SETTLE_TIME = 5.0


class Verb(enum.Enum):
    """What to do with the paths of a peer and family."""

    MARK = "mark stale"
    SWEEP = "drop what is stale"
    DROP = "drop all"


@dataclass(frozen=True, slots=True)
class Action:
    """One instruction for the table."""

    verb: Verb
    peer: IPAddress
    family: Family


@dataclass
class _State:
    """One peer. `deadlines` holds the families with stale paths and when they end."""

    families: tuple[Family, ...]
    up: bool = False
    open: PeerOpen | None = None
    deadlines: dict[Family, float] = field(default_factory=dict)
    own_fault: bool = False


class Helper:
    """The receiving speaker's side, for all peers."""

    def __init__(self) -> None:
        self._peers: dict[IPAddress, _State] = {}

    def opened(self, message: PeerOpen) -> None:
        """The OPEN of a session to come; it counts from `up` on."""
        state = self._peers.get(message.peer)
        if state is None:
            state = self._peers[message.peer] = _State(families=())
        if not state.up:
            state.open = message

    def up(self, peer: IPAddress, families: Iterable[Family], now: float) -> list[Action]:
        """A session is Established: decide about what an earlier one left (GR-2)."""
        state = self._peers.setdefault(peer, _State(families=()))
        state.up, state.families = True, tuple(families)
        forwarding = state.open.forwarding if state.open else frozenset()
        actions = []
        for family in list(state.deadlines):
            if state.own_fault or family in forwarding:
                state.deadlines[family] = now + self._restart_time(state)
            else:
                del state.deadlines[family]
                actions.append(Action(Verb.SWEEP, peer, family))
        return actions

    def down(self, peer: IPAddress, reason: DownReason, now: float) -> list[Action]:
        """A session ended: keep or drop (GR-1, GR-3)."""
        state = self._peers.get(peer)
        if state is None or not state.up:
            return []
        state.up = False
        listed = state.open.restart_families if state.open else frozenset()
        keeps = reason is DownReason.CLOSED and state.open and state.open.restart_time
        actions = []
        for family in state.families:
            if keeps and family in listed:
                if family in state.deadlines:
                    actions.append(Action(Verb.SWEEP, peer, family))
                actions.append(Action(Verb.MARK, peer, family))
                state.deadlines[family] = now + self._restart_time(state)
            else:
                state.deadlines.pop(family, None)
                actions.append(Action(Verb.DROP, peer, family))
        state.own_fault = False
        if reason is DownReason.REMOVED:
            del self._peers[peer]
        return actions

    def speaker_down(self, now: float) -> list[Action]:
        """Our own speaker died: no peer restarted, so the paths of all peers stay."""
        actions = []
        for peer, state in self._peers.items():
            if not state.up:
                continue
            state.up, state.own_fault = False, True
            for family in state.families:
                actions.append(Action(Verb.MARK, peer, family))
                state.deadlines[family] = now + OWN_RESTART_TIME
        return actions

    def forget(self, peer: IPAddress) -> list[Action]:
        """The peer is no longer configured."""
        state = self._peers.pop(peer, None)
        families = {*state.families, *state.deadlines} if state else set()
        return [Action(Verb.DROP, peer, family) for family in families]

    def end_of_rib(self, peer: IPAddress, family: Family) -> list[Action]:
        """The peer has named all it has."""
        state = self._peers.get(peer)
        if state is None or state.deadlines.pop(family, None) is None:
            return []
        return [Action(Verb.SWEEP, peer, family)]

    def expired(self, now: float) -> list[Action]:
        """The paths that have waited long enough."""
        actions = []
        for peer, state in self._peers.items():
            for family, deadline in list(state.deadlines.items()):
                if deadline <= now:
                    del state.deadlines[family]
                    actions.append(Action(Verb.SWEEP, peer, family))
        return actions

    def next_deadline(self) -> float | None:
        """When `expired` has something to say next."""
        return min(
            (at for state in self._peers.values() for at in state.deadlines.values()), default=None
        )

    def stale_until(self, peer: IPAddress) -> float | None:
        """The time until which paths of a peer are kept, if some are."""
        state = self._peers.get(peer)
        return max(state.deadlines.values(), default=None) if state else None

    def peer_open(self, peer: IPAddress) -> PeerOpen | None:
        """The last OPEN of a peer."""
        state = self._peers.get(peer)
        return state.open if state else None

    @staticmethod
    def _restart_time(state: _State) -> float:
        given = state.open.restart_time if state.open else None
        return float(given or OWN_RESTART_TIME)


class InitialConvergence:
    """Whether all peers have spoken since we started: then the first snapshot is complete.

    Passed once, it stays passed. A peer without graceful restart counts as done when it has
    been up for `SETTLE_TIME`. A peer that does not come up delays for `START_DEADLINE` only.
    """

    def __init__(self, now: float, deadline: float = START_DEADLINE) -> None:
        self._end = now + deadline
        self._waiting: set[tuple[IPAddress, Family]] | None = None
        self._settles: dict[IPAddress, float] = {}
        """When one without graceful restart will have been up for long enough, planned or not."""
        self._seen: set[tuple[IPAddress, Family]] = set()
        self.lacking = self.passed = False

    def same_time(self) -> InitialConvergence:
        """Another gate with the same deadline."""
        return InitialConvergence(self._end, 0.0)

    def expect(self, peers: Collection[tuple[IPAddress, Family]]) -> None:
        """The sessions to wait for: called when the plan is known, and when it changes."""
        self._waiting = set(peers) - self._seen

    def up(self, peer: IPAddress, graceful: bool, now: float) -> None:
        """A session is Established; one without graceful restart may send no End-of-RIB."""
        self._settles.pop(peer, None)
        if not graceful:
            self._settles[peer] = now + SETTLE_TIME

    def down(self, peer: IPAddress) -> None:
        """A session ended: it has not been up for long enough."""
        self._settles.pop(peer, None)

    def end_of_rib(self, peer: IPAddress, family: Family) -> None:
        """One peer is done for one family."""
        self._seen.add((peer, family))
        if self._waiting is not None:
            self._waiting.discard((peer, family))

    def check(self, now: float) -> bool:
        """Whether the gate is open now."""
        if not self.passed and self._waiting is not None:
            settled = {key for key in self._waiting if self._settles.get(key[0], math.inf) <= now}
            self._seen |= settled  # or `next_check` would name a moment that is gone
            self._waiting -= settled
            self.passed = not (self._waiting or self.lacking) or now >= self._end
        return self.passed

    def next_check(self) -> float | None:
        """When to ask again if nothing happens."""
        if self.passed or self._waiting is None:
            return None
        waiting = {peer for peer, _ in self._waiting}
        return min([self._end, *(at for peer, at in self._settles.items() if peer in waiting)])
