"""Health of felix: which of its loops are alive, and whether this node's dataplane is in sync.

Names and limits are Calico's (docs/reference/dataplane.md#health); the loop that writes the status
file has one more. A loop counts only once it runs: until the datastore can be reached, felix is
alive and not ready. Later nothing remote matters: a node whose rules and routes stand stays ready
while the speaker or the datastore is away.
Tested in tests/felix/reports/test_heartbeats.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from felix.config.parameters import Config
from libcalico.process import tasks
from libcalico.process.health import Reporter

T = TypeVar("T")
BEAT = 10.0
CALCULATION_LIMIT, STATUS_LIMIT = 30.0, 60.0


class Heartbeats:
    """The reporters. `started` says that the loops run, `configure` sets their limits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.startup = Reporter("FelixStartup", clock=clock)
        self.calculation = Reporter("CalculationGraph", clock=clock)
        self.main_loop = Reporter("InternalDataplaneMainLoop", clock=clock)
        self.status = Reporter("FelixStatus", ready=True, clock=clock)
        self._running = False

    @property
    def all(self) -> list[Reporter]:
        """Every reporter, in the order of the page."""
        return [self.startup, self.calculation, self.main_loop, self.status]

    def started(self, config: Config) -> None:
        """Expect heartbeats from now on: the loops run."""
        self._running = True
        for reporter in self.all:
            reporter.alive()
        self.configure(config)
        self.startup.ready(True)

    def configure(self, config: Config) -> None:
        """Set the limits that these parameters give."""
        if not self._running:
            return
        limits = {
            self.calculation.name: CALCULATION_LIMIT,
            self.main_loop.name: config.dataplane_watchdog_timeout,
            self.status.name: STATUS_LIMIT,
        } | dict(config.health_timeout_overrides)
        for reporter in self.all:
            reporter.timeout = limits.get(reporter.name, 0.0)


async def beating(
    source: AsyncIterator[T], beat: Callable[[], None], every: float = BEAT
) -> AsyncIterator[T]:
    """The items of `source`; `beat` is called with each, and while none comes."""
    waiting: asyncio.Task[T] | None = None
    try:
        while True:
            waiting = tasks.start(_next(source), "next batch")
            while not waiting.done():
                beat()
                await asyncio.wait({waiting}, timeout=every)
            try:
                item = waiting.result()
            except StopAsyncIteration:
                return
            beat()
            yield item
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _next(source: AsyncIterator[T]) -> T:
    # StopAsyncIteration may leave a task, StopIteration may not: anext raises the former.
    return await anext(source)
