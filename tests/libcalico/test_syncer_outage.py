"""What an outage costs the store: a watch from where the reader was, while that is still there.

Requests are counted at a real etcd, and at a simulated Kubernetes API over an hour of simulated
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from libcalico.datastore import connect, syncer
from libcalico.datastore.interface import Datastore, Put, Row, Selection
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.datastore.syncer import Syncer
from libcalico.kubernetes import reflector
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.reflector import Reflector
from libcalico.kubernetes.service_objects import SERVICES, Service
from libcalico.model import Handle, HandleKey, codec
from libcalico.model.keys import ResourceKey
from tests.simulation.loop import Clock, Loop
from tests.simulation.stores.kubernetes import Api, ApiClient
from tests.simulation.stores.weather import Weather
from tests.support.etcd import Etcd
from tests.support.patience import until
from tests.support.proxy import Proxy

FEW, MANY = 3, 200
SELECTIONS = [Selection("Handle"), Selection("NetworkSet")]
HOUR = 3600.0


class Names:
    """A sink, and the number of its listings."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.listings = 0

    def begin(self) -> None:
        self.listings += 1

    def apply_rows(self, rows: Sequence[Row]) -> None:
        self.names.update(name for name, _, _ in rows)

    def end(self, revision: int) -> None:
        pass

    def gone(self, name: str, revision: int) -> None:
        self.names.discard(name)

    def __len__(self) -> int:
        return len(self.names)


class Reader:
    """A process that follows handles as objects and network sets as rows."""

    def __init__(self, store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sink = Names()
        self.syncer = Syncer(
            store, SELECTIONS, backoff_maximum=0.3, sinks={"NetworkSet": self.sink}
        )
        self.handles: set[str] = set()
        self.spread_over: list[int] = []

        def spread(objects: int) -> float:
            self.spread_over.append(objects)
            return 0.0

        monkeypatch.setattr(syncer, "spread", spread)

    async def run(self) -> None:
        async for batch in self.syncer.batches():
            for update in batch.updates:
                assert isinstance(update.key, HandleKey)
                self.handles.add(update.key.handle_id)

    def has(self, count: int) -> bool:
        return len(self.handles) == len(self.sink) == count and self.syncer.connected


def network_set(name: str) -> Put:
    key = ResourceKey("NetworkSet", name, "default")
    meta = {"name": name, "namespace": "default"}
    tree = {"kind": key.kind, "apiVersion": "projectcalico.org/v3", "metadata": meta, "spec": {}}
    return Put(key, codec.resource_from_tree(tree))


async def write(store: Datastore, first: int, last: int) -> None:
    for number in range(first, last):
        await store.commit([Put(HandleKey(f"h{number}"), Handle({})), network_set(f"s{number}")])


@pytest.mark.asyncio
async def test_an_outage_of_etcd_costs_a_watch_and_no_list(
    private_etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with private_etcd.connect() as store, private_etcd.connect() as operator:
        await write(operator, 0, MANY)
        reader = Reader(store, monkeypatch)
        task = asyncio.create_task(reader.run())
        try:
            await until(lambda: reader.has(MANY))
            assert private_etcd.asked("Range") >= len(SELECTIONS)
            private_etcd.kill()
            await until(lambda: not reader.syncer.connected)
            private_etcd.start()
            await until(lambda: reader.syncer.connected)
            # A new start is another term: each watch asks once where the cluster is (one key).
            assert private_etcd.asked("Range") <= len(SELECTIONS)
            assert private_etcd.asked("Watch") >= 1
            assert private_etcd.sent() < 20_000, "not what is stored"
            await write(operator, MANY, MANY + FEW)
            await until(lambda: reader.has(MANY + FEW))
            assert private_etcd.asked("Range") <= len(SELECTIONS)
            assert (reader.sink.listings, reader.spread_over) == (1, [])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_where_etcd_has_forgotten_the_lists_are_spread_by_what_is_in_them(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await Proxy(etcd.port).start()
    config = replace(etcd.config(), etcd_endpoints=f"http://127.0.0.1:{proxy.port}")
    store = await connect(config)
    async with etcd.connect() as operator:
        await write(operator, 0, MANY)
        reader = Reader(store, monkeypatch)
        task = asyncio.create_task(reader.run())
        try:
            await until(lambda: reader.has(MANY))
            assert reader.spread_over == [], "a start waits for nothing"
            proxy.cut()
            await until(lambda: not reader.syncer.connected)
            await write(operator, MANY, MANY + FEW)
            etcd.compact()
            proxy.mend()
            await until(lambda: reader.has(MANY + FEW))
            assert reader.spread_over == [MANY, MANY]
            assert reader.sink.listings == 2
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.close()
            await proxy.stop()


class CountingClient(ApiClient):
    """Lists and watches by what they ask for."""

    def __init__(self, api: Api, weather: Weather) -> None:
        super().__init__(api, weather)
        self.api = api
        self.lists = self.looks = self.watches = 0

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *more: Any,
        **also: Any,
    ) -> bytes:
        answer = await super().request(method, path, query, *more, **also)
        if (query or {}).get("limit") == "1":
            self.looks += 1
        else:
            self.lists += 1
        return answer

    async def lines(self, *asked: Any, **also: Any) -> AsyncGenerator[bytes, None]:
        self.watches += not self.weather.away
        async for line in super().lines(*asked, **also):
            yield line


def test_an_hour_without_the_kubernetes_api_costs_watches_and_no_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One look at one object goes before each watch, which tells a store that was put back."""
    weather = Weather(Random(1))
    client = CountingClient(Api(), weather)

    async def hour() -> None:
        store, operator = KubernetesDatastore(client), ApiClient(client.api, Weather(Random(2)))
        kept = KubernetesDatastore(operator)
        await write(kept, 0, MANY)
        reader = Reader(store, monkeypatch)
        task = asyncio.create_task(reader.run())
        await patiently(lambda: reader.has(MANY))
        weather.away = True
        await asyncio.sleep(HOUR)
        assert not reader.syncer.connected
        await write(kept, MANY, MANY + FEW)
        client.lists = client.looks = client.watches = 0
        weather.away = False
        await patiently(lambda: reader.has(MANY + FEW))
        assert (client.lists, client.looks, client.watches) == (0, 2, 2)
        assert (reader.sink.listings, reader.spread_over) == (1, [])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    simulated(hour())


class Services:
    """A sink of a reflector."""

    def __init__(self) -> None:
        self.names: set[Name] = set()

    def put(self, name: Name, value: Service) -> None:
        self.names.add(name)

    def gone(self, name: Name) -> None:
        self.names.discard(name)

    def listed(self) -> None:
        pass


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_hour_without_the_api_for_what_is_read_of_kubernetes_itself(
    monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    weather, api = Weather(Random(1)), Api()
    client, spread_over = CountingClient(api, weather), list[int]()

    def spread(objects: int) -> float:
        spread_over.append(objects)
        return 0.0

    def put(first: int, last: int) -> None:
        for number in range(first, last):
            tree = {"metadata": {"name": f"s{number}", "namespace": "default"}, "spec": {}}
            api.put(f"/api/v1/namespaces/default/services/s{number}", tree)

    async def hour() -> None:
        put(0, MANY)
        sink = Services()
        reader = Reflector(client, SERVICES, sink)
        task = asyncio.create_task(reader.run())
        await patiently(lambda: len(sink.names) == MANY)
        assert spread_over == [], "a start waits for nothing"
        weather.away = True
        await asyncio.sleep(HOUR)
        assert not reader.connected
        put(MANY, MANY + FEW)
        if forgotten:
            api.compact()
        client.lists = 0
        weather.away = False
        await patiently(lambda: len(sink.names) == MANY + FEW)
        assert (client.lists, reader.lists) == ((1, 2) if forgotten else (0, 1))
        assert spread_over == ([MANY] if forgotten else [])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    monkeypatch.setattr(reflector, "spread", spread)
    simulated(hour())


def simulated(work: Coroutine[Any, Any, None]) -> None:
    """Run in simulated time."""
    loop = Loop(Clock(), Random(3), lambda _: [])
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


async def patiently(condition: Callable[[], bool]) -> None:
    """Until something is so, in simulated time."""
    async with asyncio.timeout(HOUR):
        while not condition():  # noqa: ASYNC110 - time is simulated
            await asyncio.sleep(0.1)
