"""An aggregator that runs in the test's own loop, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from flows.place import Place
from flows.server.process import Process
from flows.server.settings import Settings
from lab.certificates import Certificates
from tests.support.ports import free_ports

NOW = 1_800_000_000


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Running:
    """The process, its clock, and where it is."""

    def __init__(self, process: Process, clock: Clock, place: Place) -> None:
        self.process, self.clock, self.place = process, clock, place

    async def pass_time(self, seconds: int) -> None:
        """Let time pass, as the process's own tick notices it."""
        self.clock.now += seconds
        await self.process.beat()


@asynccontextmanager
async def aggregator(
    settings: Settings | None = None, certificates: Certificates | None = None
) -> AsyncIterator[Running]:
    """Start one on a free port of 127.0.0.1; with TLS where there are certificates."""
    clock = Clock()
    if settings is None:
        # One that is started again on its port finds it free: no connection out is given it.
        settings = Settings(port=free_ports(1)[0], health=False)
    process = Process(settings, host="127.0.0.1", clock=clock)
    await process.start()
    place = Place(f"127.0.0.1:{process.port}")
    if certificates is not None:
        place = Place(place.address, *map(str, client_files(certificates)))
    try:
        yield Running(process, clock, place)
    finally:
        await process.stop()


def client_files(certificates: Certificates) -> tuple[Path, Path, Path]:
    """Authority, certificate and key of the client."""
    return certificates.ca, certificates.client_cert, certificates.client_key
