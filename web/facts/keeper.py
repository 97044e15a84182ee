"""The newest facts, read again while a page is open, and the views made of them, each made once.

Reading takes at most a tenth of the time: a large cluster is read less often. Nothing is read while
no page is open. Tested in tests/web/test_keeper.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from libcalico.errors import MuslinError
from web.cleaning import cleaned
from web.facts.facts import Facts

T = TypeVar("T")
EVERY = 5.0
"""Seconds between two readings, at least."""
SHARE = 10.0
"""A reading is followed by so many times its own length without one."""
OPEN = 15.0
"""Seconds since a page last asked after which none counts as open."""
KEPT = 200
"""Views of one reading that are remembered."""


class Keeper:
    """Facts and the views made of them.

    `read` gets the facts before, blocks and runs in a thread; `enrich` adds what is asked for over
    the network.
    """

    def __init__(
        self,
        read: Callable[[Facts | None], Facts],
        enrich: Callable[[Facts], Awaitable[Facts]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._enrich, self._clock = read, enrich, clock
        self._asked = float("-inf")
        self._wake = asyncio.Event()
        self._views: dict[object, asyncio.Future[Any]] = {}
        self.facts: Facts | None = None
        self.version = 0
        self.error = ""
        self.waits = False

    async def run(self) -> None:
        """Read now, then whenever a page is open, until cancelled."""
        while True:
            await self.once()
            length = self.facts.seconds if self.facts is not None else 0.0
            await asyncio.sleep(max(EVERY, SHARE * length))
            if self._clock() - self._asked > OPEN:
                self._wake.clear()
                self.waits = True
                await self._wake.wait()
                self.waits = False

    async def once(self) -> None:
        """One reading; a failure is kept as `error` beside the facts that were there before."""
        try:
            facts = await asyncio.to_thread(self._read, self.facts)
            if self._enrich is not None:
                facts = await self._enrich(facts)
        except MuslinError as problem:
            self.error = str(cleaned(str(problem)))
        else:
            self.facts, self.error = facts, ""
            self._views.clear()
        self.version += 1

    def touch(self) -> None:
        """A page is open."""
        self._asked = self._clock()
        self._wake.set()

    async def view(self, key: object, make: Callable[[Facts], T]) -> T:
        """What `make` makes of the facts, in a thread; equal keys are made once a reading.

        There must be facts. Raises what `make` raises.
        """
        facts = self.facts
        assert facts is not None
        if key not in self._views:
            if len(self._views) >= KEPT:
                self._views.clear()
            self._views[key] = asyncio.ensure_future(asyncio.to_thread(make, facts))
        made: T = await asyncio.shield(self._views[key])
        return made
