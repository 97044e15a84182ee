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

import grpc
import grpc.aio
import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd import http2, link, stream, watch_responses
from libcalico.datastore.etcd import watch as watches
from libcalico.datastore.etcd.connection import Connection
from libcalico.datastore.etcd.link import Link
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.proxy import way as ways
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.stream import Line
from libcalico.datastore.etcd.watch import watch
from libcalico.datastore.etcd.watch_responses import FarBehind
from libcalico.datastore.interface import Batch, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import HandleKey
from tests.libcalico.proxied import opened, see, through, way_of
from tests.libcalico.test_syncer import following, put
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
    config = replace(proxied.config(), keepalive=6.0 if FULL else OFTEN, keepalive_timeout=HANG)
    async with watching(config.through(proxied.reached) if known else config) as batches:
        await quiet(batches, heard.enough)
        assert len(heard.lines) == 1
        assert heard.pings == 0


@pytest.mark.asyncio
async def test_silence_breaks_no_watch_that_grpc_carries(
    proxied: ProxiedEtcd, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "streams", None)
    async with watching(
        replace(proxied.config(), keepalive=OFTEN, keepalive_timeout=HANG)
    ) as batches:
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
    config = replace(proxied.config(), keepalive=OFTEN, keepalive_timeout=HANG)
    async with watching(config) as batches:
        await quiet(batches, heard.enough)
        assert len(heard.lines) == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.asyncio
async def test_events_come_after_silence_on_the_same_connection(
    private_etcd: Etcd, pair: list[GrpcProxy], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "ANSWER", HANG)
    config = replace(through(private_etcd, pair), keepalive=OFTEN, keepalive_timeout=HANG)
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


@pytest.mark.asyncio
async def test_what_is_asked_while_a_proxy_is_found_goes_on(
    proxied: ProxiedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where gRPC carries the watches the connection is made anew, under all that is asked by it.

    gRPC ends the calls of a channel that is closed as if their tasks were cancelled.
    """
    monkeypatch.setattr(Link, "streams", None)
    async with opened(proxied.config()) as store:
        asking = [asyncio.create_task(ask_until_found(store)) for _ in range(5)]
        syncer = Syncer(store, [Selection(one) for one in ("Handle", "Block", "Node", "IPPool")])
        seen: set[object] = set()
        following = asyncio.create_task(follow(syncer, seen))
        try:
            await until(lambda: store._connection.proxied or following.done())
            await asyncio.gather(*asking)
            await put(store, "a")
            await until(lambda: following.done() or HandleKey("a") in seen)
            assert not following.done()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def ask_until_found(store: EtcdDatastore) -> None:
    while not store._connection.proxied:
        await store.get(HandleKey("b"))


async def follow(syncer: Syncer, seen: set[object]) -> None:
    async for batch in syncer.batches():
        seen.update(one.key for one in batch.updates)


@pytest.mark.asyncio
async def test_every_watch_that_finds_a_proxy_is_near(
    proxied: ProxiedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ETCD-6, also where several begin at once and one of them is the first to find it."""
    monkeypatch.setattr(watch_responses, "NEAR", 1)
    async with opened(proxied.config()) as store:
        for name in ("a", "b", "c"):
            await put(store, name)
        begun = (anext(watch(store._connection, HANDLE, 1)) for _ in range(3))
        said = await asyncio.gather(*begun, return_exceptions=True)
        assert [type(one) for one in said] == [FarBehind] * 3


@pytest.mark.asyncio
async def test_the_end_of_a_channel_cancels_no_watch(
    proxied: ProxiedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "streams", None)
    connection = Connection(proxied.config().through(proxied.reached))
    batches = watch(connection, HANDLE, 1)
    await anext(batches)
    reading = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(DatastoreUnavailable, match="broke off"):
        await reading


@pytest.mark.asyncio
async def test_what_a_watch_brought_counts_though_its_question_failed() -> None:
    """Its proxy lives, or died: the watch itself says which."""
    brought, told = asyncio.Event(), pb.WatchResponse(watch_id=7)

    class Call:
        async def read(self) -> pb.WatchResponse:
            await brought.wait()
            return told

    async def ask() -> None:
        brought.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata()
        )

    assert await watches._read_asking(Call(), ask, 0.001) is told
