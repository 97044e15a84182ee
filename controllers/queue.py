"""A queue of names to look at: each once, never by two workers, and later after a failure.

What is told again while it waits costs nothing; what is told again while it is looked at is
looked at once more. A name that failed waits longer each time, with jitter, so that a
datastore that is away is asked seldom; another name does not wait for it.

Invariants (tests/controllers/test_queue.py):
  QUE-1  What was added after a worker began with it is given out again.
  QUE-2  No name is with two workers at once.
  QUE-3  A failure delays its own name only, and never loses it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Generic, TypeVar

from libcalico.process.backoff import Backoff

K = TypeVar("K", bound=Hashable)
FIRST, LONGEST = 0.05, 30.0
"""Seconds before a name is tried again: after its first failure, and at most."""


class WorkQueue(Generic[K]):
    """Names that wait. Of one event loop."""

    def __init__(self, first: float = FIRST, longest: float = LONGEST) -> None:
        self._first, self._longest = first, longest
        self._waiting: OrderedDict[K, None] = OrderedDict()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._backoffs: dict[K, Backoff] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._working) + len(self._later)

    @property
    def failing(self) -> int:
        """How many names failed when they were last looked at."""
        return len(self._backoffs)

    def add(self, name: K) -> None:
        """Have it looked at, now if it was to be tried later."""
        if name in self._working:
            self._again.add(name)
            return
        if (timer := self._later.pop(name, None)) is not None:
            timer.cancel()
        self._waiting[name] = None
        self._wake.set()

    async def get(self) -> K:
        """The next name; `done` must follow."""
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()
        name, _ = self._waiting.popitem(last=False)
        self._working.add(name)
        return name

    def done(self, name: K, failed: bool = False) -> None:
        """A worker is finished with it; what `failed` comes again by itself."""
        self._working.discard(name)
        again = name in self._again
        self._again.discard(name)
        if not failed:
            self._backoffs.pop(name, None)
            if again:
                self.add(name)
            return
        # News about a name that fails wait as long as the name: the cause may be the store's.
        backoff = self._backoffs.setdefault(name, Backoff(self._first, self._longest, jitter=0.5))
        loop = asyncio.get_running_loop()
        self._later[name] = loop.call_later(backoff.next(), self._due, name)

    def _due(self, name: K) -> None:
        self._later.pop(name, None)
        self.add(name)

    def close(self) -> None:
        """Forget everything that waits."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._waiting.clear()

    async def serve(
        self,
        act: Callable[[K], Awaitable[bool]],
        *beside: Coroutine[None, None, None],
        workers: int = 1,
        after: asyncio.Event | None = None,
    ) -> None:
        """`work` by several at once, none before `after`, and what tells of names beside them.

        Runs until cancelled or until one of them fails; the queue is closed then.
        """

        async def worker() -> None:
            if after is not None:
                await after.wait()
            await self.work(act)

        try:
            async with asyncio.TaskGroup() as group:
                for side in beside:
                    group.create_task(side)
                for _ in range(workers):
                    group.create_task(worker())
        finally:
            self.close()

    async def work(self, act: Callable[[K], Awaitable[bool]]) -> None:
        """Look at names until cancelled; `act` says whether it could do what was needed."""
        while True:
            name = await self.get()
            failed = True
            try:
                failed = not await act(name)
            finally:
                self.done(name, failed)
