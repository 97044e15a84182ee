"""Streams of flows: each bucket goes to every stream once it is complete.

A client that reads too slowly is cut off when `BEHIND` buckets wait for it, so that it holds no
more memory than that; it may begin again from where it was.
Tested in tests/flows/test_client.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from flows.aggregate.buckets import Bucket
from flows.aggregate.store import Store
from flows.server.figures import Figures
from libcalico.errors import MuslinError

MOST = 100
"""Streams at once, as many as Goldmane serves."""
HOUR = 3600
BEHIND = 20
"""Buckets, of 15 seconds each."""


class TooMany(MuslinError):
    """No stream can be opened now, or one reads too slowly."""


class Streams:
    """The streams of a server. `tick` is called about once a second."""

    def __init__(self, store: Store, figures: Figures, clock: Callable[[], float]) -> None:
        self._store, self._figures, self._clock = store, figures, clock
        self._queues: set[asyncio.Queue[Bucket | None]] = set()
        self._until = store.streamed_until()

    def tick(self) -> list[Bucket]:
        """Hand out the buckets that are complete since the last time; they are returned, too."""
        self._store.roll(int(self._clock()))
        if self._store.streamed_until() < self._until - HOUR:
            # The clock was wrong, and was set back.
            self._until = self._store.streamed_until()
        complete = list(self._store.complete(self._until))
        self._until = max(self._until, self._store.streamed_until())
        for bucket in complete:
            for queue in list(self._queues):
                self._put(queue, bucket)
        return complete

    def _put(self, queue: asyncio.Queue[Bucket | None], bucket: Bucket) -> None:
        if queue.qsize() >= BEHIND:
            self._queues.discard(queue)
            queue.put_nowait(None)
        else:
            queue.put_nowait(bucket)

    @contextmanager
    def open(self, start: int) -> Iterator[AsyncIterator[Bucket]]:
        """A stream from a time on: 0 is now, negative counts back from now. Raises TooMany."""
        if len(self._queues) >= MOST:
            raise TooMany(f"{MOST} streams are open, and there may be no more: try again later")
        queue: asyncio.Queue[Bucket | None] = asyncio.Queue()
        before: list[Bucket] = []
        if start:
            self.tick()
            first = int(self._clock()) + start if start < 0 else start
            before = [one for one in self._store.complete(first) if one.start < self._until]
        self._queues.add(queue)
        self._figures.streams.set(len(self._queues))
        try:
            yield _read(queue, before)
        finally:
            self._queues.discard(queue)
            self._figures.streams.set(len(self._queues))


async def _read(queue: asyncio.Queue[Bucket | None], before: list[Bucket]) -> AsyncIterator[Bucket]:
    for bucket in before:
        yield bucket
    while (bucket := await queue.get()) is not None:  # type: ignore[assignment]
        yield bucket
    raise TooMany(f"this client is {BEHIND} intervals behind: filter, or read faster")
