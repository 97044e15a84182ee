"""CNI-73: a machine that is not the node gives nothing of that node back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import cni.node.own_machine
from cni.node.cluster import Cluster
from cni.node.own_machine import foreign
from cni.server.daemon import Daemon
from ipam.allocator.stored_claims import claimed_network
from libcalico.datastore.interface import Delete, Entry, Put, Selection
from libcalico.errors import InvalidValue
from libcalico.model import Metadata, Node, ResourceKey
from libcalico.model.keys import BlockKey
from libcalico.model.resources.node import NodeAddress, NodeBGPSpec, NodeSpec
from tests.cni.world import NODE, World, node_world, pod_namespace, result_of
from tests.support.patience import until

GAP = 0.2


def node_with(address: str) -> Node:
    return Node(metadata=Metadata(name=NODE), spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address=address)))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@asynccontextmanager
async def as_clone(node: World, stored: str = "10.99.1.77/24") -> AsyncIterator[Daemon]:
    """A daemon under the name of a node that has another address, and whose pod runs there."""
    with pod_namespace("lives") as lives:
        async with node.daemon() as daemon:
            await daemon.context.store.commit(
                [Put(ResourceKey("Node", NODE), node_with("10.99.1.1/24"))]
            )
            result_of(await node.add(lives, "lives-1"))
            await daemon.context.store.commit([Put(ResourceKey("Node", NODE), node_with(stored))])
        # Here its link is not: it is on the other machine.
        node.space.run("ip", "link", "delete", node.links()[0])
        async with node.daemon(prepare=False, collect_gap=GAP) as daemon:
            yield daemon


def test_an_address_of_the_node_is_on_an_interface_here() -> None:
    here = [ip_address("10.0.0.1"), ip_address("fd00::1")]
    assert "no Node(n)" in foreign("n", None, here)
    assert foreign("n", node_with("10.0.0.1/24"), here) == ""
    assert "10.0.0.2, which is on no interface" in foreign("n", node_with("10.0.0.2/24"), here)
    both = NodeSpec(bgp=NodeBGPSpec(ipv4Address="10.0.0.2/24", ipv6Address="fd00::1/64"))
    assert foreign("n", Node(metadata=Metadata(name="n"), spec=both), here) == ""
    kubelet = NodeSpec(addresses=[NodeAddress(address="10.0.0.2", type="InternalIP")])
    assert "10.0.0.2" in foreign("n", Node(metadata=Metadata(name="n"), spec=kubelet), here)
    assert "no address" in foreign("n", Node(metadata=Metadata(name="n")), here)


@pytest.mark.asyncio
async def test_a_clone_collects_no_address_and_says_why(
    node: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "cni.server.collection"):
        async with as_clone(node) as daemon:
            await until(lambda: daemon.collection.foreign)
            await asyncio.sleep(3 * GAP)
            assert node.in_use() == len(node.endpoints()) == 1
            assert "10.99.1.77, which is on no interface" in str(daemon._status()["conditions"])
            # GC, with the list of a runtime that has none of that node's pods.
            valid: dict[str, Any] = {"cni.dev/valid-attachments": []}
            assert (
                await node.cni("GC", None, "", config={"cniVersion": "1.1.0"} | valid)
            ).status == 0
            await asyncio.sleep(3 * GAP)
            assert node.in_use() == len(node.endpoints()) == 1
            # It was this node, renumbered while it was down: start-up stores the new address.
            await daemon.context.store.commit(
                [Put(ResourceKey("Node", NODE), node_with("10.99.1.1/24"))]
            )
            await until(lambda: node.in_use() == 0)
            await until(lambda: not daemon.collection.foreign)
    assert caplog.text.count("no address is collected: Node(node1) has 10.99.1.77") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("claim_too", [True, False])
async def test_a_clone_writes_no_deleted_block_again(
    node: World, caplog: pytest.LogCaptureFixture, claim_too: bool
) -> None:
    """It knows nothing of the pods that came since it was copied: they would lose addresses."""
    async with as_clone(node) as daemon:
        store = daemon.context.store
        await until(lambda: daemon.collection.foreign)
        (claim,) = (await store.list(Selection("BlockAffinity"))).entries
        block = BlockKey(claimed_network(claim))
        await store.commit([Delete(block), *([Delete(claim.key)] if claim_too else [])])
        if not claim_too:
            await daemon.context.allocator.warm()
        refused = "is not written again: Node(node1) has 10.99.1.77, which is on no interface"
        await until(lambda: refused in caplog.text)
        assert await store.get(block) is None
        await store.commit([Put(ResourceKey("Node", NODE), node_with("10.99.1.1/24"))])
        if not claim_too:
            await daemon.context.allocator.warm()
        await until(lambda: node.in_use() == 1)


@pytest.mark.asyncio
async def test_a_container_with_a_network_of_its_own_collects_nothing(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cni.node.own_machine, "INITIAL_PIDS", "pid:[1]")
    home = Path("/proc/self/ns/net")  # of the process, whose main thread is in the node
    monkeypatch.setattr(cni.node.own_machine, "FIRST_PROCESS", Path("/proc/self/ns/mnt"))
    assert not cni.node.own_machine.in_own_container_network(), (
        "a namespace that was made for a node"
    )
    monkeypatch.setattr(cni.node.own_machine, "FIRST_PROCESS", home)
    async with as_clone(node, "10.99.1.1/24") as daemon:
        await until(lambda: daemon.collection.foreign)
        assert "network of its own" in daemon.collection.foreign
        await asyncio.sleep(3 * GAP)
        assert node.in_use() == 1


def test_the_machines_own_network_is_no_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cni.node.own_machine, "INITIAL_PIDS", "pid:[1]")
    existing: Any = Path("/proc/self")
    monkeypatch.setattr(cni.node.own_machine, "FIRST_NETWORK_ONLY", existing)
    assert not cni.node.own_machine.in_own_container_network()


@pytest.mark.asyncio
@pytest.mark.parametrize("started", ["before", "after"])
async def test_a_node_that_cannot_be_read_is_named_with_its_field(
    node: World, started: str
) -> None:
    path = "/calico/resources/v3/projectcalico.org/nodes/node1"
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            value = node.etcd.get(path) or b""
        wrong = '{"metadata":{"name":"node1"},"spec":{"bgp":{"ipv4Address":7}}}'
        if started == "after":
            node.etcd.put(path, wrong)
        async with node.daemon(prepare=False) as daemon:
            if started == "before":
                await until(lambda: daemon.context.cluster.has_node(NODE))
                node.etcd.put(path, wrong)
                await until(lambda: not daemon.context.cluster.has_node(NODE))
            for plugin in ("calico", "calico-ipam"):
                refused = await node.add(pod, plugin=plugin)
                assert (refused.status, refused.error["code"]) == (1, 11)
                assert "cannot be read: Node(node1): spec.bgp.ipv4Address" in refused.error["msg"]
            (told,) = daemon._conditions()
            assert told["object"] == "Node(node1)"
            assert "spec.bgp.ipv4Address" in told["reason"]
            node.etcd.delete(path)
            await until(lambda: daemon.context.cluster.in_sync)
            refused = await node.add(pod)
            assert "there is no Node resource of this node" in refused.error["msg"]
            node.etcd.put(path, value)
            await until(lambda: daemon.context.cluster.has_node(NODE))
            result_of(await node.add(pod))
            # The collector's word may be of the time without a Node, until its next sweep.
            await until(lambda: daemon._status()["conditions"] == [])
            await node.delete(pod)


@pytest.mark.asyncio
async def test_that_a_node_cannot_be_read_is_told_while_it_is_asked_for_again() -> None:
    """STATUS and the conditions are told meanwhile, of another pod's ADD."""
    answers = asyncio.Event()

    async def get(_: object) -> None:
        await answers.wait()
        raise InvalidValue("spec.bgp.ipv4Address", 7, "expected `str`")

    cluster = Cluster(cast(Any, SimpleNamespace(get=get)), NODE)
    answers.set()
    await cluster.find_node()
    told = cluster.unreadable
    assert "spec.bgp.ipv4Address" in told
    answers.clear()
    asking = asyncio.create_task(cluster.find_node())
    await asyncio.sleep(0)
    assert cluster.unreadable == told
    answers.set()
    await asking
    assert cluster.unreadable == told


@pytest.mark.asyncio
async def test_no_pod_starts_without_a_node(node: World) -> None:
    """An operator deleted it: what its pods have may look free."""
    with pod_namespace() as pod:
        async with node.daemon() as daemon:
            await until(lambda: daemon.context.cluster.has_node(NODE))
            await daemon.context.store.commit([Delete(ResourceKey("Node", NODE))])
            await until(lambda: not daemon.context.cluster.has_node(NODE))
            for plugin in ("calico", "calico-ipam"):
                refused = await node.add(pod, plugin=plugin)
                assert (refused.status, refused.error["code"]) == (1, 11)
                assert "there is no Node resource of this node, 'node1'" in refused.error["msg"]
            node.assert_clean()
            await daemon.context.store.commit(
                [Put(ResourceKey("Node", NODE), node_with("10.99.1.1/24"))]
            )
            await until(lambda: daemon.context.cluster.has_node(NODE))
            result_of(await node.add(pod))
            await node.delete(pod)


@pytest.mark.parametrize(("uid", "expected"), [("one", 1), ("another", 2)])
def test_a_node_that_was_made_anew_unseen_has_come(uid: str, expected: int) -> None:
    """Its deletion and its return are one change for a watch that was cut, or a slow reader."""
    came = []
    cluster = Cluster(cast(Any, None), NODE)
    cluster.node_came = lambda: came.append(1)
    key = ResourceKey("Node", NODE)
    for revision, one in enumerate(("one", uid)):
        cluster._take(key, Entry(key, Node(metadata=Metadata(name=NODE, uid=one)), revision, b""))
    assert len(came) == expected
    assert cluster.has_node(NODE)
