"""Leaked addresses come back, with a real API and a real etcd (LEAK-2, LEAK-4)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from controllers import metrics
from controllers.addresses.collection import Collection
from controllers.addresses.leaks import GAP
from controllers.nodes.node_existence import NodeExistence
from controllers.nodes.node_view import NodeView
from ipam.allocator.library_assign import AssignRequest, auto_assign
from ipam.allocator.release import release_by_handle
from ipam.records import blocks
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.interface import ABSENT, Datastore, Put, Selection
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.keys import ResourceKey
from tests.controllers.running import running
from tests.controllers.test_nodes import NODES, put_node
from tests.ipam.world import put_pool
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

PODS = "/api/v1/namespaces/gc/pods"
GRACE = 60.0


class World:
    """A collection whose clock the test moves."""

    def __init__(self, cluster: ApiServer, store: Datastore) -> None:
        self.cluster, self.store = cluster, store
        self.now = 0.0
        self.client = cluster.client()
        self.view = NodeView(self.client, store)
        presence = NodeExistence(store, self.client, grace=0.0)
        self.part = Collection(
            self.view, self.client, store,
            grace=GRACE, clock=lambda: self.now, presence=presence,
        )  # fmt: skip

    async def look(self, passed: float = 0.0) -> None:
        """One look, so many seconds later."""
        self.now += passed
        await self.part.look()

    async def assign(self, node: str, pod: str, container: str) -> str:
        """An address of a pod."""
        attributes = {"node": node, "pod": pod, "namespace": "gc"}
        request = AssignRequest(node, f"net.{container}", attributes, num4=1)
        return str((await auto_assign(self.store, request)).ipv4[0].ip)

    async def held(self) -> dict[str, str]:
        """Handles by address."""
        listing = await self.store.list(Selection("Block"))
        return {
            str(one.address): one.handle_id
            for entry in listing.entries
            for one in blocks.allocations(entry.value)
        }

    def pod(self, name: str, node: str, address: str) -> None:
        """Have a pod with an address."""
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        self.cluster.ensure(PODS, {"metadata": {"name": name}, "spec": spec})
        status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        patch = "application/merge-patch+json"
        self.cluster.call("PATCH", f"{PODS}/{name}/status", status, content=patch)


@pytest.mark.asyncio
async def test_addresses_without_pod_come_back_after_two_looks_and_others_stay(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("gc")
    cluster.ensure(NODES, {"metadata": {"name": "g1"}})
    async with stored.connect() as store:
        await ensure_initialized(store, "k8s")
        await put_pool(store, "pool", "10.71.0.0/24", 28)
        await put_node(store, "g1", "g1")
        await put_node(store, "dead", "g-dead")
        world = World(cluster, store)
        alive = await world.assign("g1", "alive", "c-alive")
        leaked = await world.assign("g1", "leaked", "c-leaked")
        orphan = await world.assign("dead", "orphan", "c-orphan")
        world.pod("alive", "g1", alive)
        endpoint = _endpoint("g1", "leaked", "c-leaked", leaked)
        await store.commit([Put(endpoint[0], endpoint[1], ABSENT)])
        async with running(world.view, world.part):
            # Its own looks: at once, and again only after minutes of its clock's real time.
            await until(lambda: world.part.looks)
            held = {alive: "net.c-alive", leaked: "net.c-leaked", orphan: "net.c-orphan"}
            await world.look()
            assert await world.held() == held, "once is not twice"
            await world.look(GAP + 1)
            assert await world.held() == {key: held[key] for key in (alive, leaked)}
            await world.look(GAP + 1)
            assert not any("/dead/" in key for key in stored.keys("/calico/ipam/v2/host/"))
            assert await store.get(endpoint[0]) is not None
            # The pod of the leaked address comes back in time: nothing happens.
            world.pod("leaked", "g1", leaked)
            await until(lambda: ("gc", "leaked") in world.part._pods.known)
            await world.look(GRACE + 1)
            assert await world.held() == {key: held[key] for key in (alive, leaked)}
            cluster.call("DELETE", f"{PODS}/leaked?gracePeriodSeconds=0")
            await until(lambda: ("gc", "leaked") not in world.part._pods.known)
            await world.look()
            await world.look(GRACE - 1)
            assert leaked in await world.held()
            await world.look(2)
            assert await world.held() == {alive: "net.c-alive"}
            assert await store.get(endpoint[0]) is None, "its endpoint went in the same transaction"
            assert world.part.released == {("pool", "dead"): 1, ("pool", "g1"): 1}
            await world.look()  # what is counted is as of a look's beginning
            told = metrics.render(works=True, parts=[], collection=world.part).decode()
            assert 'ipam_allocations_gc_reclamations{ippool="pool",node="g1"} 1.0' in told
            assert 'ipam_allocations_per_node{node="g1"} 1.0' in told
        await world.client.close()
    cluster.call("DELETE", f"{PODS}/alive?gracePeriodSeconds=0")
    cluster.delete(f"{NODES}/g1")


@pytest.mark.asyncio
async def test_while_the_api_is_away_nothing_is_judged_and_a_successor_is_safe(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("gc")
    cluster.ensure(NODES, {"metadata": {"name": "g1"}})
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.71.0.0/24", 28)
        await put_node(store, "g1", "g1")
        world = World(cluster, store)
        leaked = await world.assign("g1", "gone", "c1")
        async with running(world.view, world.part):
            await until(lambda: world.part.looks)
            await world.look()
            assert world.part.candidates == 1
            cluster.kill()
            await until(lambda: world.part.blind)
            await world.look(GRACE * 10)
            assert leaked in await world.held(), "LEAK-4"
            cluster.start()
            await until(lambda: not world.part.blind)
            # Another container got the address meanwhile, for a pod of the same name.
            await release_by_handle(store, "net.c1")
            request = AssignRequest(
                "g1", "net.c2", {"node": "g1", "pod": "gone", "namespace": "gc"}, num4=1
            )
            await auto_assign(store, request)
            await world.look(1)
            assert "net.c2" in (await world.held()).values(), "it waits from now on"
            await world.look(GRACE + 1)
            assert await world.held() == {}
        await world.client.close()
    cluster.delete(f"{NODES}/g1")


@pytest.mark.asyncio
async def test_a_block_that_stays_empty_beside_another_is_given_up(
    cluster: ApiServer, stored: Etcd
) -> None:
    cluster.namespace("gc")
    cluster.ensure(NODES, {"metadata": {"name": "g1"}})
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.71.0.0/24", 30)
        await put_node(store, "g1", "g1")
        world = World(cluster, store)
        given = [await world.assign("g1", f"p{n}", f"c{n}") for n in range(5)]
        for number, address in enumerate(given):
            world.pod(f"p{number}", "g1", address)
        claims = "/calico/ipam/v2/host/g1/"
        assert len(stored.keys(claims)) == 2
        async with running(world.view, world.part):
            await until(lambda: world.part.looks)
            await release_by_handle(store, "net.c4")
            await world.look()
            await world.look(GRACE)
            assert len(stored.keys(claims)) == 2
            await world.look(1)
            assert len(stored.keys(claims)) == 1
            assert len(stored.keys("/calico/ipam/v2/assignment/")) == 1
            # The last one stays, however empty.
            for number in range(4):
                await release_by_handle(store, f"net.c{number}")
            await world.look()
            await world.look(GRACE * 3)
            assert len(stored.keys(claims)) == 1
        await world.client.close()
    for number in range(5):
        cluster.call("DELETE", f"{PODS}/p{number}?gracePeriodSeconds=0")
    cluster.delete(f"{NODES}/g1")


@pytest.mark.asyncio
async def test_a_node_that_cannot_be_read_keeps_its_tunnel_and_claims(
    cluster: ApiServer, stored: Etcd
) -> None:
    """LEAK-5."""
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.71.0.0/24", 30)
        world = World(cluster, store)
        attributes = {"node": "torn", "type": "vxlanTunnelAddress"}
        for node in ("torn", "none"):
            await put_node(store, node, node)
            request = AssignRequest(node, f"vxlan-{node}", {**attributes, "node": node}, num4=1)
            await auto_assign(store, request)
        stored.put("/calico/resources/v3/projectcalico.org/nodes/torn", "{")
        stored.delete("/calico/resources/v3/projectcalico.org/nodes/none")
        async with running(world.view, world.part):
            await until(lambda: world.part.looks)
            for _ in range(4):
                await world.look(GAP + 1)
            assert set((await world.held()).values()) == {"vxlan-torn"}
            assert stored.keys("/calico/ipam/v2/host/torn/")
            assert not stored.keys("/calico/ipam/v2/host/none/")
        await world.client.close()


@pytest.mark.asyncio
async def test_a_pool_that_cannot_be_used_stops_no_look(cluster: ApiServer, stored: Etcd) -> None:
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.71.0.0/24", 28)
        await put_pool(store, "bad", "10.72.0.0/99", 28)
        world = World(cluster, store)
        async with running(world.view, world.part):
            await until(lambda: world.part.looks)
            await world.look(GAP + 1)
        assert list(world.part.counts.sizes) == ["pool"]
        await world.client.close()


@pytest.mark.asyncio
async def test_a_look_that_meets_what_it_cannot_read_is_followed_by_another(
    cluster: ApiServer,
    stored: Etcd,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stored.connect() as store:
        world = World(cluster, store)
        stumbled: list[str] = []

        async def stumble() -> bool:
            stumbled.append("10.72.0.0/99")
            raise ValueError(f"{stumbled[-1]!r} is no network")

        monkeypatch.setattr(world.part, "look", stumble)
        async with running(world.view, world.part):
            await until(lambda: stumbled)
            monkeypatch.undo()
            world.part.look_soon()
            await until(lambda: world.part.looks)
        assert "addresses are not collected: '10.72.0.0/99' is no network" in caplog.text
        await world.client.close()


def _endpoint(node: str, pod: str, container: str, address: str) -> tuple[ResourceKey, Any]:
    name = f"{node}-k8s-{pod}-eth0"
    value = WorkloadEndpoint(
        metadata=Metadata(name=name, namespace="gc"),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node=node,
            pod=pod,
            endpoint="eth0",
            containerID=container,
            ipNetworks=[f"{ip_address(address)}/32"],
            interfaceName="cali1",
        ),
    )
    return ResourceKey("WorkloadEndpoint", name, "gc"), value
