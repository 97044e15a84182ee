"""The two HTTP servers: health for kubelet (9099), metrics for Prometheus (9091).

Both follow the parameters live. A port that is taken is said in the log and tried again at
the next change; it never stops the agent.
Tested in tests/felix/test_servers.py.
"""

from __future__ import annotations

import logging

from felix.config.parameters import Config
from libcalico.health import HealthServer, Reporter

Place = tuple[str, int]

log = logging.getLogger(__name__)


class Servers:
    """The health and the metrics server, started and stopped as the parameters say."""

    def __init__(self, reporters: list[Reporter]) -> None:
        self._reporters = reporters
        self._running: dict[str, tuple[Place, HealthServer]] = {}

    async def apply(self, config: Config) -> None:
        """Make the running servers those of the parameters."""
        health = (config.health_host, config.health_port) if config.health_enabled else None
        metrics = (
            (config.prometheus_metrics_host or "0.0.0.0", config.prometheus_metrics_port)
            if config.prometheus_metrics_enabled
            else None
        )
        await self._place("health", health, metrics=False)
        await self._place("metrics", metrics, metrics=True)

    async def _place(self, name: str, place: Place | None, *, metrics: bool) -> None:
        running = self._running.get(name)
        if running is not None and running[0] == place:
            return
        if running is not None:
            await running[1].stop()
            del self._running[name]
        if place is None:
            return
        server = HealthServer(*place, self._reporters, metrics=metrics)
        try:
            await server.start()
        except OSError as error:
            log.error("the %s server cannot listen on %s:%d: %s", name, *place, error)
            return
        self._running[name] = (place, server)

    async def stop(self) -> None:
        """Stop both."""
        for _, server in self._running.values():
            await server.stop()
        self._running.clear()
