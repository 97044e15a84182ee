"""The two HTTP servers: health for kubelet (9099), metrics for Prometheus (9091).

Both follow the parameters live. Where a port is taken, the log says so once, and the server tries
again until it is free. A taken port never stops the agent, nor does one server hold up the other.
Tested in tests/felix/agent/test_servers.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from felix.config.parameters import Config
from libcalico.process import tasks
from libcalico.process.backoff import Backoff
from libcalico.process.health import ANYWHERE, HealthServer, Reporter

Place = tuple[str, int]
FIRST_RETRY, LAST_RETRY = 0.5, 15.0

log = logging.getLogger(__name__)


class Servers:
    """The health and the metrics server, started and stopped as the parameters say.

    `page` returns the page of metrics.
    """

    def __init__(self, reporters: list[Reporter], page: Callable[[], bytes]) -> None:
        self._reporters, self._page = reporters, page
        self._running: dict[str, tuple[Place, asyncio.Task[None]]] = {}
        self._listening: dict[str, bool] = {}

    async def apply(self, config: Config) -> None:
        """Start and stop servers as the parameters say; returns after the first try to listen."""
        health = (config.health_host, config.health_port) if config.health_enabled else None
        metrics = (
            (config.prometheus_metrics_host or ANYWHERE, config.prometheus_metrics_port)
            if config.prometheus_metrics_enabled
            else None
        )
        await self._place("health", health, False)
        await self._place("metrics", metrics, self._page)

    def waiting(self) -> list[str]:
        """The servers that cannot listen yet, each with its address."""
        return [
            f"the {name} server cannot listen on {place[0]}:{place[1]} yet"
            for name, (place, _) in self._running.items()
            if not self._listening.get(name)
        ]

    async def _place(
        self, name: str, place: Place | None, metrics: bool | Callable[[], bytes]
    ) -> None:
        running = self._running.get(name)
        if running is not None and running[0] == place:
            return
        if running is not None:
            await self._end(name)
        if place is None:
            return
        server = HealthServer(*place, self._reporters, metrics=metrics)
        tried = asyncio.Event()
        task = tasks.start(self._serve(name, place, server, tried), f"the {name} server")
        self._running[name] = (place, task)
        await tried.wait()

    async def _serve(
        self, name: str, place: Place, server: HealthServer, tried: asyncio.Event
    ) -> None:
        backoff, logged = Backoff(FIRST_RETRY, LAST_RETRY), False
        self._listening[name] = False
        try:
            while True:
                try:
                    await server.start()
                    break
                except OSError as error:
                    if not logged:
                        log.error("the %s server cannot listen on %s:%d: %s", name, *place, error)
                    logged = True
                tried.set()
                await backoff.wait()
            if logged:
                log.info("the %s server listens on %s:%d now", name, *place)
            self._listening[name] = True
            tried.set()
            await asyncio.Event().wait()
        finally:
            tried.set()
            await server.stop()

    async def _end(self, name: str) -> None:
        _, task = self._running.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def stop(self) -> None:
        """Stop both servers."""
        for name in list(self._running):
            await self._end(name)
