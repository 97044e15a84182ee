"""Whether a real proxy lives: asked by reads, for it ends connections that ping.

The proxy counts each ping within 5 minutes after another, and ends the connection at the fourth.
So intervals that are short here are no easier for it than those of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd import http2, link, stream
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.link import Link
from libcalico.datastore.etcd.proxy import way as ways
from libcalico.datastore.etcd.stream import Line
from libcalico.datastore.etcd.watch import watch
from libcalico.datastore.interface import Batch, Selection
from libcalico.errors import DatastoreUnavailable
from tests.libcalico.proxied import opened, see, through, way_of
from tests.libcalico.test_syncer import following
from tests.size import FULL
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import GrpcProxy, ProxiedEtcd
from tests.support.patience import HANG, until

HANDLE = [Selection("Handle")]
OFTEN = 0.1
QUESTIONS = 20
"""What a process asks within two minutes of silence."""


class Heard:
    """The lines that were made, the pings sent and the questions asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[Line] = []
        self.questions = self.pings = 0
        write, made, asked = Line.write, Line.connection_made, Connection.ask

        def writes(line: Line, frames: bytes) -> None:
            self.pings += frames[8 + 1 :] == stream._ALIVE
            write(line, frames)

        def begins(line: Line, transport: asyncio.BaseTransport) -> None:
            self.lines.append(line)
            made(line, transport)

        async def asks(connection: Connection, where: Link) -> None:
            self.questions += 1
            await asked(connection, where)

        def asks_directly(line: Line) -> None:
            self.questions += line.question is not None
            ask(line)

        ask = Line._ask
        monkeypatch.setattr(Line, "write", writes)
        monkeypatch.setattr(Line, "connection_made", begins)
        monkeypatch.setattr(Line, "_ask", asks_directly)
        monkeypatch.setattr(Connection, "ask", asks)

    def enough(self) -> bool:
        """Whether it has been asked for two minutes; the next question follows on an answer."""
        for line in [] if FULL else self.lines:
            if line._look is not None and line._pinged <= line._heard:
                line._look.cancel()
                line._look_after()
        return self.questions >= QUESTIONS


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedEtcd]:
    """An etcd whose endpoint, as `ETCD_ENDPOINTS` names it, is a proxy."""
    server = ProxiedEtcd(tmp_path / "etcd")
    server.start()
    yield server
    server.proxy.stop()
    server.stop()


@asynccontextmanager
async def watching(config: DatastoreConfig) -> AsyncIterator[AsyncGenerator[Batch, None]]:
    """A watch of a revision that is not yet; after the proxy has been found, if it was unknown."""
    connection = Connection(config)
    try:
        for final in (False, True):
            batches = watch(connection, HANDLE, 1)
            try:
                await anext(batches)
                break
            except DatastoreUnavailable:
                assert not final
        yield batches
        await batches.aclose()
    finally:
        await connection.close()


async def quiet(batches: AsyncGenerator[Batch, None], enough: Callable[[], bool]) -> None:
    """Nothing comes of a watch, and it does not end, until enough is asked."""
    reading = asyncio.ensure_future(anext(batches))
    await until(lambda: enough() or reading.done(), limit=3 * HANG)
    assert not reading.done(), reading.exception()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.asyncio
async def test_silence_breaks_no_watch_through_a_proxy(
    proxied: ProxiedEtcd, heard: Heard, known: bool
) -> None:
    """`known`: it is one of `ETCD_READ_ENDPOINTS`."""
    config = replace(proxied.config(), keepalive=6.0 if FULL else OFTEN)
    async with watching(config.through(proxied.reached) if known else config) as batches:
        await quiet(batches, heard.enough)
        assert len(heard.lines) == 1
        assert heard.pings == 0


@pytest.mark.asyncio
async def test_silence_breaks_no_watch_that_grpc_carries(
    proxied: ProxiedEtcd, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "streams", None)
    async with watching(replace(proxied.config(), keepalive=OFTEN)) as batches:
        await quiet(batches, heard.enough)
        assert heard.lines == []


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.asyncio
async def test_a_proxy_that_hangs_ends_its_watch(
    proxied: ProxiedEtcd, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    """Its kernel lives and acknowledges all."""
    if not direct:
        monkeypatch.setattr(Link, "streams", None)
    config = replace(proxied.config(), keepalive=OFTEN, keepalive_timeout=0.5)
    async with watching(config) as batches:
        proxied.proxy.pause()
        try:
            with pytest.raises(DatastoreUnavailable, match="broke off"):
                await asyncio.wait_for(anext(batches), HANG)
        finally:
            proxied.proxy.resume()


@pytest.mark.asyncio
async def test_a_refusal_is_a_sign_of_life(
    proxied: ProxiedEtcd, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a proxy whose etcd asks for a login."""
    monkeypatch.setattr(link, "RANGE", b"/etcdserverpb.KV/Unknown")
    config = replace(proxied.config(), keepalive=OFTEN)
    async with watching(config) as batches:
        await quiet(batches, heard.enough)
        assert len(heard.lines) == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.asyncio
async def test_events_come_after_silence_on_the_same_connection(
    private_etcd: Etcd, pair: list[GrpcProxy], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "ANSWER", HANG)
    config = replace(through(private_etcd, pair), keepalive=OFTEN)
    async with opened(config) as store, following(store) as view:
        await view.until(lambda: view.syncer.in_sync, "snapshot")
        await see(view, store, "a")
        await until(heard.enough, limit=3 * HANG)
        await see(view, store, "b")
        assert way_of(store).proxy == pair[0].endpoint
        assert heard.pings == 0


def test_what_is_waited_for_adds_up_to_less_than_ten_seconds() -> None:
    config = DatastoreConfig(etcd_endpoints="http://a:1").through("http://p:1")
    assert (config.keepalive, config.keepalive_timeout) == http2.KEEPALIVE
    assert sum(http2.KEEPALIVE) < 10.0
    assert link.PROXY_KEEPALIVE > 300.0
