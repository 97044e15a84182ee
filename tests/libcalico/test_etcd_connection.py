"""An answer that cannot be read is a lost one: reads ask another endpoint, writes are in doubt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd.failures import UNREADABLE
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Handle, HandleKey
from tests.support.etcd import CALL, Etcd, begin_with, first_asked
from tests.support.one_round import one_round as one_round
from tests.support.patience import HANG

pytestmark = pytest.mark.asyncio

KEY = HandleKey("garbled")
GARBLED = b"\xff\xff\xff"


class Garbler:
    """Answers every call of gRPC with bytes that are no message, and counts them by method."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.endpoint = ""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """What answers a call (`grpc.GenericRpcHandler`)."""
        method = call.method.rpartition("/")[2]
        self.calls[method] += 1
        if method == "Watch":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, _context: object) -> bytes:
        return GARBLED

    async def _stream(self, requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for _request in requests:
            yield GARBLED


@pytest_asyncio.fixture
async def garbler() -> AsyncIterator[Garbler]:
    handler = Garbler()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    handler.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield handler
    await server.stop(None)


@asynccontextmanager
async def connected(*endpoints: str, **more: str) -> AsyncIterator[Datastore]:
    config = DatastoreConfig(
        datastore_type="etcdv3",
        etcd_endpoints=",".join(endpoints),
        timeout=CALL,
        **more,  # type: ignore[arg-type]
    )
    store = await connect(config)
    try:
        for link in store._connection._all():  # type: ignore[attr-defined]
            await link.ready(HANG)
        yield store
    finally:
        await store.close()


READS: dict[str, Callable[[Datastore], Awaitable[object]]] = {
    "get": lambda store: store.get(KEY),
    "list": lambda store: store.list(Selection("Handle")),
    "compact": lambda store: store.compact(1),  # type: ignore[attr-defined]
    "grant": lambda store: store.commit([Put(KEY, Handle({}), ttl=60)]),
}


async def test_a_read_without_a_readable_answer_is_unavailable(
    garbler: Garbler, one_round: None
) -> None:
    async with connected(garbler.endpoint) as store:
        errors = await asyncio.gather(
            *(read(store) for read in READS.values()), return_exceptions=True
        )
    for name, error in zip(READS, errors, strict=True):
        assert isinstance(error, DatastoreUnavailable), name
        assert UNREADABLE in str(error), name


async def test_a_read_goes_on_with_another_endpoint(garbler: Garbler, etcd: Etcd) -> None:
    async with connected(garbler.endpoint, etcd.endpoint) as store:
        begin_with(store, garbler.endpoint)
        assert await store.get(KEY) is None
        assert garbler.calls["Txn"] == 1
        assert first_asked(store) == etcd.endpoint


async def test_a_write_without_a_readable_answer_is_in_doubt_and_sent_once(
    garbler: Garbler, etcd: Etcd
) -> None:
    async with connected(garbler.endpoint, etcd.endpoint) as store:
        begin_with(store, garbler.endpoint)
        with pytest.raises(DatastoreUnavailable, match="may or may not have happened") as problem:
            await store.commit([Put(KEY, Handle({}))])
        assert f"{garbler.endpoint} ({UNREADABLE})" in str(problem.value)
        assert garbler.calls["Txn"] == 1
        assert first_asked(store) == etcd.endpoint
        assert await store.get(KEY) is None


async def test_a_guarded_write_is_sent_again_and_in_doubt_where_none_confirms_it(
    garbler: Garbler, etcd: Etcd, one_round: None
) -> None:
    change = Put(KEY, Handle({}), ABSENT)
    async with connected(garbler.endpoint) as store:
        with pytest.raises(DatastoreUnavailable, match="may or may not have happened"):
            await store.commit([change])
    async with connected(garbler.endpoint, etcd.endpoint) as store:
        begin_with(store, garbler.endpoint)
        revision = await store.commit([change])
        entry = await store.get(KEY)
        assert entry is not None
        assert entry.revision == revision


async def test_a_login_without_a_readable_answer_is_unavailable(
    garbler: Garbler, one_round: None
) -> None:
    async with connected(garbler.endpoint, username="someone", password="word") as store:
        calls = store.get(KEY), store.commit([Put(KEY, Handle({}))])
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, DatastoreUnavailable)
            assert (
                f"no etcd endpoint answered within {CALL:g} s ({garbler.endpoint}: {UNREADABLE})"
                in (str(error))
            )
    assert list(garbler.calls) == ["Authenticate"]


async def test_a_watch_without_a_readable_answer_breaks_off(garbler: Garbler) -> None:
    async with connected(garbler.endpoint) as store:
        with pytest.raises(DatastoreUnavailable, match="broke off"):
            await anext(store.watch([Selection("Handle")], 1))
    assert garbler.calls["Watch"] == 2  # on a connection of our own, then through gRPC
