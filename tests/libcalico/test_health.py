"""Health over a real socket, as kubelet and Prometheus ask."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest

from libcalico.process.counters import Counter
from libcalico.process.health import HealthServer, Reporter
from tests.support.patience import HANG, patient

pytestmark = pytest.mark.asyncio
HITS = Counter("libcalico_test_hits", "A counter of the tests.")


async def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_readiness_and_liveness() -> None:
    now = 0.0
    feed = Reporter("feed", 10, clock=lambda: now)
    plane = Reporter("plane", ready=True)
    async with HealthServer("127.0.0.1", 0, [feed, plane]) as server:
        assert (await ask(server, "/liveness"))[0] == 200
        status, table = await ask(server, "/readiness")
        assert status == 503
        assert "not ready" in table
        feed.ready(True, "in sync")
        assert (await ask(server, "/readiness?x=1"))[0] == 200
        now = 10.5
        status, table = await ask(server, "/liveness")
        assert status == 503
        assert "timed out" in table
        assert (await ask(server, "/readiness"))[0] == 503
        feed.alive()
        assert (await ask(server, "/liveness"))[0] == 200


async def test_what_is_ready_again_shows_no_old_failure() -> None:
    part = Reporter("datastore-snapshot")
    async with HealthServer("127.0.0.1", 0, [part]) as server:
        part.ready(False, "etcd does not answer")
        assert "etcd does not answer" in (await ask(server, "/readiness"))[1]
        part.ready(True, "etcd does not answer")
        part.note = "works"
        status, table = await ask(server, "/readiness")
    assert status == 200
    assert "etcd does not answer" not in table
    assert "works" in table


async def test_metrics_and_strangers() -> None:
    HITS.inc()
    async with HealthServer("127.0.0.1", 0) as server:
        status, body = await ask(server, "/metrics")
        assert status == 200
        assert "libcalico_test_hits_total" in body
        assert (await ask(server, "/"))[0] == 404
        assert (await ask(server, "/liveness", "POST"))[0] == 405
        assert await ask(server, "/liveness", "HEAD") == (200, "")


async def test_a_silent_or_babbling_client_harms_nobody() -> None:
    async with HealthServer("127.0.0.1", 0) as server:
        silent = await asyncio.open_connection("127.0.0.1", server.port)
        babbling = await asyncio.open_connection("127.0.0.1", server.port)
        babbling[1].write(b"x" * 20000)
        start = time.monotonic()
        assert (await ask(server, "/liveness"))[0] == 200
        assert time.monotonic() - start < HANG
        silent[1].close()
        babbling[1].close()


async def test_a_port_that_is_taken_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = HealthServer("127.0.0.1", other.getsockname()[1])
        running = asyncio.create_task(server.run())
        await asyncio.sleep(0.1)
        assert not running.done()
    try:
        async with asyncio.timeout(patient(5)):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    assert (await ask(server, "/liveness"))[0] == 200
                    break
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
