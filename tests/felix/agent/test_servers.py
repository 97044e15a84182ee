"""The health and metrics servers follow the parameters, and a stuck loop shows."""

from __future__ import annotations

import asyncio
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from felix.config.parameters import Config
from felix.servers import Servers
from libcalico.process.health import Reporter
from tests.support.etcd import free_ports
from tests.support.patience import HANG, wait_for


def page(port: int, path: str) -> int:
    """The status of a page; 0 when nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except URLError:
        return 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.promise("M-205")
@pytest.mark.asyncio
async def test_a_loop_without_heartbeat_is_not_alive() -> None:
    clock = Clock()
    loop = Reporter("InternalDataplaneMainLoop", 90, clock=clock)
    (port,) = free_ports(1)
    servers = Servers([loop], bytes)
    await servers.apply(Config(health_enabled=True, health_host="127.0.0.1", health_port=port))
    try:
        assert await asyncio.to_thread(page, port, "/liveness") == 200
        assert await asyncio.to_thread(page, port, "/readiness") == 503
        loop.ready(True)
        assert await asyncio.to_thread(page, port, "/readiness") == 200
        clock.now = 91
        assert await asyncio.to_thread(page, port, "/liveness") == 503
        assert await asyncio.to_thread(page, port, "/readiness") == 503
        loop.alive()
        assert await asyncio.to_thread(page, port, "/liveness") == 200
    finally:
        await servers.stop()


@pytest.mark.asyncio
async def test_servers_move_with_their_parameters() -> None:
    first, second = free_ports(2)
    servers = Servers([], bytes)
    on = Config(health_enabled=True, health_host="127.0.0.1", health_port=first)
    try:
        await servers.apply(on)
        assert await asyncio.to_thread(page, first, "/liveness") == 200
        assert await asyncio.to_thread(page, first, "/metrics") == 404
        moved = Config(
            prometheus_metrics_enabled=True,
            prometheus_metrics_host="127.0.0.1",
            prometheus_metrics_port=second,
        )
        await servers.apply(moved)
        assert await asyncio.to_thread(page, first, "/liveness") == 0
        assert await asyncio.to_thread(page, second, "/metrics") == 200
    finally:
        await servers.stop()
    assert await asyncio.to_thread(page, second, "/metrics") == 0


@pytest.mark.asyncio
async def test_a_port_that_is_taken_stops_nothing_and_is_taken_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("felix.servers.FIRST_RETRY", 0.05)
    (port,) = free_ports(1)
    config = Config(health_enabled=True, health_host="127.0.0.1", health_port=port)
    one, other = Servers([], bytes), Servers([], bytes)
    try:
        await one.apply(config)
        await other.apply(config)
        assert one.waiting() == []
        assert other.waiting() == [f"the health server cannot listen on 127.0.0.1:{port} yet"]
        assert await asyncio.to_thread(page, port, "/liveness") == 200
        await asyncio.sleep(0.3)
        await one.stop()
        await asyncio.to_thread(wait_for, lambda: not other.waiting())
        assert await asyncio.to_thread(page, port, "/liveness") == 200
        told = [r for r in caplog.records if "cannot listen" in r.getMessage()]
        assert len(told) == 1, "said once, though tried several times"
    finally:
        await one.stop()
        await other.stop()


@pytest.mark.asyncio
async def test_metrics_are_served_on_every_address_of_both_families() -> None:
    (port,) = free_ports(1)
    servers = Servers([], lambda: b"felix_host 1\n")
    config = Config(prometheus_metrics_enabled=True, prometheus_metrics_port=port)
    await servers.apply(config)
    try:
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"felix_host 1\n")
            writer.close()
    finally:
        await servers.stop()
