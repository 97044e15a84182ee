"""A pool moves on a real etcd while four node services start and stop pods all the time."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_network

import pytest

from ipam.admin import migrate
from ipam.admin.check import Kind, check
from ipam.admin.migrate_plan import Plan
from ipam.allocator.service import NodeAllocator
from ipam.records.blocks import IPAddress
from ipam.records.errors import NoPool
from ipam.records.snapshot import read
from libcalico.datastore.interface import Datastore
from tests.ipam.world import allocate, put_node, put_pool, release, serving
from tests.support.etcd import Etcd
from tests.support.patience import HANG

NODES = ("n1", "n2", "n3", "n4")
OLD = ip_network("10.0.0.0/24")


class Pods:
    """The pods of one node: started and stopped at random, each with its endpoint."""

    def __init__(self, node: str, allocator: NodeAllocator) -> None:
        self.node, self.allocator = node, allocator
        self.running: dict[str, IPAddress] = {}
        self._made = 0
        self._chance = random.Random(node)

    async def start(self) -> None:
        self._made += 1
        name = f"{self.node}-{self._made}"
        request = allocate(name)
        request = replace(request, attributes={**request.attributes, "node": self.node})
        try:
            granted = await self.allocator.perform(request)
        except NoPool:
            return
        self.running[name] = granted.addresses[0]

    async def stop(self, name: str) -> None:
        del self.running[name]
        await self.allocator.perform(release(name))

    async def churn(self, halt: asyncio.Event) -> None:
        """Start pods, and stop the oldest, until told to halt."""
        while not halt.is_set():
            await self.start()
            if len(self.running) > 12:
                await self.stop(next(iter(self.running)))
            await asyncio.sleep(self._chance.uniform(0, 0.01))  # others come in between


async def step(store: Datastore) -> Plan:
    old, new = await migrate.find(store, "old"), await migrate.find(store, "new")
    state = await migrate.look(store, old, new)
    await migrate.begin(store, old, new)
    await migrate.prepare(store, new, state.nodes)
    await migrate.give_back(store, await migrate.look(store, old, new))
    return await migrate.look(store, old, new)


@pytest.mark.asyncio
@pytest.mark.promise("F-34")
@pytest.mark.promise("PAIN-5")
async def test_a_pool_moves_under_nodes_that_never_stop(etcd: Etcd) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(etcd.connect())
        await put_pool(store, "old", "10.0.0.0/24", 29)
        nodes = []
        for name in NODES:
            await put_node(store, name)
            own = await stack.enter_async_context(etcd.connect())
            nodes.append(Pods(name, await stack.enter_async_context(serving(own, name))))
        halt = asyncio.Event()
        churning = [asyncio.create_task(node.churn(halt)) for node in nodes]
        async with asyncio.timeout(HANG):
            while any(len(node.running) < 12 for node in nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert any(address in OLD for node in nodes for address in node.running.values())
            await put_pool(store, "new", "10.1.0.0/22", 27)
            while (await step(store)).nodes:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        halt.set()
        await asyncio.gather(*churning)
        report = check(await read(store))
        # The pods of this test have no pod in their endpoint: only addresses are compared.
        assert report.problems == ()
        assert not report.of(Kind.BLOCK_ORPHANED)
        held = {address for node in nodes for address in node.running.values()}
        assert {record.address for record in report.records} == held
        assert not any(address in OLD for address in held)
