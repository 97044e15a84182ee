"""The Kubernetes datastore: pools that are disabled, claims and blocks that somebody deletes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from ipaddress import ip_network
from typing import Any

import pytest

from bgp.cluster.view import ClusterView
from cni.node.cluster import Cluster
from felix.calc.graph import Calculator
from felix.calc.tunnels import Kind, TunnelSupport
from ipam.admin import library
from ipam.admin.library import AssignRequest
from ipam.admin.tunnels import VXLAN
from ipam.allocator.requests import Allocate
from ipam.allocator.service import NodeAllocator
from ipam.records import blocks
from libcalico.datastore.interface import Put, Selection
from libcalico.datastore.syncer import Syncer
from libcalico.model import BlockKey, IPPool, IPPoolSpec, Metadata, ResourceKey
from tests.apiserver import kdd
from tests.ipam.world import put_pool
from tests.support.apiserver import ApiServer
from tests.support.patience import HANG, until

KINDS = ("IPPool", "Node", "Block", "BlockAffinity")


def routed(calc: Calculator, view: ClusterView) -> object:
    """What this node programs and tells of others' pods."""
    calc.cluster.settle(TunnelSupport())
    facts = calc.path_facts(frozenset())
    return dict(calc.cluster.ways), facts, calc.facts.pool_members(4), dict(view.pools)


@pytest.mark.asyncio
@pytest.mark.promise("F-34")
async def test_a_disabled_pool_is_routed_as_before(api: ApiServer) -> None:
    kdd.install(api)
    kdd.clean(api)
    for number in (1, 2):
        kdd.node(api, f"n{number}", f"10.0.0.{number}")
    calc, view = Calculator("n1"), ClusterView("n1")
    async with kdd.opened(api) as store, asyncio.timeout(HANG):
        await put_pool(store, "p", "10.65.0.0/16", 26, vxlanMode="Always")
        for number in (1, 2):
            assert await library.ensure_tunnel_address(store, f"n{number}", VXLAN)
        await library.auto_assign(store, AssignRequest("n2", "h", {"node": "n2"}, num4=1))
        syncer = Syncer(store, [Selection(kind) for kind in KINDS])
        async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]

            async def follow(seen: Any) -> object:
                async for batch in batches:
                    for update in batch.updates:
                        value = update.entry.value if update.entry else None
                        calc.update(update.key, value)
                        view.apply(update.key, value)
                    if batch.in_sync and seen():
                        return routed(calc, view)
                raise AssertionError("the watch ended")

            before = await follow(lambda: "p" in calc.pools)
            assert {way.kind for way in calc.cluster.ways.values()} == {Kind.VXLAN}
            await put_pool(store, "p", "10.65.0.0/16", 26, vxlanMode="Always", disabled=True)
            for number in (1, 2):
                assert await library.ensure_tunnel_address(store, f"n{number}", VXLAN)
            # A pool that is told later shows that the change was told.
            last = IPPool(metadata=Metadata(name="last"), spec=IPPoolSpec(cidr="10.66.0.0/16"))
            key = ResourceKey("IPPool", "last")
            await store.commit([Put(key, last)])
            await follow(lambda: "last" in calc.pools)
            calc.update(key, None)
            view.apply(key, None)
            assert routed(calc, view) == before
            assert ip_network("10.65.0.0/16") in calc.path_facts(frozenset()).routed


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-5")
async def test_deleted_claims_and_blocks_are_put_back(api: ApiServer) -> None:
    """`kubectl delete blockaffinity` and `ipamblock`: no address of a tunnel is given to a pod."""
    kdd.install(api)
    kdd.clean(api)
    kdd.node(api, "n1")
    async with kdd.opened(api) as store, asyncio.timeout(HANG), asyncio.TaskGroup() as group:
        await put_pool(store, "p", "10.65.0.0/28", 28, vxlanMode="Always")
        tunnel = await library.ensure_tunnel_address(store, "n1", VXLAN)
        allocator = NodeAllocator(store, "n1")
        cluster = Cluster(store, "n1", allocator.claim_lost)
        tasks = [group.create_task(each.run()) for each in (allocator, cluster)]
        await cluster.wait_in_sync()
        await allocator.perform(Allocate("net.a", {"node": "n1"}))
        api.delete(f"{kdd.CRD}/blockaffinities")
        await until(lambda: allocator.restored == 1)
        (claim,) = api.call("GET", f"{kdd.CRD}/blockaffinities")["items"]
        assert claim["spec"]["state"] == "confirmed"
        api.delete(f"{kdd.CRD}/ipamblocks")
        (fresh,) = (await allocator.perform(Allocate("net.b", {"node": "n1"}))).addresses
        entry = await store.get(BlockKey(ip_network("10.65.0.0/28")))
        assert entry is not None
        held = {one.address: one.handle_id for one in blocks.allocations(entry.value)}
        assert tunnel is not None
        assert fresh != tunnel
        assert held[tunnel] == VXLAN.handle_id("n1")
        assert len(held) == 3, "and the pod's of before"
        for task in tasks:
            task.cancel()
