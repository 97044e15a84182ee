"""The watches' own connection, against a real etcd; then servers that stall, lie, flood or die."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd import http2, message_stream, stream
from libcalico.datastore.etcd.http2 import Peer
from libcalico.datastore.etcd.message_stream import Broken, Messages
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.stream import Streams
from libcalico.datastore.interface import ABSENT, Delete, Put, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Handle, HandleKey
from tests.libcalico.stream_parts import (
    LIMIT,
    SETTINGS,
    data,
    line_of,
    made,
    message,
    put,
    stood,
    told,
)
from tests.libcalico.test_tls import World, config, ctl_flags, flags
from tests.support.etcd import Etcd
from tests.support.etcd_users import logged_in
from tests.support.patience import HANG, until

# -- a real etcd -----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_watches_go_over_one_connection_of_their_own(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        revision = await store.commit([Put(HandleKey("stream.0"), Handle({}))])
        first = store.watch([Selection("Handle")], revision)
        second = store.watch([Selection("Handle"), Selection("Block")], revision)
        await stood(first)
        await stood(second)
        line = line_of(store)
        assert len(line.streams) == 2
        assert line.beginning == 0
        await store.commit([Put(HandleKey("stream.1"), Handle({}), ABSENT)])
        await store.commit([Delete(HandleKey("stream.1"))])
        for batches in (first, second):
            names = [name for name, _ in await told(batches, 2)]
            assert names == [str(HandleKey("stream.1"))] * 2
        # One that is no longer wanted leaves, the other goes on.
        await first.aclose()  # type: ignore[attr-defined]
        assert len(line.streams) == 1
        await store.commit([Put(HandleKey("stream.2"), Handle({}))])
        assert await told(second, 1) == [(str(HandleKey("stream.2")), True)]


@pytest.mark.asyncio
async def test_more_than_a_window_comes_while_nobody_reads_and_after(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STR-2: the server stops at the window, and goes on when it is granted anew."""
    monkeypatch.setattr(http2, "OUR_WINDOW", 1 << 17)
    monkeypatch.setattr(message_stream, "OUR_WINDOW", 1 << 17)
    long = {f"10.{a}.{b}.0/26": 1 for a in range(20) for b in range(100)}
    async with etcd.connect() as store:
        revision = await store.commit([Put(HandleKey("window.x"), Handle({}))])
        slow = store.watch([Selection("Handle")], revision)
        quick = store.watch([Selection("Handle")], revision)
        await stood(slow)
        await stood(quick)
        line = line_of(store)
        # What came before a watch stood comes in one message; what follows comes one by one.
        await store.commit([Put(HandleKey("window.y"), Handle({}))])
        for batches in (slow, quick):
            assert len(await told(batches, 1)) == 1
        for number in range(20):
            await store.commit([Put(HandleKey(f"window.{number:02}"), Handle(block=long))])
        names = [(str(HandleKey(f"window.{number:02}")), True) for number in range(20)]
        assert await told(quick, 20) == names
        waiting = line.streams[1]
        assert sum(map(len, waiting._came)) + len(waiting._cut._rest) <= 1 << 17
        assert await told(slow, 20) == names


@pytest.mark.asyncio
async def test_a_member_that_ends_breaks_the_watch_off(
    private_etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "CONNECT_SECONDS", HANG)
    async with private_etcd.connect() as store:
        batches = store.watch([Selection("Handle")], await store.commit([put("before")]))
        await stood(batches)
        assert line_of(store).ready
        private_etcd.stop()
        with pytest.raises(DatastoreUnavailable, match="broke off"):
            await asyncio.wait_for(anext(batches), LIMIT)
        assert not line_of(store).ready
        private_etcd.start()
        # A connection that was good is made anew at once.
        again = store.watch([Selection("Handle")], await store.commit([put("again")]))
        await stood(again)
        assert line_of(store).ready
        await store.commit([put("after")])
        assert await told(again, 1) == [(str(HandleKey("after")), True)]


@pytest.mark.asyncio
async def test_it_speaks_tls_and_holds_there_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    server = Etcd(tmp_path / "secured", flags(world.server, world.ca.cert), "https")
    server.ctl_flags = ctl_flags(world)
    server.start()
    try:
        store = await connect(config(server.endpoint, world))
        try:
            batches = store.watch([Selection("Handle")], await store.commit([put("one")]))
            await stood(batches)
            line = line_of(store)
            line.hold()
            assert line.paused
            await store.commit([put("two")])
            assert await told(batches, 1) == [(str(HandleKey("two")), True)]
        finally:
            await store.close()
    finally:
        server.stop()


@pytest.mark.asyncio
async def test_it_brings_the_login(tmp_path: Path) -> None:
    async with logged_in(tmp_path) as store:
        batches = store.watch([Selection("Handle")], await store.commit([put("one")]))
        await stood(batches)
        assert len(line_of(store).streams) == 1
        await store.commit([put("two")])
        assert await told(batches, 1) == [(str(HandleKey("two")), True)]


# -- what a server may say -------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), max_size=10), st.lists(st.integers(1, 30), max_size=60))
def test_messages_are_the_same_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    """STR-1."""
    whole, found, cut = b"".join(map(message, bodies)), [], Messages()
    for size in [*cuts, len(whole)]:
        found += cut.feed(whole[:size])
        whole = whole[size:]
    assert found == bodies


FRAMES = st.tuples(
    st.integers(0, 12), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=50)
)


@given(st.lists(FRAMES, max_size=10), st.lists(st.integers(1, 30), max_size=60))
def test_frames_are_the_same_however_they_are_cut(
    frames: list[http2.Frame], cuts: list[int]
) -> None:
    whole = b"".join(http2.frame(*one) for one in frames)
    found: list[http2.Frame] = []
    cutter = http2.Cutter()
    for size in [*cuts, len(whole)]:
        found += cutter.frames(whole[:size])
        whole = whole[size:]
    assert found == frames


def test_a_frame_that_nobody_was_allowed_is_not_waited_for() -> None:
    with pytest.raises(http2.FrameTooLong):
        list(http2.Cutter().frames(struct.pack(">HBBBI", 1 << 7, 0, 0, 0, 1)))


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        http2.frame,
        st.integers(0, 12),
        st.integers(0, 255),
        st.integers(0, 5),
        st.binary(max_size=30),
    ),
    st.builds(data, st.builds(message, st.binary(max_size=30)), st.sampled_from([1, 3, 5])),
)


@given(st.lists(PIECES, max_size=12), st.sampled_from([0.0, 0.001]))
def test_whatever_a_server_says_is_a_message_or_ends_the_stream(
    pieces: list[bytes], gather: float
) -> None:
    """STR-1: never an exception, never a stream that waits for what cannot come."""

    async def converse() -> None:
        line, wires = made(gather)
        opened = [line.open(b"x") for _ in range(2)]
        for one in opened:
            one.write(b"watch")
            one.stands()
        for piece in pieces:
            if not wires.aborted:
                line.data_received(piece)
        await asyncio.sleep(0)
        line.connection_lost(None)
        assert not line.ready
        assert line.beginning == 0
        for one in opened:
            while one._came:
                assert isinstance(await one.read(), bytes)
            with pytest.raises(Broken):
                await asyncio.wait_for(one.read(), LIMIT)

    asyncio.run(converse())


END = http2.END_STREAM | http2.END_HEADERS


@pytest.mark.parametrize(
    ("frames", "reason", "stays"),
    [
        (http2.frame(http2.RESET, 0, 1, b"\0\0\0\x08"), "reset", True),
        (http2.frame(http2.RESET, 0, 1, b"\0\0\0\x07"), "reset", True),
        (http2.frame(http2.HEADERS, END, 1, b"\x88"), "server ended it", True),
        (data(b"", flags=http2.END_STREAM), "server ended it", True),
        (data(b"\x01\0\0\0\x01x"), "compressed", True),
        (data(b"\0\xff\xff\xff\xff"), "without end", True),
        (data(b"\x01x", flags=http2.PADDED), "padding", False),
        (http2.frame(http2.GOAWAY, 0, 0, b"\0\0\0\x01\0\0\0\0"), "ends the connection", False),
        (http2.frame(http2.GOAWAY, 0, 0, b""), "cut short", False),
        (http2.frame(5, 0, 1, b""), "type 5", False),
    ],
)
@pytest.mark.asyncio
async def test_what_ends_one_stream_leaves_the_others(
    frames: bytes, reason: str, stays: bool
) -> None:
    line, wires = made()
    ended, other = line.open(b"x"), line.open(b"x")
    line.data_received(data(message(b"first")))
    line.data_received(frames)
    left = http2.frame(http2.RESET, 0, 1, http2.CANCEL.to_bytes(4, "big")) in wires.sent
    assert left is (reason in ("compressed", "without end")), "the server knows, or is told"
    assert await ended.read() == b"first", "what was complete is delivered"
    with pytest.raises(Broken, match=reason):
        await ended.read()
    assert line.ready is stays
    line.data_received(data(message(b"alive"), 3))
    if stays:
        assert await other.read() == b"alive"
    else:
        with pytest.raises(Broken, match=reason):
            await other.read()
    line.end("over")


@pytest.mark.asyncio
async def test_a_window_is_granted_when_the_reader_has_read() -> None:
    """STR-2: of the connection at once, of a stream when nothing of it waits."""
    line, wires = made()
    opened = line.open(b"x")
    wires.sent.clear()
    body = message(b"m" * 12_000)
    for _ in range(http2.OUR_WINDOW // 2 // len(body) + 1):
        line.data_received(data(body))
    granted = [frame[2] for frame in http2.Cutter().frames(bytes(wires.sent))]
    assert granted == [0], "the connection's alone"
    wires.sent.clear()
    while opened._came:
        assert await opened.read() == body[5:]
    [(kind, _, number, size)] = http2.Cutter().frames(bytes(wires.sent))
    assert (kind, number) == (http2.WINDOW, 1)
    assert int.from_bytes(size, "big") > http2.OUR_WINDOW // 2
    # One message larger than the window is granted as it comes.
    wires.sent.clear()
    line.data_received(data(http2.MESSAGE.pack(0, 4 * http2.OUR_WINDOW)))
    for _ in range(http2.OUR_WINDOW // 2 // 16_000 + 1):
        line.data_received(data(b"m" * 16_000))
    assert 1 in [frame[2] for frame in http2.Cutter().frames(bytes(wires.sent))]
    line.end("over")


@pytest.mark.asyncio
async def test_a_ping_is_answered_and_metadata_that_are_too_long_are_refused() -> None:
    line, wires = made()
    line.data_received(http2.frame(http2.PING, 0, 0, b"12345678"))
    assert bytes(wires.sent) == http2.frame(http2.PING, http2.ACK, 0, b"12345678")
    with pytest.raises(Broken, match="too long"):
        line.open(b"x" * 20_000)
    assert line.beginning == 0
    line.end("over")
    with pytest.raises(Broken, match="no connection"):
        line.open(b"x")


Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(conversation: Conversation) -> AsyncIterator[int]:
    """A server of our own; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await conversation(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.asyncio
async def test_a_peer_whose_kernel_lives_alone_is_given_up() -> None:
    """STR-3: its kernel acknowledges all that it never reads."""
    pinged = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)
        while came := await reader.read(65536):
            if stream._ALIVE in came:
                pinged.set()

    async with serving(mute) as port:
        streams = Streams(Peer("127.0.0.1", port, None, (0.2, 0.3)), b"/x")
        opened = await streams.open((), 0.0)
        with pytest.raises(Broken, match="does not answer"):
            await asyncio.wait_for(opened.read(), LIMIT)
        assert pinged.is_set()
        streams.close()


@pytest.mark.asyncio
async def test_a_peer_that_answers_its_pings_is_kept() -> None:
    pings = 0

    async def polite(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal pings
        writer.write(SETTINGS)
        while came := await reader.read(65536):
            if stream._ALIVE in came:
                pings += 1
                writer.write(http2.frame(http2.PING, http2.ACK, 0, stream._ALIVE))

    async with serving(polite) as port:
        streams = Streams(Peer("127.0.0.1", port, None, (0.05, HANG)), b"/x")
        opened = await streams.open((), 0.0)
        line = streams._line
        assert line is not None
        await until(lambda: 0 < line._pinged < line._heard)
        # The time in which it is to answer is over, and then it is asked again.
        assert line._look is not None
        line._look.cancel()
        line._look_after()
        await until(lambda: pings >= 2)
        assert line.ready
        # Without streams it is left alone, as etcd wants it.
        opened.cancel()
        line._look_after()
        before = pings
        await asyncio.sleep(0.3)
        assert pings - before <= 1
        streams.close()


@pytest.mark.asyncio
async def test_no_connection_costs_one_attempt_for_all_and_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(stream, "AGAIN_SECONDS", HANG)
    connections = 0

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()

    async with serving(silent) as port:
        streams = Streams(Peer("127.0.0.1", port), b"/x")
        opening = (streams.open((), 0.0) for _ in range(3))
        found = await asyncio.gather(*opening, return_exceptions=True)
        assert [str(one) for one in found] == ["no HTTP/2 within 0.2 s"] * 3
        with pytest.raises(Broken, match="no HTTP/2"):
            await streams.open((), 0.0)
        assert connections == 1
        streams._not_before = 0.0
        monkeypatch.setattr(http2, "CONNECT_SECONDS", HANG)
        trying = asyncio.create_task(streams.open((), 0.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        streams.close()
        with pytest.raises(Broken, match="closed"):
            await asyncio.wait_for(trying, LIMIT)


@pytest.mark.parametrize("unusual", ["refused", "stalled", "nonsense"])
@pytest.mark.asyncio
async def test_what_is_unusual_while_a_watch_begins_is_left_to_grpc(
    etcd: Etcd, unusual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, limit_at = list[asyncio.Timeout](), asyncio.timeout_at

    def noted(when: float | None) -> asyncio.Timeout:
        limits.append(limit_at(when))
        return limits[-1]

    monkeypatch.setattr(asyncio, "timeout_at", noted)

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS)
        cut = http2.Cutter()
        while came := await reader.read(65536):
            for kind, _, number, _ in cut.frames(came.removeprefix(http2.PREFACE)):
                if kind == http2.DATA and unusual == "stalled":
                    # Its half of the time is over, and gRPC's is long.
                    limits[-1].reschedule(0.0)
                if kind != http2.HEADERS:
                    continue
                if unusual == "refused":
                    writer.write(http2.frame(http2.HEADERS, END, number, b"\x88"))
                elif unusual == "nonsense":
                    writer.write(data(message(b"\xff\xff\xff"), number))

    async with serving(odd) as port:
        store = await connect(
            DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=etcd.endpoint, timeout=HANG)
        )
        try:
            revision = await store.commit([put("unusual.0")])
            assert isinstance(store, EtcdDatastore)
            assert store._connection._links
            streams = Streams(Peer("127.0.0.1", port), b"/x")
            store._connection._links[0].__dict__["streams"] = streams
            batches = store.watch([Selection("Handle")], revision)
            await asyncio.wait_for(stood(batches), LIMIT)
            assert streams._line is not None
            assert not streams._line.streams, "nothing is left open"
            assert streams._line.beginning == 0
            await store.commit([put("unusual.1")])
            assert await told(batches, 1) == [(str(HandleKey("unusual.1")), True)]
        finally:
            await store.close()
