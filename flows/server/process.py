"""The process: the gRPC server, its clock, health, metrics and exports.

Tested in tests/flows/test_server_process.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import grpc
import grpc.aio

from flows import goldmane_pb2_grpc, nodes_pb2_grpc
from flows.aggregate.store import Store
from flows.export.exports import Exports, opened
from flows.place import LARGEST
from flows.server.access import Access
from flows.server.collector import Collector
from flows.server.figures import Figures
from flows.server.nodes import NodesService
from flows.server.queries import Asked, FlowsService, StatisticsService
from flows.server.settings import Settings
from flows.server.streams import Streams
from flows.server.tls import Files
from libcalico.errors import MuslinError
from libcalico.process import tasks
from libcalico.process.health import ANYWHERE, HealthServer, Reporter

log = logging.getLogger(__name__)

TICK = 1.0
DEAD = 30.0
"""Seconds without a tick after which the process counts as dead."""
PARTING = 5.0
"""Seconds that calls have to end, when the process is told to."""
OPTIONS = (
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)


class Process:
    """One aggregator. After `start`, `port` is the one that is listened on."""

    def __init__(
        self, settings: Settings, *, host: str = "[::]", clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self._host, self._clock = settings, host, clock
        self.figures = Figures()
        self.store = Store(int(clock()), settings.most_rows)
        self.streams = Streams(self.store, self.figures, clock)
        self.exports: Exports = opened(settings.export_file, settings.export_bytes,
                                       settings.export_files, settings.otlp)  # fmt: skip
        self.files = Files(settings.certificate, settings.key, settings.ca)
        self.reporter = Reporter("calico-goldmane", timeout=DEAD)
        self.health = HealthServer(
            ANYWHERE, settings.health_port, [self.reporter], metrics=self.page
        )
        self._server = grpc.aio.server(options=OPTIONS)
        self.port = 0
        access = Access(settings.askers, settings.deliverers)
        asked = Asked(self.store, access, clock)
        collector = Collector(self.store, access, self.figures, clock)
        goldmane_pb2_grpc.add_FlowCollectorServicer_to_server(collector, self._server)
        flows = FlowsService(asked, access, self.streams)
        goldmane_pb2_grpc.add_FlowsServicer_to_server(flows, self._server)
        goldmane_pb2_grpc.add_StatisticsServicer_to_server(StatisticsService(asked), self._server)
        nodes = NodesService(access, self.figures, clock)
        nodes_pb2_grpc.add_NodesServicer_to_server(nodes, self._server)

    async def start(self) -> None:
        """Listen. Raises MuslinError where the port is taken or TLS does not work."""
        place = f"{self._host}:{self.settings.port}"
        try:
            if self.settings.encrypted:
                self.port = self._server.add_secure_port(place, self.files.credentials())
            else:
                log.warning("without TLS: every client that reaches %s may ask everything", place)
                self.port = self._server.add_insecure_port(place)
        except RuntimeError as error:
            raise MuslinError(f"cannot listen on {place}: {error}") from None
        await self._server.start()
        self.reporter.ready(True)
        log.info("flows are served on port %d", self.port)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self.start()
        works = [self._tick(), self.exports.run()]
        if self.settings.health:
            works.append(self.health.run())
        if self.settings.metrics_port:
            server = HealthServer(ANYWHERE, self.settings.metrics_port, metrics=self.page)
            works.append(server.run())
        try:
            async with tasks.beside(*works, name="the aggregator"):
                await self._server.wait_for_termination()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the calls and the exports; what waits to be exported is lost."""
        await self._server.stop(PARTING)
        self.exports.close()

    async def _tick(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(TICK)

    async def beat(self) -> None:
        """Once a second: time goes on, what is complete is streamed and exported."""
        self.exports.offer(self.streams.tick())
        for name, number in self.exports.lost().items():
            before = self.figures.unexported.value(name) or 0
            self.figures.unexported.inc(name, by=number - before)
        problems = [self.files.problem, *self.exports.problems.values()]
        self.reporter.note = "; ".join(filter(None, problems))
        self.reporter.alive()

    def page(self) -> bytes:
        """The page of metrics, as of now."""
        self.figures.state(self.store)
        return self.figures.registry.page()
