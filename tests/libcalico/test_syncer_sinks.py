"""Families that go to a sink as rows, against a real etcd: bytes, changes, listings anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from libcalico.datastore.capabilities import rows_of
from libcalico.datastore.etcd import listing
from libcalico.datastore.interface import Datastore, Listing, Row, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.model import ResourceKey
from tests.support.etcd import Etcd
from tests.support.patience import until

pytestmark = pytest.mark.asyncio

ROOT = "/calico/resources/v3/projectcalico.org/"
SETS = f"{ROOT}networksets/"
SELECTIONS = [Selection("NetworkSet"), Selection("Node")]


class Rows:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.named: set[str] = set()
        self.listings = 0
        self.highest = 0

    def begin(self) -> None:
        self.named = set()
        self.highest = 0

    def apply_rows(self, rows: Sequence[Row]) -> None:
        for name, raw, revision in rows:
            assert revision > 0
            self.highest = max(self.highest, revision)
            self.state[name] = raw
            self.named.add(name)

    def end(self, revision: int) -> None:
        assert revision >= self.highest
        self.listings += 1
        self.state = {name: raw for name, raw in self.state.items() if name in self.named}

    def gone(self, name: str, revision: int) -> None:
        assert revision > self.highest, "the deletion's own"
        self.highest = revision
        del self.state[name]

    def __len__(self) -> int:
        return len(self.state)


@asynccontextmanager
async def following(store: Datastore, rows: Rows) -> AsyncIterator[Syncer]:
    syncer = Syncer(store, SELECTIONS, backoff_maximum=0.3, sinks={"NetworkSet": rows})

    async def run() -> None:
        async for batch in syncer.batches():
            assert all(update.key.kind == "Node" for update in batch.updates)  # type: ignore[union-attr]

    task = asyncio.create_task(run())
    try:
        yield syncer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_family_goes_to_its_sink_as_bytes(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 3)
    monkeypatch.setattr(listing, "ROWS", 2)
    stored = {f"ns{number % 3}/s{number}": b"{%d" % number for number in range(20)}
    for name, raw in stored.items():
        etcd.put(SETS + name, raw)
    etcd.put(f"{SETS}no-namespace", "{}")
    etcd.put(f"{SETS}a/b/c", "{}")
    etcd.put(f"{SETS}odd/a%2fb", "x")
    stored["odd/a/b"] = b"x"
    rows = Rows()
    async with etcd.connect() as store, following(store, rows) as syncer:
        await until(lambda: syncer.in_sync)
        assert rows.state == stored
        assert syncer.known() == {"NetworkSet": 21, "Node": 0}
        etcd.put(f"{SETS}ns0/new", "no JSON either")
        etcd.delete(f"{SETS}ns0/s0")
        del stored["ns0/s0"]
        stored["ns0/new"] = b"no JSON either"
        await until(lambda: rows.state == stored)
        assert rows.listings == 1


async def test_an_empty_family_is_listed_too(etcd: Etcd) -> None:
    rows = Rows()
    async with etcd.connect() as store, following(store, rows) as syncer:
        await until(lambda: syncer.in_sync)
        assert rows.listings == 1


async def test_a_listing_anew_says_what_is_there(private_etcd: Etcd) -> None:
    rows = Rows()
    for number in range(5):
        private_etcd.put(f"{SETS}a/s{number}", "{}")
    async with private_etcd.connect() as store, following(store, rows) as syncer:
        await until(lambda: syncer.in_sync)
        private_etcd.wipe()
        private_etcd.start()
        private_etcd.put(f"{SETS}a/s1", "{ }")
        await until(lambda: rows.state == {"a/s1": b"{ }"})
        assert rows.listings >= 2


async def test_a_selection_may_be_listed_undecoded(etcd: Etcd) -> None:
    etcd.put(f"{SETS}a/one", "broken")
    etcd.put(f"{SETS}b/one", "broken")
    async with etcd.connect() as store:
        listing = await store.list(Selection("NetworkSet", raw=True))
        assert [(entry.key, entry.value, entry.raw) for entry in listing.entries] == [
            (ResourceKey("NetworkSet", "one", namespace), None, b"broken") for namespace in "ab"
        ]
        assert listing.broken == []
        narrow = [rows async for rows, _ in rows_of(store, Selection("NetworkSet", "b"))]
        assert [name for rows in narrow for name, _, _ in rows] == ["b/one"]
        narrow = [
            rows async for rows, _ in rows_of(store, Selection("NetworkSet", name_prefix="x"))
        ]
        assert not any(narrow)


async def test_a_store_without_rows_gives_pages(etcd: Etcd) -> None:
    etcd.put(f"{SETS}a/one", "broken")

    class Plain:
        def __init__(self, store: Datastore) -> None:
            self._store = store

        async def list(self, selection: Selection) -> Listing:
            return await self._store.list(selection)

    async with etcd.connect() as store:
        plain: Datastore = Plain(store)  # type: ignore[assignment]
        found = [rows async for rows, _ in rows_of(plain, Selection("NetworkSet"))]
        assert [[(name, raw) for name, raw, _ in rows] for rows in found] == [
            [("a/one", b"broken")]
        ]
