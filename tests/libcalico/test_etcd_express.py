"""The short way of a guarded transaction, against a real etcd; then what it makes of nonsense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd import connection, express
from libcalico.datastore.etcd.express import Express, Unanswered
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Delete, Put
from libcalico.model import Handle, HandleKey
from tests.libcalico.test_tls import World, config, ctl_flags, flags
from tests.support.etcd import Etcd
from tests.support.proxy import Proxy


def line_of(store: Datastore) -> Express:
    """The connection that frequent writes go over."""
    assert isinstance(store, EtcdDatastore)
    links = store._connection._links
    assert links
    assert links[0].express
    return links[0].express


async def warmed(store: Datastore) -> Express:
    """After so many writes there is one."""
    until = time.monotonic() + 20
    number = 0
    while number <= connection.FREQUENT or not line_of(store).ready:
        assert time.monotonic() < until
        number += 1
        await store.commit([Put(HandleKey(f"warm.{number}"), Handle(block={}), ABSENT)])
        await asyncio.sleep(0.01)
    return line_of(store)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each answer of the short way had."""
    answers: list[int] = []
    real: Callable[..., None] = express._settle

    def settle(call: express._Call, answer: bytes | Unanswered) -> None:
        answers.append(len(answer) if isinstance(answer, bytes) else -1)
        real(call, answer)

    monkeypatch.setattr(express, "_settle", settle)
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
    """EXP-1, EXP-2."""
    proxy = await Proxy(etcd.port).start()
    behind = f"http://127.0.0.1:{proxy.port}"
    store = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=behind, timeout=10.0)
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
    until = time.monotonic() + 20
    while not line_of(store).ready and time.monotonic() < until:
        await store.get(HandleKey("warm.1"))
        await asyncio.sleep(0.02)
    return line_of(store).ready


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        express._frame,
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
    """EXP-1: never an exception, never an answer that is not a whole message."""

    async def converse() -> None:
        line, sink = express._Line(), _Sink()
        line.connection_made(sink)
        line.data_received(express._frame(4, 0, 0, b""))
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


def test_an_unanswered_call_says_whether_it_had_left() -> None:
    async def ask() -> None:
        line = Express("127.0.0.1", 1)
        with pytest.raises(Unanswered) as told:
            await line.call(b"", (), 1.0)
        assert not told.value.sent
        line.close()

    asyncio.run(ask())


@pytest.mark.asyncio
async def test_it_speaks_tls_with_the_certificates_of_the_connection(
    tmp_path: Path, spied: list[int]
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
    finally:
        server.stop()
