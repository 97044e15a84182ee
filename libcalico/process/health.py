"""Liveness, readiness and metrics of one process, over HTTP on localhost.

A `Reporter` is one owner of work inside the process. It is alive while its heartbeat is
younger than its timeout, ready when it says so. The process is alive (ready) when all of
its reporters are. The server speaks just enough HTTP/1.1 for kubelet, curl and
Prometheus; one request a connection.

Tested in tests/libcalico/test_health.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from libcalico.process import counters, prometheus_text
from libcalico.process.backoff import Backoff

log = logging.getLogger(__name__)

REQUEST_TIMEOUT = 5.0
MAX_REQUEST = 8192
ANYWHERE = "*"
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Reporter:
    """The health of one part of a process.

    `timeout` in seconds: without a heartbeat for that long the part counts as dead; 0 means that it
    has no heartbeat. It is not ready until it reports so, unless `ready=True`. `note` is what it is
    doing now, where that is worth saying.
    """

    def __init__(
        self,
        name: str,
        timeout: float = 0.0,
        *,
        ready: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.timeout = name, timeout
        self.detail = self.note = ""
        self._clock = clock
        self._ready = ready
        self._last = clock()

    def alive(self) -> None:
        """Record a heartbeat."""
        self._last = self._clock()

    def ready(self, ready: bool, detail: str = "") -> None:
        """Report whether this part does its work, and why not. Counts as a heartbeat."""
        self.state(ready, detail)
        self.alive()

    def state(self, ready: bool, detail: str = "") -> None:
        """Set readiness from outside the part, without a heartbeat.

        `detail` says why it is not ready; it is ignored when it is ready again.
        """
        self._ready, self.detail = ready, "" if ready else detail

    @property
    def is_alive(self) -> bool:
        """Whether the last heartbeat is recent enough."""
        return self.timeout <= 0 or self._clock() - self._last <= self.timeout

    @property
    def is_ready(self) -> bool:
        """Whether the part reported that it is ready, and is alive."""
        return self._ready and self.is_alive


class HealthServer:
    """GET (or HEAD) `/liveness`, `/readiness`, `/metrics`.

    200 or 503 with a table of reporters; `/metrics` is the page of `counters.REGISTRY`, or what
    a function `metrics` gives. `host` ANYWHERE listens on every address of both families.
    `port` 0 takes a free one; after `start()` the attribute holds the real one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        reporters: Iterable[Reporter] = (),
        *,
        metrics: bool | Callable[[], bytes] = True,
    ) -> None:
        self.host, self.port = host, port
        self.reporters: list[Reporter] = list(reporters)
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    def add(self, reporter: Reporter) -> Reporter:
        """Add a reporter and return it."""
        self.reporters.append(reporter)
        return reporter

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken."""
        host = None if self.host == ANYWHERE else self.host or "localhost"
        self._server = await asyncio.start_server(self._serve, host, self.port, limit=MAX_REQUEST)
        self.port = self._server.sockets[0].getsockname()[1]

    async def run(self) -> None:
        """Listen until cancelled; a port that is taken is tried again, with back-off."""
        backoff = Backoff(1.0, 30.0)
        while True:
            try:
                await self.start()
                break
            except OSError as error:
                log.error("health cannot be served on port %d: %s", self.port, error)
                await backoff.wait()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def __aenter__(self) -> HealthServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        plain = "text/plain; charset=utf-8"
        if path == "/liveness":
            good = all(reporter.is_alive for reporter in self.reporters)
            return (200 if good else 503), plain, self._table()
        if path == "/readiness":
            good = all(reporter.is_ready for reporter in self.reporters)
            return (200 if good else 503), plain, self._table()
        if path == "/metrics" and self._metrics:
            made = self._metrics() if callable(self._metrics) else counters.REGISTRY.page()
            return 200, prometheus_text.CONTENT_TYPE, made
        return 404, plain, b"try /liveness, /readiness or /metrics\n"

    def _table(self) -> bytes:
        rows = [("COMPONENT", "TIMEOUT", "LIVENESS", "READINESS", "DETAIL")]
        for one in self.reporters:
            rows.append(
                (
                    one.name,
                    f"{one.timeout:g}s" if one.timeout > 0 else "-",
                    "alive" if one.is_alive else "timed out",
                    "ready" if one.is_ready else "not ready",
                    one.detail or one.note,
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return ("\n".join(lines) + "\n").encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                path = rest.partition(" ")[0].partition("?")[0]
                if method in ("GET", "HEAD"):
                    status, kind, body = self.answer(path)
                else:
                    status, kind, body = 405, "text/plain", b"GET or HEAD only\n"
                writer.write(
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + (b"" if method == "HEAD" else body)
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
