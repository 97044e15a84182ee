"""NODE-4: a Node that was deleted under a running calico-node is back, with a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from ipam.admin import node_removal
from ipam.records.tunnel_kinds import TUNNELS
from libcalico.datastore.interface import Delete, Put
from libcalico.model import FelixConfiguration
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import (
    Node,
    NodeBGPSpec,
    NodeSpec,
    NodeStatus,
    NodeWireguardSpec,
)
from node.settings.environment import settings
from node.start import addresses, cluster_objects, node_object
from node.start.own_node import Keeper, remembered
from tests.node.world import RESOURCES, resource
from tests.support.etcd import Etcd
from tests.support.patience import until

NODE = ResourceKey("Node", "node1")


@asynccontextmanager
async def keeping(etcd: Etcd, environ: dict[str, str], **more: str) -> AsyncIterator[Any]:
    """A registered node, its keeper, a store, and what was warned of."""
    chosen = settings(environ | more)
    warned: list[tuple[str, str]] = []
    async with etcd.connect() as store:
        await node_object.register(store, "node1", chosen, await addresses.look())
        await cluster_objects.ensure_objects(store, "node1")
        keeper = Keeper(store, "node1", chosen, warn=lambda *told: warned.append(told))
        task = asyncio.create_task(keeper.run())
        try:
            await until(lambda: keeper._last is not None)
            yield keeper, store, warned
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("wish", ["", "autodetect", "10.99.1.1/24"])
async def test_a_deleted_node_is_written_again_as_it_was(
    etcd_inside: Etcd, environ: dict[str, str], wish: str
) -> None:
    more = {"IP": wish, "CALICO_K8S_NODE_REF": "k1"}
    async with keeping(etcd_inside, environ, **more) as (keeper, store, warned):
        path = RESOURCES + "nodes/node1"
        entry = await store.get(NODE)
        labels = replace(entry.value.metadata, labels={"rack": "a"})
        bgp = replace(entry.value.spec.bgp, asNumber=64599, ipv4IPIPTunnelAddr="10.65.0.1")
        spec = replace(entry.value.spec, bgp=bgp)
        set_by_hand = replace(entry.value, metadata=labels, spec=spec)
        await store.commit([Put(NODE, set_by_hand, entry.revision, entry)])
        await until(lambda: keeper._last and keeper._last.metadata.labels == {"rack": "a"})
        entry = await store.get(NODE)
        await node_removal.remove(store, entry)
        await until(lambda: etcd_inside.get(path))
        node = resource(etcd_inside, "nodes/node1")
        assert node["metadata"]["labels"] == {"rack": "a"}
        assert node["metadata"]["uid"] != str(entry.value.metadata.uid)
        assert node["spec"]["bgp"] == {"ipv4Address": "10.99.1.1/24", "asNumber": 64599}
        assert node["spec"]["orchRefs"] == [{"nodeName": "k1", "orchestrator": "k8s"}]
        await until(lambda: keeper.written == 1)
        assert resource(etcd_inside, "felixconfigurations/node.node1")
        again = "it was deleted while calico-node runs here, and is written again"
        # A removal takes its settings first, which may be seen before the Node goes.
        assert [one for one in warned if one[0] == "own Node"] == [("own Node", again)]
        # And once more.
        await store.commit([Delete(NODE)])
        await until(lambda: keeper.written == 2)
        assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["asNumber"] == 64599


@pytest.mark.asyncio
async def test_a_node_that_goes_again_while_it_is_written_comes_back(
    etcd_inside: Etcd, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second deletion is heard before the first one's work has ended."""
    async with keeping(etcd_inside, environ) as (keeper, store, warned):
        deleted, heard = False, asyncio.Event()
        whole, ensure = keeper._is_whole, cluster_objects.ensure_objects

        def is_whole(node: Node | None) -> bool:
            if deleted and node is None:
                heard.set()
            return bool(whole(node))

        async def ensure_objects(*arguments: Any) -> None:
            nonlocal deleted
            if not deleted:
                # What was written is heard of first, or both would be one piece of news.
                await until(lambda: keeper._last.metadata.uid != before.value.metadata.uid)
                deleted = True
                await store.commit([Delete(NODE)])
                await heard.wait()
            await ensure(*arguments)

        monkeypatch.setattr(keeper, "_is_whole", is_whole)
        monkeypatch.setattr(cluster_objects, "ensure_objects", ensure_objects)
        before = await store.get(NODE)
        await store.commit([Delete(NODE)])
        await until(lambda: keeper.written == 2)
        assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"] == "10.99.1.1/24"
        assert len(warned) == 2


@pytest.mark.asyncio
async def test_a_node_that_cannot_be_read_is_said_to_be_so_and_left(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    async with keeping(etcd_inside, environ) as (keeper, _, warned):
        path = RESOURCES + "nodes/node1"
        wrong = b'{"metadata":{"name":"node1"},"spec":{"bgp":7}}'
        etcd_inside.put(path, wrong)
        await until(lambda: warned)
        assert "it cannot be read: Node(node1): spec.bgp" in warned[0][1]
        assert (etcd_inside.get(path), keeper.written) == (wrong, 0)


@pytest.mark.asyncio
async def test_a_node_that_lost_its_addresses_gets_them_back(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    """As the kubelet makes it anew on the Kubernetes datastore, where none is made here."""
    async with keeping(etcd_inside, environ, IP="autodetect") as (keeper, store, _):
        keeper._makes = False
        entry = await store.get(NODE)
        await store.commit([Delete(NODE)])
        await asyncio.sleep(0.3)
        assert keeper.written == 0, "it is the kubelet's to make"
        await store.commit([Put(NODE, Node(metadata=Metadata(name="node1")))])
        await until(lambda: keeper.written == 1)
        assert resource(etcd_inside, "nodes/node1")["spec"]["bgp"]["ipv4Address"] == "10.99.1.1/24"
        assert remembered(entry.value).metadata.uid == ""


@pytest.mark.asyncio
async def test_the_nodes_own_settings_are_written_again(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    key = ResourceKey("FelixConfiguration", "node.node1")
    async with keeping(etcd_inside, environ) as (keeper, store, warned):
        before = resource(etcd_inside, "felixconfigurations/node.node1")["spec"]
        await store.commit([Put(ResourceKey("FelixConfiguration", "node.node10"), OTHERS)])
        await store.commit([Delete(key)])
        await until(lambda: warned)
        assert resource(etcd_inside, "felixconfigurations/node.node1")["spec"] == before
        again = "it was deleted while calico-node runs here, and is written again"
        assert warned == [("own settings", again)]
        assert keeper.written == 0


OTHERS = FelixConfiguration(metadata=Metadata(name="node.node10"))


def test_what_is_said_again_is_what_is_still_true() -> None:
    """No tunnel's address, which may be another's by now, and no key of an earlier program."""
    node = Node(
        metadata=Metadata(name="node1", labels={"rack": "a"}),
        spec=NodeSpec(
            bgp=NodeBGPSpec(ipv4Address="10.99.1.1/24", asNumber=64599),
            wireguard=NodeWireguardSpec(),
        ),
        status=NodeStatus(
            wireguardPublicKey="k", wireguardPublicKeyV6="l", podCIDRs=["10.244.1.0/24"]
        ),
    )
    for number, tunnel in enumerate(TUNNELS, 1):
        node = tunnel.written(
            node, f"10.65.0.{number}" if tunnel.family == 4 else f"fd65::{number}"
        )
    found = remembered(node)
    assert [tunnel.recorded(found) for tunnel in TUNNELS] == [""] * len(TUNNELS)
    assert found.spec == NodeSpec(bgp=NodeBGPSpec(ipv4Address="10.99.1.1/24", asNumber=64599))
    assert found.status == NodeStatus(podCIDRs=["10.244.1.0/24"])
    assert found.metadata.labels == {"rack": "a"}
    assert remembered(found) == found


@pytest.mark.asyncio
async def test_a_node_without_addresses_is_left_where_it_has_none(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    more = {"CALICO_NETWORKING_BACKEND": "none"}
    async with keeping(etcd_inside, environ, **more) as (keeper, store, _):
        await store.commit([Delete(NODE)])
        await until(lambda: keeper.written == 1)
        await until(lambda: not keeper.missing)
