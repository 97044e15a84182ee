"""SYNC-1 to SYNC-4 against a model: random changes, cut connections, compactions, restarts.

A real etcd behind a proxy. The model is the list of every state that every key ever had, in
order, with revisions. What the consumer is told must walk forward through that list, key by
key; once quiet, its view is the store. One connection lives through all examples; each
example has a consumer of its own. Full size: `./run test tests/libcalico/test_syncer_model.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect, syncer
from libcalico.datastore.interface import Datastore, Delete, Put, Selection
from libcalico.datastore.syncer import SyncBatch, Syncer
from libcalico.errors import DatastoreError
from libcalico.model import Handle, HandleKey, IPAMConfigKey, Key, Metadata, Node, ResourceKey
from tests.support.etcd import Etcd
from tests.support.patience import patient
from tests.support.proxy import Proxy

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
EXAMPLES = int(os.environ.get("MUSLIN_MODEL_EXAMPLES", "60")) if FULL else 25
SELECTIONS = [Selection("Handle"), Selection("Node", name_prefix="a"), Selection("IPAMConfig")]
NAMES = ["a1", "a2", "b", "c"]

changes = st.tuples(st.sampled_from(["handle", "node"]), st.sampled_from(NAMES), st.booleans())
commits = st.lists(changes, min_size=1, max_size=4, unique_by=lambda one: one[:2])
steps = st.one_of(
    st.tuples(st.just("commit"), commits),
    st.tuples(st.just("commit"), commits),
    st.tuples(st.sampled_from(["pause", "cut", "mend", "compact", "slow", "fast"]), st.none()),
    *([st.tuples(st.just("restart"), st.none())] if FULL else []),
)


class Model:
    """Every state of every key: revision -> value, or None where it was deleted."""

    def __init__(self) -> None:
        self.states: dict[Key, list[tuple[int, int | None]]] = {}

    def note(self, key: Key, revision: int, value: int | None) -> None:
        self.states.setdefault(key, [(0, None)]).append((revision, value))

    def now(self) -> dict[Key, int]:
        return {
            key: states[-1][1] for key, states in self.states.items() if states[-1][1] is not None
        }


class Consumer:
    """Checks each update against the model's walk."""

    def __init__(self, store: Datastore) -> None:
        self.syncer = Syncer(store, SELECTIONS, backoff_maximum=0.1)
        self.view: dict[Key, int] = {}
        self.told: list[tuple[Key, int, int | None]] = []
        self.in_sync = False
        self.at_sync: dict[Key, int] = {}
        self.delay = 0.0

    async def run(self) -> None:
        async for batch in self.syncer.batches():
            self.take(batch)
            await asyncio.sleep(self.delay)

    def take(self, batch: SyncBatch) -> None:
        assert len({update.key for update in batch.updates}) == len(batch.updates)
        assert batch.in_sync or not self.in_sync, "SYNC-3"
        revisions = [update.entry.revision for update in batch.updates if update.entry]
        assert revisions == sorted(revisions), "SYNC-4"
        for update in batch.updates:
            if update.entry is None:
                assert self.view.pop(update.key, None) is not None, "SYNC-2"
                self.told.append((update.key, 0, None))
            else:
                value = number_of(update.entry.value)
                assert self.view.get(update.key) != value, "SYNC-2"
                self.view[update.key] = value
                self.told.append((update.key, update.entry.revision, value))
        if batch.in_sync and not self.in_sync:
            self.in_sync = True
            self.at_sync = dict(self.view)

    def check(self, model: Model) -> None:
        """SYNC-1: what was told of a key is a walk forward through its states."""
        for key in {key for key, _, _ in self.told}:
            states, at = model.states[key], 0
            for _, revision, value in (one for one in self.told if one[0] == key):
                while at < len(states) and not (
                    states[at][1] == value and (value is None or states[at][0] == revision)
                ):
                    at += 1
                assert at < len(states), f"SYNC-1: {key} went back: {self.told}, {states}"
                at += 1


def number_of(value: Any) -> int:
    return int(value.block["n"] if isinstance(value, Handle) else value.metadata.labels["n"])


class World:
    """etcd, the proxy before it, a writer that goes around the proxy."""

    def __init__(self, server: Etcd) -> None:
        self.server, self.number, self.compacted = server, 0, 0

    async def open(self) -> World:
        self.proxy = await Proxy(int(self.server.reached.rpartition(":")[2])).start()
        direct = replace(self.server.config(), etcd_endpoints=self.server.endpoint)
        self.writer = await connect(direct)
        self.store = await connect(
            DatastoreConfig(
                datastore_type="etcdv3",
                etcd_endpoints=f"http://127.0.0.1:{self.proxy.port}",
                timeout=0.5,
            )
        )
        return self

    async def close(self) -> None:
        await self.store.close()
        await self.writer.close()
        await self.proxy.stop()

    async def commit(self, model: Model, wanted: list[tuple[str, str, bool]]) -> None:
        batch: list[Put | Delete] = []
        values: list[tuple[Key, int | None]] = []
        now = model.now()
        for kind, name, gone in wanted:
            key: Key = HandleKey(name) if kind == "handle" else ResourceKey("Node", name)
            if gone:
                if key in now:
                    batch.append(Delete(key))
                    values.append((key, None))
                continue
            self.number += 1
            label = {"n": str(self.number)}
            value = (
                Handle({"n": self.number})
                if kind == "handle"
                else Node(metadata=Metadata(name=name, labels=label))
            )
            batch.append(Put(key, value))
            values.append((key, self.number))
        if batch:
            revision = await self.patient(batch)
            for key, number in values:
                model.note(key, revision, number)

    async def patient(self, batch: list[Put | Delete]) -> int:
        while True:
            try:
                return await self.writer.commit(batch)
            except DatastoreError as problem:
                if "may or may not" in str(problem):
                    raise
                await asyncio.sleep(0.05)

    async def step(self, model: Model, consumer: Consumer, step: tuple[str, Any]) -> None:
        match step:
            case "commit", wanted:
                await self.commit(model, wanted)
            case "pause", _:
                await asyncio.sleep(0.02)
            case "cut", _:
                self.proxy.cut()
            case "mend", _:
                self.proxy.mend()
            case "compact", _:
                revision = await asyncio.to_thread(self.server.revision)
                if revision != self.compacted:
                    self.compacted = await asyncio.to_thread(self.server.compact)
            case "restart", _:
                await asyncio.to_thread(self.server.restart)
                await self.writer.list(Selection("IPAMConfig"))
            case "slow", _:
                consumer.delay = 0.05
            case "fast", _:
                consumer.delay = 0.0


async def example(world: World, before: list[Any], after: list[Any]) -> None:
    """Some of it before the consumer begins, the rest while it follows."""
    world.proxy.mend()
    model = Model()
    await clean(world)
    for step in before:
        await world.step(model, Consumer(world.store), step)
    world.proxy.mend()
    at_start = model.now()
    consumer = Consumer(world.store)
    task = asyncio.create_task(consumer.run())
    try:
        for step in after:
            await world.step(model, consumer, step)
        world.proxy.mend()
        deadline = time.monotonic() + patient(20)
        while not quiet(model, consumer):
            assert not task.done(), task.exception()
            feeds = [(f.connected, f.listed, f.revision) for f in consumer.syncer._feeds]
            state = (consumer.in_sync, feeds, consumer.view, consumer.told, consumer.syncer.error)
            assert time.monotonic() < deadline, f"never quiet: {state}, {model.states}"
            await asyncio.sleep(0.01)
        consumer.check(model)
        # No key of the snapshot is missing when it is called complete, unless it changed since.
        changed = {key for key, states in model.states.items() if key not in at_start} | {
            key for key in at_start if model.now().get(key) != at_start[key]
        }
        for key, value in selected(at_start).items():
            assert key in changed or consumer.at_sync.get(key) == value, "SYNC-3"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def selected(view: dict[Key, int]) -> dict[Key, int]:
    return {
        key: value
        for key, value in view.items()
        if not isinstance(key, ResourceKey) or key.name.startswith("a")
    }


def quiet(model: Model, consumer: Consumer) -> bool:
    followed = consumer.in_sync and consumer.syncer.connected
    return followed and consumer.view == selected(model.now())


async def clean(world: World) -> None:
    """An empty store for the next example."""
    keys: list[Key] = [HandleKey(name) for name in NAMES]
    keys += [ResourceKey("Node", name) for name in NAMES]
    await world.patient([Delete(key) for key in [*keys, IPAMConfigKey()]])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, pages and room so small that every seam is met."""
    from libcalico.datastore.etcd import listing, watch

    for module, name in (
        (syncer, "BATCH"),
        (listing, "PAGE"),
        (listing, "SLICE"),
        (watch, "SLICE"),
    ):
        monkeypatch.setattr(module, name, 2)
    monkeypatch.setattr(syncer, "WAITING", 3)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.promise("F-111")
@pytest.mark.usefixtures("small")
def test_the_view_walks_with_the_store(private_etcd: Etcd, loop: asyncio.AbstractEventLoop) -> None:
    world = World(private_etcd)
    loop.run_until_complete(world.open())

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(before=st.lists(steps, max_size=6), after=st.lists(steps, min_size=3, max_size=14))
    def check(before: list[Any], after: list[Any]) -> None:
        loop.run_until_complete(example(world, before, after))

    try:
        check()
    finally:
        loop.run_until_complete(world.close())


@pytest.mark.usefixtures("small")
def test_a_restart_and_a_compaction_in_one_life(
    private_etcd: Etcd, loop: asyncio.AbstractEventLoop
) -> None:
    """What the full size draws at random, once by hand for every run."""
    world = World(private_etcd)
    loop.run_until_complete(world.open())
    one = ("commit", [("handle", "b", False), ("node", "a1", False), ("node", "b", False)])
    two = ("commit", [("handle", "b", False), ("node", "a1", True)])
    more: list[Any] = [("pause", None), ("restart", None), two, ("cut", None), two, one, two]
    more += [("compact", None), ("restart", None), ("mend", None), one, ("slow", None), two, one]
    try:
        loop.run_until_complete(example(world, [one, one], more))
    finally:
        loop.run_until_complete(world.close())
