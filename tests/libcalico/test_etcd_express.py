"""The short way of a guarded transaction, against a real etcd; then what it makes of nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd import connection, direct_call, http2
from libcalico.datastore.etcd.direct_call import DirectCall
from libcalico.datastore.etcd.http2 import Peer
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.etcd.unary import Unanswered
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Delete, Put
from libcalico.model import Handle, HandleKey
from tests.libcalico.test_tls import World, config, ctl_flags, flags
from tests.support.certificates import Authority
from tests.support.etcd import CALL, Etcd
from tests.support.etcd_users import end_logins, with_user
from tests.support.patience import HANG
from tests.support.proxy import Proxy


def line_of(store: Datastore) -> DirectCall:
    """The connection that frequent writes go over."""
    assert isinstance(store, EtcdDatastore)
    links = store._connection._links
    assert links
    assert links[0].express
    return links[0].express


async def warmed(store: Datastore, name: str = "warm") -> DirectCall:
    """After so many writes there is one."""
    until = time.monotonic() + HANG
    number = 0
    while number <= connection.FREQUENT or not line_of(store).ready:
        assert time.monotonic() < until
        number += 1
        await store.commit([Put(HandleKey(f"{name}.{number}"), Handle(block={}), ABSENT)])
        await asyncio.sleep(0.01)
    return line_of(store)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each answer of the short way had; none is late because the machine is busy."""
    monkeypatch.setattr(connection, "PATIENCE", HANG)
    answers: list[int] = []
    real: Callable[..., None] = direct_call._settle

    def settle(call: direct_call._Call, answer: bytes | Unanswered) -> None:
        answers.append(len(answer) if isinstance(answer, bytes) else -1)
        real(call, answer)

    monkeypatch.setattr(direct_call, "_settle", settle)
    return answers


@pytest.mark.asyncio
async def test_commits_go_the_short_way_and_mean_the_same(etcd: Etcd, spied: list[int]) -> None:
    async with etcd.connect() as store:
        await warmed(store)
        spied.clear()
        key = HandleKey("express.1")
        revision = await store.commit([Put(key, Handle(block={"10.0.0.0/26": 1}), ABSENT)])
        entry = await store.get(key)
        assert entry is not None
        assert entry.revision == revision
        with pytest.raises(CommitConflict) as told:
            await store.commit([Delete(key, revision - 1)])
        assert told.value.current == {key: entry}
        # Larger than the windows that a server grants at first, and several at a time.
        long = {f"10.{a}.{b}.0/26": 1 for a in range(40) for b in range(100)}
        await asyncio.gather(
            *(
                store.commit([Put(HandleKey(f"long.{n}"), Handle(block=long), ABSENT)])
                for n in range(6)
            )
        )
        found = await store.get_many([HandleKey(f"long.{n}") for n in range(6)])
        assert [entry.value.block for entry in found.values() if entry] == [long] * 6
        assert len(spied) == 8
        assert min(spied) > 0


@pytest.mark.asyncio
async def test_what_breaks_or_hangs_is_asked_again_through_grpc(
    etcd: Etcd, spied: list[int]
) -> None:
    """ETX-1, ETX-2."""
    proxy = await Proxy(etcd.port).start()
    behind = f"http://127.0.0.1:{proxy.port}"
    store = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=behind, timeout=CALL)
    )
    try:
        line = await warmed(store)
        spied.clear()
        came = proxy.hold(b"express.hung")
        hung = asyncio.create_task(
            store.commit([Put(HandleKey("express.hung"), Handle(block={}), ABSENT)])
        )
        await came.wait()
        await asyncio.sleep(0.2)
        assert not hung.done()
        proxy.cut()
        proxy.mend()
        assert await hung > 0
        assert spied == [-1]
        assert await store.get(HandleKey("express.hung")) is not None
        # It is made anew when it is wanted again.
        line._not_before = 0.0
        assert await warmed_again(store)
    finally:
        await store.close()
        await proxy.stop()


async def warmed_again(store: Datastore) -> bool:
    until = time.monotonic() + HANG
    while not line_of(store).ready and time.monotonic() < until:
        await store.get(HandleKey("warm.1"))
        await asyncio.sleep(0.02)
    return line_of(store).ready


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        http2.frame,
        st.integers(0, 12),
        st.integers(0, 255),
        st.integers(0, 5),
        st.binary(max_size=30),
    ),
)


class _Sink(asyncio.Transport):
    """Takes whatever is written."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def write(self, data: object) -> None:
        """Nowhere."""

    def abort(self) -> None:
        """Noted."""
        self.aborted = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        """None."""
        return default


@given(st.lists(PIECES, max_size=12))
def test_whatever_a_server_says_ends_a_call_or_leaves_it_waiting(pieces: list[bytes]) -> None:
    """ETX-1: never an exception, never an answer that is not a whole message."""

    async def converse() -> None:
        line, sink = direct_call._Line(), _Sink()
        line.connection_made(sink)
        line.data_received(http2.frame(4, 0, 0, b""))
        calls = [asyncio.ensure_future(line.call(b"x", b"y" * 9, 5.0)) for _ in range(2)]
        await asyncio.sleep(0)
        for piece in pieces:
            if not sink.aborted:
                line.data_received(piece)
        line.connection_lost(None)
        for found in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(found, (bytes, Unanswered))
        assert not line.ready

    asyncio.run(converse())


STATUS = b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f"


@pytest.mark.parametrize(
    ("frames", "sent", "login"),
    [
        (http2.frame(3, 0, 1, b"\0\0\0\x07"), False, False),
        (http2.frame(3, 0, 1, b"\0\0\0\x08"), True, False),
        (http2.frame(1, 5, 1, b"\x88\x10" + STATUS + b"\x0216"), False, True),
        (http2.frame(1, 5, 1, b"\x88\x10\x0bgrpc-status\x0216"), False, True),
        (http2.frame(1, 5, 1, b"\x88\x10" + STATUS + b"\x013"), False, True),
        (http2.frame(1, 5, 1, b"\x88\x10" + STATUS + b"\x017"), False, False),
        (http2.frame(1, 5, 1, b"\x88\x10" + STATUS + b"\x0214"), True, False),
        (http2.frame(1, 5, 1, b"\x88\x10" + STATUS + b"\x012"), True, False),
        (http2.frame(1, 1, 1, b"\x88\x10" + STATUS + b"\x0216"), True, False),
        (
            http2.frame(0, 0, 1, b"\0") + http2.frame(1, 5, 1, STATUS + b"\x0216"),
            True,
            False,
        ),
        (http2.frame(7, 0, 0, b"\0\0\0\0\0\0\0\0"), False, False),
        (http2.frame(7, 0, 0, b"\0\0\0\x01\0\0\0\0"), True, False),
    ],
    ids=[
        "refused stream", "cancelled", "unauthenticated", "plain", "argument", "permission",
        "unavailable", "unknown", "more headers", "after data", "beyond the last", "the last",
    ],
)  # fmt: skip
def test_what_was_not_begun_is_no_doubt(frames: bytes, sent: bool, login: bool) -> None:
    """ETX-1: RFC 9113 sections 6.8 and 8.7; etcd's refusals by their code."""

    async def ask() -> Unanswered:
        line = direct_call._Line()
        line.connection_made(_Sink())
        line.data_received(http2.frame(4, 0, 0, b""))
        call = asyncio.ensure_future(line.call(b"x", b"y", 5.0))
        await asyncio.sleep(0)
        line.data_received(frames)
        with pytest.raises(Unanswered) as told:
            await call
        line.end("over")
        return told.value

    found = asyncio.run(ask())
    assert (found.sent, found.login) == (sent, login)


@pytest.mark.asyncio
async def test_a_server_that_says_nothing_costs_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ETX-3."""
    monkeypatch.setattr(http2, "CONNECT_SECONDS", 0.2)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    line = DirectCall(Peer("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        assert not line.ready
        async with asyncio.timeout(HANG):
            await ended.wait()
        assert not line.ready
        assert "no HTTP/2 within 0.2 s" in line.take_problem()
        assert not line.take_problem()
    finally:
        line.close()
        server.close()


@pytest.mark.asyncio
async def test_a_dead_peer_is_found_out_as_the_configuration_says() -> None:
    """ETX-3, and that a replaced connection is ended."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http2.frame(4, 0, 0, b""))
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    line = DirectCall(Peer("127.0.0.1", server.sockets[0].getsockname()[1], None, (17.0, 8.5)))
    try:
        async with asyncio.timeout(HANG):
            while not line.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert line._line is not None
        first = line._line
        assert first._transport is not None
        plain, tcp = first._transport.get_extra_info("socket"), socket.IPPROTO_TCP
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [plain.getsockopt(tcp, name) for name in names] == [17, 3, 3]
        assert plain.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 8500
        first.ready, line._not_before = False, 0.0
        async with asyncio.timeout(HANG):
            while not line.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await ended.wait()
        assert line._line is not first
    finally:
        line.close()
        server.close()


@pytest.mark.asyncio
async def test_a_name_that_is_none_is_a_connection_that_cannot_be_made() -> None:
    line = DirectCall(Peer("a" * 70 + ".example", 1))
    assert not line.ready
    async with asyncio.timeout(HANG):
        while not (problem := line.take_problem()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert problem
    line.close()


@pytest.mark.asyncio
async def test_an_answer_that_cannot_be_read_is_asked_for_again(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with etcd.connect() as store:
        line = await warmed(store)

        async def nonsense(*_: object) -> bytes:
            return b"\xff\xff\xff"

        monkeypatch.setattr(line, "call", nonsense)
        assert await store.commit([Put(HandleKey("unread"), Handle(block={}), ABSENT)]) > 0


@pytest.mark.asyncio
async def test_a_password_that_nobody_asks_for_does_not_bar_the_short_way(
    etcd: Etcd, spied: list[int]
) -> None:
    store = await connect(replace(etcd.config(), username="a", password="b"))
    try:
        await warmed(store)
        spied.clear()
        assert await store.commit([Put(HandleKey("open"), Handle(block={}), ABSENT)]) > 0
        assert spied
        assert spied[0] > 0
    finally:
        await store.close()


@pytest.mark.asyncio
async def test_a_token_that_ended_leaves_no_doubt(tmp_path: Path, spied: list[int]) -> None:
    """A conflict is told as one, and the login is renewed for the next write."""
    with with_user(tmp_path) as (server, config):
        store = await connect(config)
        try:
            await warmed(store)
            key = HandleKey("warm.1")
            spied.clear()
            end_logins(server)
            with pytest.raises(CommitConflict):
                await store.commit([Put(key, Handle(block={}), ABSENT)])
            assert spied == [-1]
            with pytest.raises(CommitConflict):
                await store.commit([Put(key, Handle(block={}), ABSENT)])
            assert len(spied) == 2
            assert spied[1] > 0, "with the new token"
        finally:
            await store.close()


def test_an_unanswered_call_says_whether_it_had_left() -> None:
    async def ask() -> None:
        line = DirectCall(Peer("127.0.0.1", 1))
        with pytest.raises(Unanswered) as told:
            await line.call(b"", (), 1.0)
        assert not told.value.sent
        line.close()

    asyncio.run(ask())


async def with_an_outdated_authority(
    server: Etcd, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The files are newer than what was read while gRPC's connection stands."""
    store = await connect(config(server.endpoint, world))
    try:
        assert await store.get(HandleKey("secure")) is not None
        assert isinstance(store, EtcdDatastore)
        assert store._connection._links
        link = store._connection._links[0]
        other = Authority(world.folder, "other-ca")
        assert link._material is not None
        link._material = replace(link._material, ca=other.cert.read_bytes())
        await warmed(store, "outdated")
        assert sum("frequent writes go through gRPC" in text for text in caplog.messages) == 1
    finally:
        await store.close()


@pytest.mark.asyncio
async def test_it_speaks_tls_with_the_certificates_of_the_connection(
    tmp_path: Path, spied: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    server = Etcd(tmp_path / "secured", flags(world.server, world.ca.cert), "https")
    server.ctl_flags = ctl_flags(world)
    server.start()
    try:
        store = await connect(config(server.endpoint, world))
        try:
            await warmed(store)
            spied.clear()
            assert await store.commit([Put(HandleKey("secure"), Handle(block={}), ABSENT)]) > 0
            assert spied[0] > 0
        finally:
            await store.close()
        await with_an_outdated_authority(server, world, caplog)
    finally:
        server.stop()
