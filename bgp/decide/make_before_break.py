"""Sessions that a new plan no longer has stay until their successors carry the routes. Pure.

When a mesh becomes reflectors (or the other way round) the old sessions must outlive the new
ones' first full table: make before break. Each end decides alone, and one that drops a session
early drops it for both. So an end lets go only when a successor has sent End-of-RIB, every
prefix of the old session is offered by another one (which shows that its peer talks to the
successors as well), and some time has passed since.

  HND-1  A session between nodes is given up for its successors only while one of them is complete.
  HND-2  A session whose node is gone, or that has no successor at all, ends at once.
  HND-3  No session outlives its plan by more than LIMIT, with or without successors that carry its
         routes: a peering that an operator deletes ends, though the peers that remain are down.
Time is a parameter (seconds, monotonic). Tested in tests/bgp/test_make_before_break.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bgp.peering.planned import PlannedPeer
from bgp.speaker.interface import IPAddress

LINGER = 10.0
"""How long a session stays after others offer all its prefixes."""
LIMIT = 120.0
"""How long it stays after it left the plan, if no other session offers all its prefixes."""
CHECK = 0.5

Peers = Mapping[IPAddress, PlannedPeer]


@dataclass
class _Held:
    """A session beyond its plan: since when, and `covered`: since when others offer all it does."""

    planned: PlannedPeer
    since: float
    covered: float | None = None


class MakeBeforeBreak:
    """The sessions that are kept beyond their plan."""

    def __init__(self, linger: float = LINGER, limit: float = LIMIT) -> None:
        self._linger, self.limit = linger, limit
        self._held: dict[IPAddress, _Held] = {}
        self._fresh: set[IPAddress] = set()
        self._successors: set[IPAddress] = set()
        self._complete: float | None = None
        self._settled = False

    @property
    def kept(self) -> Peers:
        """The sessions that are kept."""
        return {address: each.planned for address, each in self._held.items()}

    @property
    def successors(self) -> frozenset[IPAddress]:
        """The sessions that take over, once one of them has been complete for a while.

        From then on they hear nothing at second hand of those that are kept (OFF-4 of
        `bgp.routes.export_policy`): what they know of their own is what will be left.
        """
        return frozenset(self._successors) if self._settled else frozenset()

    def plan(
        self, old: Peers, new: Peers, exists: Callable[[PlannedPeer], bool], now: float
    ) -> Peers:
        """The sessions to hold now: the new plan, and what is kept of the old.

        `old` is what was held so far; `exists`: the node still has this address.
        """
        self._fresh = {address for address in new if address in self._fresh or address not in old}
        # A session that was there before may be a reflector's by now: where none is new, all
        # that stay are successors.
        self._successors = self._fresh or set(new)
        for address, planned in old.items():
            if address not in new and planned.in_cluster and address not in self._held:
                self._held[address] = _Held(planned, now)
        for address, session in list(self._held.items()):
            if address in new or not exists(session.planned) or not self._successors:
                del self._held[address]
        self._end_if_done()
        return {**self.kept, **new}

    def release(
        self,
        now: float,
        complete: Callable[[IPAddress], bool],
        covered: Callable[[IPAddress], bool],
    ) -> dict[IPAddress, bool]:
        """The sessions that end now, each with whether the sessions that stay carry its routes.

        `complete`: a session is up and has sent End-of-RIB; `covered`: all that a session
        offers is offered by one that stays.
        """
        if self._held and any(complete(each) for each in self._successors):
            self._complete = now if self._complete is None else self._complete
            self._settled = now - self._complete >= self._linger / 2
        else:
            self._complete, self._settled = None, False
        gone = {}
        for address, session in self._held.items():
            carried = self._complete is not None and covered(address)
            if not carried:
                session.covered = None
            elif session.covered is None:
                session.covered = now
            ripe = session.covered is not None and now - session.covered >= self._linger
            if ripe or now - session.since >= self.limit:
                gone[address] = carried
        for address in gone:
            del self._held[address]
        self._end_if_done()
        return gone

    def _end_if_done(self) -> None:
        """Where nothing is held, forget this handover: the next one has successors of its own."""
        if not self._held:
            self._fresh, self._complete, self._settled = set(), None, False

    def next_check(self, now: float) -> float | None:
        """When to ask again."""
        return now + CHECK if self._held else None
