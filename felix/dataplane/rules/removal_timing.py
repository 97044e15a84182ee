"""When rules and sets that are not desired any more are taken away.

What is taken away holds up what comes: the kernel takes no new rule of iptables (nft) before its
readers have left the old ones, 10 to 20 ms, and who removes links waits for that too; with legacy
it is a program's start and 0.25 ms a pod. So, unless packets could still come to it, it waits for a
quiet moment and is then done at once. A node that is never quiet does it right behind a new
endpoint, now and then: who starts pods one after another has enough to do with this one. What
stays until then costs a commit 6 microseconds a pod.
Tested in tests/felix/dataplane/test_dirty_set.py and, with a kernel,
tests/felix/kernel/test_sweeps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felix.dataplane.rules.backend import Tables
    from felix.dataplane.rules.ipsets import Sets

DELAY = 0.5
"""Rules that are not desired go when nothing came for so many seconds."""
LATER, LIMIT = 2.0, 10.0
"""So many seconds after the first of them they go behind the next endpoint, and in any case."""


class RemovalTiming:
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

    def sets(self, tables: Tables, sets: Sets, *, served: bool) -> dict[str, str]:
        """After a commit: no rule needs these sets. Returns what could not be done.

        `served`: an endpoint has just got what it needs, and no other waits.
        """
        if not tables.garbage:
            self._at = self._since = None
            failures = sets.sweep()
            if sets.to_sweep:
                self._at = self._clock() + DELAY
            return failures
        now = self._clock()
        self._since = self._since or now
        self._at = moment(now, self._since, served=served)
        return {}


def moment(now: float, since: float, *, served: bool) -> float:
    """When rules go that are not desired since `since`, if nothing comes after `now`. Pure."""
    if served and now >= since + LATER:
        return now
    return min(now + DELAY, since + LIMIT)
