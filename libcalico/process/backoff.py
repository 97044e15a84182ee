"""Capped, jittered exponential back-off: the waiting of every owner that retries.

And the pause before a list is read again, so that the nodes of a cluster do not all read it at once
when a store comes back that has forgotten where they were.
Tested in tests/libcalico/test_process.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

SPREAD, SPREAD_MOST = 0.1, 30.0
"""Seconds for each thousand objects over which readings of a list are spread, and at most."""


def spread(objects: int, random_unit: Callable[[], float] = random.random) -> float:
    """Seconds, by lot, before a list of so many objects is read once more.

    Only what was read before waits: a process that starts reads at once.
    """
    return random_unit() * min(SPREAD_MOST, SPREAD * objects / 1000)


class Backoff:
    """Delays in seconds: `initial`, doubled each time up to `maximum`, each +-`jitter`.

    `random_unit` gives numbers in [0, 1); tests pass their own.
    """

    def __init__(
        self,
        initial: float = 0.1,
        maximum: float = 10.0,
        factor: float = 2.0,
        jitter: float = 0.2,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self.initial, self.maximum, self.factor, self.jitter = initial, maximum, factor, jitter
        self._random = random_unit
        self._next = initial

    def next(self) -> float:
        """The delay to wait now, in seconds; the next one is longer."""
        delay = self._next
        self._next = min(self.maximum, delay * self.factor)
        return delay * (1 + self.jitter * (2 * self._random() - 1))

    def reset(self) -> None:
        """Begin with the initial delay again, after a success."""
        self._next = self.initial

    async def wait(self) -> None:
        """Sleep for `next()`."""
        await asyncio.sleep(self.next())
