"""The allocator on the Kubernetes datastore, killed before and after each of its writes.

Whatever is left behind, no address has two owners, a handle finds all of its addresses (KDD-1),
and after one collection and the next start nothing is leaked: `ipam check` is content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_network
from typing import Any

import pytest

from ipam.admin import check
from ipam.allocator import hosts
from ipam.allocator.requests import Allocate, Release
from ipam.allocator.service import NodeAllocator
from ipam.collector.collector import Collector
from ipam.collector.leak_evidence import LeakEvidence
from ipam.records import blocks, snapshot
from ipam.records.errors import IPAMError
from ipam.records.naming import pod_attributes
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.errors import DatastoreError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.connections import JSON
from libcalico.model import IPPool, IPPoolSpec, Metadata, ResourceKey
from tests.apiserver import kdd
from tests.ipam.model.world import Container
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.asyncio
NODE = "n1"
PODS = ("a", "b", "c")
MOST = 40


class Killed(BaseException):
    """The process ends here; nothing of it runs any more."""


class Mortal(Client):
    """A client whose process dies at its n-th write: before it is sent, or before its answer."""

    left = -1
    sent = False

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        if method == "GET" or self.left < 0:
            return await super().request(method, path, query, body, content, accept)
        self.left -= 1
        if self.left >= 0:
            return await super().request(method, path, query, body, content, accept)
        self.left = 0
        if self.sent:
            await super().request(method, path, query, body, content, accept)
            self.sent = False
        raise Killed


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    """Definitions, three pods on a node, one pool of one small block more than is needed."""
    kdd.install(api)
    return api


async def prepare(api: ApiServer, store: Datastore) -> None:
    kdd.clean(api)
    kdd.node(api, NODE)
    for name in PODS:
        kdd.pod(api, name, NODE)
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr="10.65.0.0/28", blockSize=30))
    await store.commit([Put(ResourceKey("IPPool", "p"), pool, ABSENT)])


def container(pod: str) -> Container:
    return Container(f"cid{pod}", NODE, pod, (4,))


def allocation(pod: str) -> Allocate:
    one = container(pod)
    attributes = pod_attributes(NODE, "default", pod, 0)
    return Allocate(one.handle_id, attributes, companion=one.writer())


async def perform(store: Datastore, requests: list[Any]) -> None:
    """All at once by a daemon of the node; Killed when it dies of it."""
    allocator = NodeAllocator(store, NODE)
    serving = asyncio.create_task(allocator.run())
    wanted = [asyncio.ensure_future(allocator.perform(one)) for one in requests]
    work = asyncio.gather(*wanted, return_exceptions=True)
    both: set[asyncio.Future[Any]] = {serving, work}
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    dead = serving in done
    serving.cancel()
    work.cancel()
    results = await asyncio.gather(serving, work, return_exceptions=True)
    if dead:
        raise Killed
    for one in results[1] if isinstance(results[1], list) else ():
        if isinstance(one, BaseException):
            raise one


async def add(store: Datastore) -> None:
    await perform(store, [allocation(pod) for pod in PODS])


async def delete(store: Datastore) -> None:
    await perform(
        store,
        [Release(one.handle_id, companion=one.remover()) for one in map(container, PODS)],
    )


async def give_up(store: Datastore) -> None:
    await hosts.release_host_affinities(store, NODE, must_be_empty=True)


async def nothing(_store: Datastore) -> None:
    """No preparation."""


async def added_and_deleted(store: Datastore) -> None:
    await add(store)
    await delete(store)


Step = Callable[[Datastore], Awaitable[None]]
SCENARIOS: dict[str, tuple[Step, Step]] = {
    "add": (nothing, add),
    "delete": (add, delete),
    "give-up": (added_and_deleted, give_up),
}


async def sound(store: Datastore) -> None:
    """What holds at every moment: one owner each, and handles that find their addresses."""
    counted = {one.key.handle_id: one.value for one in await entries(store, "Handle")}
    for entry in await entries(store, "Block"):
        assert not blocks.problem(entry.value)
        for attribute in entry.value.attributes:
            index = entry.value.attributes.index(attribute)
            held = sum(1 for one in entry.value.allocations if one == index)
            there = counted.get(attribute.handle_id)
            assert there is not None, f"nobody finds {attribute.handle_id} in {entry.key}"
            assert there.block.get(entry.value.cidr, 0) >= held
        if entry.value.owner:
            claims = {one.key.cidr for one in await entries(store, "BlockAffinity")}
            assert ip_network(entry.value.cidr) in claims, "a block without a claim on it"
    addresses = [
        text
        for one in await entries(store, "WorkloadEndpoint")
        for text in one.value.spec.ipNetworks
    ]
    assert len(addresses) == len(set(addresses))


async def entries(store: Datastore, family: str) -> list[Any]:
    return (await store.list(Selection(family))).entries


async def mend(store: Datastore) -> None:
    """The node starts again, without any of its pods; its collector looks around."""
    allocator = NodeAllocator(store, NODE)
    await allocator.warm()

    async def observe() -> LeakEvidence:
        return LeakEvidence(frozenset())

    await Collector(store, NODE, observe, gap=0.01).sweep()
    for pod in PODS:
        # The runtime repeats a DEL until it succeeds.
        await perform(store, [Release(container(pod).handle_id)])


async def judge(store: Datastore) -> None:
    report = check.check(await snapshot.read(store))
    assert not report.leaked()
    assert not [one for one in report.problems if "handle" not in one.kind.value]
    for one in await entries(store, "Block"):
        assert all(index is None for index in one.value.allocations)


@pytest.mark.promise("F-112")
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_death_at_any_write_leaks_nothing(cluster: ApiServer, scenario: str) -> None:
    before, act = SCENARIOS[scenario]
    deaths = 0
    for number in range(2 * MOST):
        client = Mortal(cluster.source(), timeout=120.0)
        async with kdd.opened(cluster) as store, kdd.opened(cluster, client) as mortal:
            await prepare(cluster, store)
            await before(store)
            client.left, client.sent = number // 2, bool(number % 2)
            try:
                await act(mortal)
                ended = True
            except Killed:
                ended = False
            except (DatastoreError, IPAMError) as error:
                raise AssertionError(f"{scenario} {number}: {error}") from error
            await sound(store)
            if ended:
                break
            deaths += 1
            await mend(store)
            await sound(store)
            await judge(store)
            # And the pods come up on what is left.
            await add(store)
            await sound(store)
            assert len(await entries(store, "Handle")) >= len(PODS)
    else:
        raise AssertionError(f"{scenario} has more than {MOST} writes")
    assert deaths >= 6
