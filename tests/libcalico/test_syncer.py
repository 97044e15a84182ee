"""The syncer against a real etcd: continuity through restarts and compactions.

SYNC-1: the view equals the store; SYNC-2: nothing is emitted for what did not change;
SYNC-3: in_sync once complete, and it stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Batch, Compacted, Datastore, Delete, Put, Selection
from libcalico.datastore.syncer import SyncBatch, Syncer
from libcalico.errors import UnsupportedKind
from libcalico.model import Handle, HandleKey, Key, Metadata, Node, ResourceKey
from tests.support.etcd import CALL, Etcd
from tests.support.patience import patient, until
from tests.support.proxy import Proxy

pytestmark = pytest.mark.asyncio

SELECTIONS = [Selection("Node"), Selection("Handle")]


def handle(name: str) -> HandleKey:
    return HandleKey(name)


class View:
    """A consumer: what it was told, batch by batch."""

    def __init__(self, store: Datastore) -> None:
        self.syncer = Syncer(store, SELECTIONS, backoff_maximum=0.3)
        self.state: dict[Key, bytes] = {}
        self.updates: list[tuple[Key, bytes | None]] = []
        self.in_sync: list[bool] = []
        self.revisions: dict[Key, int] = {}

    async def run(self) -> None:
        async for batch in self.syncer.batches():
            self.take(batch)

    def take(self, batch: SyncBatch) -> None:
        keys = [update.key for update in batch.updates]
        assert len(keys) == len(set(keys))
        self.in_sync.append(batch.in_sync)
        for key, entry in ((u.key, u.entry) for u in batch.updates):
            self.updates.append((key, entry.raw if entry else None))
            if entry is None:
                assert key in self.state
                del self.state[key]
            else:
                assert entry.revision > self.revisions.get(key, 0)
                self.revisions[key] = entry.revision
                self.state[key] = entry.raw

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 15) -> None:
        deadline = time.monotonic() + patient(seconds)
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}; {self.syncer.error}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(store: Datastore) -> AsyncIterator[View]:
    view = View(store)
    task = asyncio.create_task(view.run())
    try:
        yield view
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def put(store: Datastore, name: str, count: int = 1) -> None:
    await store.commit([Put(handle(name), Handle({"c": count}))])


async def test_a_snapshot_then_changes(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put(store, "a")
        await store.commit([Put(ResourceKey("Node", "n1"), Node(metadata=Metadata(name="n1")))])
        async with following(store) as view:
            await view.until(lambda: view.syncer.in_sync and len(view.state) == 2, "snapshot")
            assert view.syncer.connected
            await put(store, "b")
            await store.commit([Delete(handle("a"))])
            await view.until(lambda: set(view.state) >= {handle("b")}, "the new one")
            await view.until(lambda: handle("a") not in view.state, "the deletion")
            assert view.in_sync == sorted(view.in_sync)


async def test_an_empty_store_is_in_sync_at_once(etcd: Etcd) -> None:
    async with etcd.connect() as store, following(store) as view:
        await view.until(lambda: view.in_sync[-1:] == [True], "in sync")
        assert view.updates == []


async def test_a_burst_on_one_key_costs_few_updates(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        syncer = Syncer(store, [Selection("Handle")])
        batches = syncer.batches()
        assert (await anext(batches)).in_sync
        for count in range(50):
            await put(store, "a", count)
        last = await store.get(handle("a"))
        assert last is not None
        await until(lambda: syncer._pending.get(handle("a"), (0, None))[0] == last.revision)
        batch = await anext(batches)
        assert [update.entry and update.entry.raw for update in batch.updates] == [last.raw]
        # Made and gone between two batches: nothing is said.
        await put(store, "b")
        await store.commit([Delete(handle("b"))])
        await put(store, "c")
        deadline = time.monotonic() + patient(5)
        while handle("c") not in syncer._pending:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert [update.key for update in (await anext(batches)).updates] == [handle("c")]
        await batches.aclose()  # type: ignore[attr-defined]


async def test_what_was_made_and_deleted_between_two_batches_is_told_of_on_request(
    etcd: Etcd,
) -> None:
    async with etcd.connect() as store:
        syncer = Syncer(store, [Selection("Handle")], fleeting=True)
        batches = syncer.batches()
        while not (await anext(batches)).in_sync:
            pass
        await put(store, "fleeting")
        await store.commit([Delete(handle("fleeting"))])
        await put(store, "stays")
        await until(lambda: handle("stays") in syncer._pending)
        told = {update.key: update.entry for update in (await anext(batches)).updates}
        assert told.keys() == {handle("fleeting"), handle("stays")}
        assert told[handle("fleeting")] is None
        await batches.aclose()  # type: ignore[attr-defined]


@pytest.mark.promise("M-126")
async def test_a_restart_of_etcd_loses_and_repeats_nothing(private_etcd: Etcd) -> None:
    async with private_etcd.connect() as store:
        for number in range(20):
            await put(store, f"h{number}")
        async with following(store) as view:
            await view.until(lambda: len(view.state) == 20 and view.syncer.in_sync, "snapshot")
            told = len(view.updates)
            private_etcd.kill()
            await view.until(lambda: not view.syncer.connected, "noticing")
            private_etcd.start()
            private_etcd.put("/calico/ipam/v2/handle/late", '{"block":{},"deleted":false}')
            private_etcd.delete("/calico/ipam/v2/handle/h3")
            await view.until(lambda: view.syncer.connected, "coming back")
            await view.until(lambda: handle("late") in view.state, "the new one")
            await view.until(lambda: handle("h3") not in view.state, "the deletion")
            assert len(view.updates) == told + 2
            assert all(view.in_sync[1:])


@pytest.mark.promise("M-126")
async def test_a_compaction_while_we_are_away_flaps_nothing(
    etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proxy = await Proxy(int(etcd.reached.rpartition(":")[2])).start()
    store = await connect(
        DatastoreConfig(
            datastore_type="etcdv3", etcd_endpoints=f"http://127.0.0.1:{proxy.port}", timeout=CALL
        )
    )
    try:
        for number in range(20):
            await put(store, f"h{number}")
        async with following(store) as view:
            await view.until(lambda: len(view.state) == 20 and view.syncer.in_sync, "snapshot")
            told = len(view.updates)
            assert view.syncer.relists == 0
            proxy.cut()
            await view.until(lambda: not view.syncer.connected, "noticing")
            etcd.put("/calico/ipam/v2/handle/late", '{"block":{},"deleted":false}')
            etcd.put("/calico/ipam/v2/handle/h4", '{"block":{"x":2},"deleted":false}')
            etcd.delete("/calico/ipam/v2/handle/h3")
            etcd.compact()
            assert len(view.updates) == told
            proxy.mend()
            await view.until(lambda: len(view.updates) == told + 3, "catching up")
            await view.until(lambda: view.syncer.connected, "coming back")
            assert view.state.keys() >= {handle("late"), handle("h4")}
            assert handle("h3") not in view.state
            assert b'"x":2' in view.state[handle("h4")]
            assert "compacted" in caplog.text
            assert view.syncer.relists >= 1
            await put(store, "after")
            await view.until(lambda: handle("after") in view.state, "watching on")
            assert len(view.updates) == told + 4
    finally:
        await store.close()
        await proxy.stop()


@pytest.mark.promise("M-126")
async def test_a_watch_from_a_compacted_revision_says_so(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        for count in range(5):
            await put(store, "a", count)
        revision = etcd.compact()
        stream = store.watch([Selection("Handle")], revision - 3)
        with pytest.raises(Compacted):
            async for _ in stream:
                pass


@pytest.mark.promise("M-126")
async def test_a_deletion_at_the_compacted_revision_is_not_lost(etcd: Etcd) -> None:
    """etcd before 3.5.16 forgets a deletion made by the very revision it compacts at."""
    async with etcd.connect() as store:
        await put(store, "gone")
        await put(store, "kept")
        start = (await store.list(Selection("Handle"))).revision
        await store.commit([Delete(handle("gone")), Put(handle("kept"), Handle({"c": 2}))])
        etcd.ctl("compact", "--physical=true", str(start + 1))
        stream = store.watch([Selection("Handle")], start)

        async def until_compacted_or_deleted() -> None:
            async for batch in stream:
                deleted = {event.key for event in batch if event.entry is None}
                assert deleted or not batch, "the deletion was skipped in silence"
                if deleted:
                    raise Compacted("not needed: this etcd kept the deletion")

        with pytest.raises(Compacted):
            await until_compacted_or_deleted()


async def test_a_watch_tells_nothing_of_the_revision_that_it_follows(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await store.commit([Put(handle(f"h{number}"), Handle()) for number in range(5)])
        start = (await store.list(Selection("Handle"))).revision
        stream = store.watch([Selection("Handle")], start)
        await put(store, "after")
        told = [batch async for batch in until_told(stream)]
        assert [event.key for batch in told for event in batch] == [handle("after")]
        assert told[-1].revision == start + 1


async def until_told(stream: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
    """Batches up to the first with an event in it."""
    async for batch in stream:
        yield batch
        if batch:
            return


async def test_a_store_set_up_anew_is_followed(private_etcd: Etcd) -> None:
    async with private_etcd.connect() as store:
        for number in range(20):
            await put(store, f"h{number}")
        async with following(store) as view:
            await view.until(lambda: len(view.state) == 20 and view.syncer.in_sync, "snapshot")
            view.revisions.clear()
            private_etcd.wipe()
            private_etcd.start()
            private_etcd.put("/calico/ipam/v2/handle/only", '{"block":{},"deleted":false}')
            await view.until(lambda: set(view.state) == {handle("only")}, "the new world")


async def test_a_watch_is_complete_and_in_order(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put(store, "a", 0)
        start = (await store.list(Selection("Handle"))).revision
        wanted = []
        for number in range(1, 200):
            changes = [Put(handle(f"h{number}"), Handle({"c": number})), Put(handle("a"), Handle())]
            wanted.append(await store.commit(changes))
        stream = store.watch([Selection("Handle"), Selection("Node")], start)
        seen: list[tuple[int, Key]] = []
        async for batch in stream:
            seen += [(event.revision, event.key) for event in batch]
            if len(seen) >= 2 * len(wanted):
                break
        await stream.aclose()  # type: ignore[attr-defined]
        assert [revision for revision, _ in seen] == [r for r in wanted for _ in range(2)]
        assert len(set(seen)) == len(seen)


async def test_a_value_that_cannot_be_read_is_a_deletion(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put(store, "a")
        async with following(store) as view:
            await view.until(lambda: handle("a") in view.state, "snapshot")
            etcd.put("/calico/ipam/v2/handle/a", "not json")
            await view.until(lambda: handle("a") not in view.state, "the deletion")
            await put(store, "a", 9)
            await view.until(lambda: handle("a") in view.state, "the repair")


async def test_a_selection_that_means_nothing_raises(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        syncer = Syncer(store, [Selection("Bogus")])
        with pytest.raises(UnsupportedKind):
            await anext(syncer.batches())


async def test_etcd_that_appears_late_is_found(private_etcd: Etcd) -> None:
    private_etcd.stop()
    async with private_etcd.connect(timeout=1) as store, following(store) as view:
        await view.until(lambda: view.syncer.error != "", "the first failure")
        assert not view.syncer.connected
        assert view.in_sync == []
        private_etcd.start()
        await view.until(lambda: view.syncer.in_sync and view.syncer.connected, "in sync")
        await view.until(lambda: view.in_sync[-1:] == [True], "the word of it")
