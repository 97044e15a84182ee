"""Leases; the limits of etcd: operations and sizes; what its failures mean."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from libcalico.datastore.capabilities import require_room
from libcalico.datastore.etcd import failures
from libcalico.datastore.interface import (
    ABSENT,
    Check,
    CommitConflict,
    Compacted,
    Delete,
    Put,
    Selection,
)
from libcalico.errors import (
    DatastoreError,
    DatastoreFull,
    DatastoreUnavailable,
    LoginFailed,
    ValueTooLarge,
)
from libcalico.model import Handle, HandleKey, Metadata, Node
from libcalico.model.keys import FelixStatusKey, ResourceKey
from libcalico.model.resources.status import FelixStatus
from tests.support.etcd import SMALL_QUOTA, Etcd
from tests.support.patience import HANG

STATUS = "/calico/felix/v2/no-region/host/node1/status"
ALIVE = FelixStatus(time="2026-11-21T10:00:00Z", uptime=12.3, first_update=True)
KEY = ResourceKey("Node", "n1")


@pytest.mark.asyncio
async def test_a_put_with_a_ttl_ends_with_its_lease(etcd: Etcd) -> None:
    key = FelixStatusKey("node1")
    async with etcd.connect() as store:
        raw = b'{"time":"2026-11-21T10:00:00Z","uptime":12.3,"first_update":true}'
        stream = store.watch([Selection("FelixStatus")], etcd.revision())
        await anext(stream)
        await store.commit([Put(key, ALIVE, ttl=3), Put(FelixStatusKey("node1", last=True), ALIVE)])
        told = list(await asyncio.wait_for(anext(stream), HANG))
        while len(told) < 3:  # a watcher that stood still for three seconds hears all at once
            told += await asyncio.wait_for(anext(stream), HANG)
        assert [event.entry and event.entry.raw for event in told] == [raw, raw, None]
        assert told[-1].key == key
        assert etcd.keys() == [STATUS.replace("status", "last_reported_status")]


@pytest.mark.asyncio
async def test_each_write_has_a_lease_of_its_own_and_none_is_left(etcd: Etcd) -> None:
    key = FelixStatusKey("node1")

    def leases() -> set[str]:
        """The first line counts them; those of other tests go when they end."""
        return set(etcd.ctl("lease", "list").decode().split("\n")[1:])

    async with etcd.connect() as store:
        before = leases()
        revision = await store.commit([Put(key, ALIVE, ABSENT, ttl=600)])
        (made,) = leases() - before
        with pytest.raises(CommitConflict):
            await store.commit([Put(key, ALIVE, ABSENT, ttl=600)])
        assert leases() - before == {made}
        # Written without one: for ever.
        await store.commit([Put(key, ALIVE, revision)])
    assert b"lease" not in etcd.ctl("get", STATUS, "-w", "json")


@pytest.mark.asyncio
@pytest.mark.promise("F-111")
async def test_a_transaction_at_the_limit_of_operations(etcd: Etcd) -> None:
    keys = [HandleKey(f"h{number:03}") for number in range(128)]
    async with etcd.connect() as store:
        revision = await store.commit([Put(key, Handle({}), ABSENT) for key in keys])
        # Guards, and the reads that a conflict needs, are as many as the changes.
        with pytest.raises(CommitConflict) as conflict:
            await store.commit([Put(key, Handle({}), ABSENT) for key in keys])
        assert len(conflict.value.current) == 128
        checks = [Check(key, revision) for key in keys]
        await store.commit([*checks[:64], *[Delete(key, revision) for key in keys[64:]]])
        assert len((await store.list(Selection("Handle"))).entries) == 64
        assert len(await store.get_many(keys)) == 128
        with pytest.raises(DatastoreError, match=r"129 changes.*128 of each"):
            await store.commit([Put(HandleKey(f"x{n}"), Handle({})) for n in range(129)])
    assert len(etcd.keys()) == 64


@pytest.mark.asyncio
@pytest.mark.parametrize("megabytes", [1.6, 3.0], ids=["etcd's limit", "gRPC's limit"])
async def test_a_value_that_is_too_large_is_named(etcd: Etcd, megabytes: float) -> None:
    big = Handle({"x" * int(megabytes * 2**20): 1})
    async with etcd.connect() as store:
        with pytest.raises(ValueTooLarge) as problem:
            await store.commit([Put(HandleKey("small"), Handle({})), Put(HandleKey("big"), big)])
        assert "Handle(big) is too large" in str(problem.value)
        assert "1.5 MiB" in str(problem.value)
        assert "--max-request-bytes" in str(problem.value)
        assert etcd.keys() == []
        fits = Handle({"x" * (2**20): 1})
        await store.commit([Put(HandleKey("big"), fits)])
        (entry,) = (await store.list(Selection("Handle"))).entries
        assert entry.value == fits


@pytest.mark.asyncio
async def test_a_full_etcd_says_so(private_etcd: Etcd) -> None:
    private_etcd.restart_with("--quota-backend-bytes=1000000")
    async with private_etcd.connect() as store:

        async def fill() -> None:
            for number in range(1000):
                await store.commit([Put(HandleKey(f"h{number}"), Handle({"x" * 100_000: 1}))])
                # etcd counts what it has flushed, every 100 ms.
                await asyncio.sleep(0.02)

        with pytest.raises(DatastoreError, match=r"etcd is full.*alarm disarm"):
            await fill()


@pytest.mark.asyncio
async def test_room_is_looked_for_without_a_write(private_etcd: Etcd) -> None:
    private_etcd.restart_with(SMALL_QUOTA)
    async with private_etcd.connect() as store:
        await store.commit([Put(KEY, Node(metadata=Metadata(name="n1")))])
        for key in (KEY, ResourceKey("Node", "none")):
            before = private_etcd.revision()
            await require_room(store, key)
            assert private_etcd.revision() == before
        private_etcd.fill()
        with pytest.raises(DatastoreFull, match="alarm disarm"):
            await require_room(store, KEY)
        private_etcd.make_room()
        await require_room(store, KEY)


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, empty, details)


@pytest.mark.parametrize(
    ("code", "details", "error", "not_applied"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", DatastoreUnavailable, True),
        ("UNKNOWN", "context deadline exceeded", DatastoreUnavailable, False),
        ("UNAVAILABLE", "etcdserver: leader changed", DatastoreUnavailable, False),
        ("UNAVAILABLE", "Socket closed", DatastoreUnavailable, False),
        ("DEADLINE_EXCEEDED", "", DatastoreUnavailable, False),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", DatastoreUnavailable, True),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", LoginFailed, False),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", LoginFailed, False),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user", LoginFailed, False),
        (
            "OUT_OF_RANGE",
            "etcdserver: mvcc: required revision has been compacted",
            Compacted,
            False,
        ),
        ("UNKNOWN", "panic", DatastoreError, False),
    ],
)
def test_what_etcd_says_and_what_it_means(
    code: str, details: str, error: type[Exception], not_applied: bool
) -> None:
    problem = failure(getattr(grpc.StatusCode, code), details)
    assert type(failures.error_of(problem, "u")) is error
    assert failures.not_applied(problem) == not_applied
    assert failures.gone(problem) == (error is DatastoreUnavailable)
