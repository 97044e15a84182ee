"""Values that end with their process's life, in a store of thousands of nodes.

A value that is written again before each end of its time to live costs a write, and an event for
each watch, many times a minute for each node. Where the store has leases, the lease is kept
alive as often, which costs neither, and the value is written when it says something new, when the
lease has ended, and every five minutes.
Tested in tests/libcalico/test_leased_values.py; counted on a real etcd in
tests/felix/reports/test_writes_of_a_node.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.interface import Change, LeaseEnded

REWRITE = 300.0
"""Seconds after which a value is written again, at the latest."""
SPREAD = 0.2
"""The share of REWRITE by which a value may be early: nodes that started together part."""


def due_at(now: float, unit: float) -> float:
    """When a value that is written now is written again. `unit`: a number in [0, 1), by lot."""
    return now + REWRITE * (1 - SPREAD * unit)


class LeasedValues:
    """The values of one owner under one lease. Times are in seconds; tests have their own clock."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._random = clock, random_unit
        self._lease = self._ttl = 0
        self._content: object = None
        self._due = 0.0

    def rewrite(self) -> None:
        """Have the values written the next time: they are not what was written."""
        self._due = self._clock()

    def forget(self) -> None:
        """Begin anew, with another lease; the one of before ends by itself."""
        self._lease = 0

    async def give(
        self,
        store: Leasing,
        values: Callable[[int], Sequence[Change]],
        ttl: int,
        content: object,
    ) -> bool:
        """Keep the values for `ttl` seconds more; returns whether they were written.

        `values` makes the changes for a lease. `content` is what they say, without what is another
        each time: they are written at once when it is not what was written. Raises DatastoreError:
        then they are written the next time.
        """
        if self._lease and not (self._ttl == ttl and await store.keep_alive(self._lease)):
            self._lease = 0
        if self._lease and content == self._content and self._clock() < self._due:
            return False
        self.rewrite()  # unless all of what follows succeeds
        try:
            await store.commit(values(await self._leased(store, ttl)))
        except LeaseEnded:
            # Between two requests. Once more, and what fails now is the caller's.
            self._lease = 0
            await store.commit(values(await self._leased(store, ttl)))
        self._content, self._due = content, due_at(self._clock(), self._random())
        return True

    async def _leased(self, store: Leasing, ttl: int) -> int:
        if not self._lease:
            self._lease, self._ttl = await store.grant(ttl), ttl
        return self._lease
