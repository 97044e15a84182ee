"""Nodes of a real API and their Calico Nodes in a real etcd (NOD-1, NOD-2)."""

from __future__ import annotations

import pytest

from controllers.addresses.collection import Collection
from controllers.nodes.node_existence import GRACE, NodeExistence
from controllers.nodes.node_view import NodeView
from controllers.nodes.nodes import Nodes
from ipam.allocator.library_assign import AssignRequest, auto_assign
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.interface import ABSENT, Datastore, Delete, Put, Selection
from libcalico.model import (
    HostEndpoint,
    HostEndpointSpec,
    Metadata,
    Node,
    NodeSpec,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import LifeSignKey, ResourceKey
from libcalico.model.resources.controllers import AutoHostEndpointConfig
from libcalico.model.resources.node import OrchRef
from libcalico.model.resources.status import LifeSign
from tests.controllers.running import running
from tests.ipam.world import put_pool
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

NODES = "/api/v1/nodes"


async def put_node(store: Datastore, name: str, kubernetes: str = "") -> None:
    refs = [OrchRef(nodeName=kubernetes, orchestrator="k8s")] if kubernetes else []
    node = Node(metadata=Metadata(name=name, labels={"own": "1"}), spec=NodeSpec(orchRefs=refs))
    await store.commit([Put(ResourceKey("Node", name), node, ABSENT)])


async def nodes_of(store: Datastore) -> set[str]:
    return {one.key.name for one in (await store.list(Selection("Node"))).entries}  # type: ignore[union-attr]


@pytest.mark.asyncio
async def test_a_node_that_kubernetes_lost_goes_with_all_that_was_its_own(
    cluster: ApiServer, stored: Etcd
) -> None:
    for name in ("k1", "k2"):
        cluster.ensure(NODES, {"metadata": {"name": name, "labels": {"rack": name}}})
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.70.0.0/24", 28)
        await put_node(store, "c1", "k1")
        await put_node(store, "c2", "k2")
        await put_node(store, "alone")
        await put_node(store, "old", "k-gone")
        for node in ("c2", "old"):
            attributes = {"node": node, "pod": "p", "namespace": "s"}
            request = AssignRequest(node, f"net.{node}", attributes, num4=1)
            address = (await auto_assign(store, request)).ipv4[0].ip
            name = f"{node}-k8s-p-eth0"
            endpoint = WorkloadEndpoint(
                metadata=Metadata(name=name, namespace="s"),
                spec=WorkloadEndpointSpec(
                    orchestrator="k8s", node=node, pod="p", endpoint="eth0",
                    ipNetworks=[f"{address}/32"], interfaceName="cali1",
                ),
            )  # fmt: skip
            await store.commit([Put(ResourceKey("WorkloadEndpoint", name, "s"), endpoint, ABSENT)])
        theirs = HostEndpoint(
            metadata=Metadata(name="theirs"), spec=HostEndpointSpec(node="c1", interfaceName="eth0")
        )
        await store.commit([Put(ResourceKey("HostEndpoint", "theirs"), theirs, ABSENT)])
        client = cluster.client()
        view = NodeView(client, store)
        part = Nodes(
            view, client, store, endpoints=AutoHostEndpointConfig(autoCreate="Enabled"),
            presence=NodeExistence(store, client, grace=0.0),
        )  # fmt: skip
        async with running(view, part):
            await until(lambda: part.in_sync and "old" not in view.nodes)
            assert await nodes_of(store) == {"c1", "c2", "alone"}
            await until(lambda: sum(map(len, view.endpoints.values())) == 4)
            c1 = await store.get(ResourceKey("Node", "c1"))
            assert c1 is not None
            assert c1.value.metadata.labels == {"own": "1", "rack": "k1"}
            # The label changes, and the host endpoint with it.
            patch = "application/merge-patch+json"
            change = {"metadata": {"labels": {"rack": None, "row": "7"}}}
            cluster.call("PATCH", f"{NODES}/k1", change, content=patch)
            await until(
                lambda: view.endpoints["c1"]["c1-auto-hep"].metadata.labels.get("row") == "7"
            )
            # The node goes.
            cluster.delete(f"{NODES}/k2")
            await until(lambda: set(view.nodes) == {"c1", "alone"} and part.in_sync)
            await until(lambda: "c2-auto-hep" not in view.endpoints.get("c2", {}))
            assert stored.keys("/calico/ipam/v2/host/") == []
            assert stored.keys("/calico/ipam/v2/handle/") == []
            assert stored.keys("/calico/ipam/v2/assignment/") == []
            assert (await store.list(Selection("WorkloadEndpoint"))).entries == []
            assert set(view.endpoints["c1"]) == {"theirs", "c1-auto-hep"}
            writes = part.writes
        view = NodeView(client, store)
        again = Nodes(view, client, store, endpoints=AutoHostEndpointConfig(autoCreate="Enabled"))
        async with running(view, again):
            await until(lambda: again.in_sync)
            assert (writes > 0, again.writes) == (True, 0), "nothing after a restart"
        # Switched off, the marked ones go and no other.
        view = NodeView(client, store)
        off = Nodes(view, client, store)
        async with running(view, off):
            await until(lambda: [*view.endpoints.get("c1", {})] == ["theirs"])
        await client.close()
        cluster.delete(f"{NODES}/k1")


@pytest.mark.asyncio
async def test_a_deleted_node_that_lives_or_comes_back_loses_nothing(
    cluster: ApiServer, stored: Etcd
) -> None:
    """`kubectl delete node`, and its kubelet registers again; or calico-node goes on (LEAK-6)."""
    cluster.ensure(NODES, {"metadata": {"name": "k5"}})
    now = 0.0
    async with stored.connect() as store:
        await put_pool(store, "pool", "10.75.0.0/24", 28)
        await put_node(store, "c5", "k5")
        attributes = {"node": "c5", "pod": "p", "namespace": "s"}
        await auto_assign(store, AssignRequest("c5", "net.c5", attributes, num4=1))
        client = cluster.client()
        view = NodeView(client, store)
        presence = NodeExistence(store, client, clock=lambda: now)
        part = Nodes(view, client, store, sync_labels=False, presence=presence, again=0.05)
        collection = Collection(view, client, store, clock=lambda: now, presence=presence)
        await ensure_initialized(store, "k8s")
        async with running(view, part, collection):
            await until(lambda: part.in_sync)
            cluster.delete(f"{NODES}/k5")
            await until(lambda: "c5" in presence.waiting)
            now = GRACE - 1
            await collection.look()
            cluster.ensure(NODES, {"metadata": {"name": "k5"}})
            await until(lambda: not presence.waiting)
            # It goes once more, and its calico-node does not.
            await store.commit([Put(LifeSignKey("c5"), LifeSign(host="c5"))])
            cluster.delete(f"{NODES}/k5")
            await until(lambda: "c5" in presence.waiting)
            now += 10 * GRACE
            await until(lambda: "signs of life" in presence.waiting.get("c5", ""))
            for _ in range(3):
                await collection.look()
            assert collection.nodes_held == 1
            assert await nodes_of(store) == {"c5"}
            assert len(stored.keys("/calico/ipam/v2/handle/")) == 1
            assert len(stored.keys("/calico/ipam/v2/host/c5/")) == 1
            await store.commit([Delete(LifeSignKey("c5"))])
            await until(lambda: not presence.waiting and "c5" not in view.nodes)
            assert stored.keys("/calico/ipam/v2/host/c5/") == []
        await client.close()


@pytest.mark.asyncio
async def test_a_node_that_the_api_still_has_stays(cluster: ApiServer, stored: Etcd) -> None:
    cluster.ensure(NODES, {"metadata": {"name": "k3"}})
    async with stored.connect() as store:
        await put_node(store, "c3", "k3")
        client = cluster.client()
        view = NodeView(client, store)
        part = Nodes(view, client, store, sync_labels=False)
        async with running(view, part):
            await until(lambda: part.in_sync)
            view.gone(next(iter(view.reflector._known)))
            await until(lambda: part.in_sync)
            assert await nodes_of(store) == {"c3"}, "NOD-1: it was asked for"
        await client.close()
    cluster.delete(f"{NODES}/k3")
