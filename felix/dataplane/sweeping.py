"""When rules and sets that nobody wants any more are taken away.

That waits for a quiet moment and is then done at once, because it holds up what comes: with nft
not by itself, but the kernel takes no new rule of iptables before its readers have left the old
ones, 10 to 20 ms; with legacy a program's start and 0.25 ms a pod. So it is rare where a node is
never quiet, and a gap is enough then, before too much has gathered: each pod that is still there
costs a commit 6 microseconds.
Tested in tests/felix/test_touched.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felix.dataplane.backend import Tables
    from felix.dataplane.ipsets import Sets

DELAY, GAP = 0.5, 0.02
"""Rules that nobody wants go when nothing came for DELAY seconds, later on for GAP."""
LATER, LIMIT = 2.0, 15.0
"""So many seconds after the first of them a gap is enough, and nothing is waited for."""


class Sweeping:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: float | None = None
        self._since: float | None = None

    @property
    def due(self) -> bool:
        """Whether rules are to be taken away now."""
        return self._at is not None and self._clock() >= self._at

    @property
    def wait(self) -> float | None:
        """Seconds until that is so; None: nothing is to be taken away."""
        return None if self._at is None else max(0.0, self._at - self._clock())

    def sets(self, tables: Tables, sets: Sets) -> dict[str, str]:
        """After a commit: no rule needs these sets. Returns what could not be done."""
        if not tables.garbage:
            self._at = self._since = None
            return sets.sweep()
        now = self._clock()
        self._since = self._since or now
        self._at = moment(now, self._since)
        return {}


def moment(now: float, since: float) -> float:
    """When rules go that nobody wants since `since`, if nothing comes after `now`. Pure."""
    return min(now + DELAY, max(now + GAP, since + LATER), since + LIMIT)
