"""When rules and sets that nobody wants any more are taken away.

That waits a little and is then done at once, because it holds up what comes (linux.iptables).
Tested in tests/felix/test_touched.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felix.dataplane.backend import Tables
    from felix.dataplane.ipsets import Sets

DELAY, LIMIT = 0.5, 10.0
"""Rules that nobody wants go when nothing came for so many seconds, at the latest after so many."""


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
        self._at = min(now + DELAY, self._since + LIMIT)
        return {}
