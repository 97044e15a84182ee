"""What GC finds stale, and that one failure does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cni.verbs.garbage
from cni.pods.endpoint import NETWORK_ANNOTATION
from cni.request.config import Attachment
from cni.verbs.garbage import Stale, find
from ipam.allocator import committer
from ipam.records.blocks import Allocation, parse_address
from libcalico.datastore.interface import Datastore, Entry, Put
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.keys import IPNetwork, ResourceKey
from tests.cni.world import NODE, World, container_id, node_world, pod_namespace, result_of
from tests.support.patience import HANG, until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


def allocation(handle: str, number: int, **attributes: str) -> tuple[Allocation, IPNetwork]:
    from ipaddress import ip_network

    address = parse_address(f"10.65.0.{number}")
    told = {"node": "node1"} | attributes
    return Allocation(address, handle, told, number), ip_network("10.65.0.0/28")


def endpoint(container: str, ifname: str, number: int, network: str = "") -> Entry:
    annotations = {NETWORK_ANNOTATION: network} if network else {}
    name = f"node1-k8s-{container}-{ifname}"
    value = WorkloadEndpoint(
        metadata=Metadata(name=name, namespace="default", annotations=annotations),
        spec=WorkloadEndpointSpec(
            node="node1", orchestrator="k8s", containerID=container, endpoint=ifname,
            interfaceName=f"cali{number}", ipNetworks=[f"10.65.0.{number}/32"],
        ),
    )  # fmt: skip
    return Entry(ResourceKey("WorkloadEndpoint", name, "default"), value, 7, b"")


def stale(endpoints: Any, allocations: Any, *valid: tuple[str, str]) -> list[tuple[str, str]]:
    listed = [Attachment(*one) for one in valid]
    found = find("net", "node1", endpoints, allocations, listed)
    return [(each.suspect.container_id, each.ifname) for each in found]


def test_what_counts_as_stale() -> None:
    ours = [allocation("net.c1", 1), allocation("net.c2", 2, interface="net1")]
    theirs = [
        allocation("other.c1", 3),
        allocation("net.c3", 4, node="node2"),
        allocation("net.tunnel", 5, type="ipipTunnelAddress"),
        allocation("net.machine", 6, vmi="x"),
        allocation("net.a.b", 7),
        allocation("network.c1", 8),
    ]
    both = [endpoint("c1", "eth0", 1)]
    assert stale(both, ours + theirs) == [("c1", "eth0"), ("c2", "net1")]
    assert stale(both, ours, ("c1", "eth0")) == [("c2", "net1")]
    assert stale(both, ours, ("c1", "net1"), ("c2", "")) == [("c1", "eth0")]
    assert stale([], ours, ("c1", "net9")) == [("c2", "net1")], "which interface nobody can say"
    # Addresses of another plugin: the endpoint itself names the network.
    assert stale([endpoint("c4", "eth0", 9)], []) == []
    assert stale([endpoint("c4", "eth0", 9, "net")], []) == [("c4", "eth0")]
    assert stale([endpoint("c4", "eth0", 9, "other")], []) == []


@pytest.mark.asyncio
async def test_one_failure_does_not_stop_the_others(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cni.verbs.garbage._remove

    async def remove(context: Any, each: Stale) -> None:
        if each.suspect.container_id == container_id("bad-1"):
            raise OSError("the kernel refuses")
        await real(context, each)

    gc = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
    with pod_namespace() as bad, pod_namespace() as good:
        async with node.daemon():
            result_of(await node.add(bad, "bad-1"))
            result_of(await node.add(good, "good-1"))
            monkeypatch.setattr(cni.verbs.garbage, "_remove", remove)
            error = (await node.cni("GC", None, "", config=gc)).error
            assert (error["code"], "1 of 2" in error["msg"]) == (100, True)
            assert "the kernel refuses" in error["details"]
            assert node.in_use() == 1
            monkeypatch.setattr(cni.verbs.garbage, "_remove", real)
            assert (await node.cni("GC", None, "", config=gc)).status == 0
            node.assert_clean()


async def relabel(store: Datastore, key: ResourceKey, value: str) -> None:
    """As kube-controllers does where a pod's labels change."""
    entry = await store.get(key)
    assert entry is not None
    labels = {**entry.value.metadata.labels, "new": value}
    meta = msgspec.structs.replace(entry.value.metadata, labels=labels)
    changed = msgspec.structs.replace(entry.value, metadata=meta)
    await store.commit([Put(key, changed, entry.revision, entry)])


@pytest.mark.asyncio
@pytest.mark.parametrize("always", [False, True])
async def test_an_endpoint_that_gets_a_label_meanwhile_is_collected_or_named(
    node: World, monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    key = ResourceKey("WorkloadEndpoint", f"{NODE}-k8s-web--1-eth0", "default")
    gc = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
    rounds = 0
    with pod_namespace() as pod:
        async with node.daemon(collect_gap=HANG):
            result_of(await node.add(pod, "web-1"))

            async def settle(store: Any, view: Any, plan: Any) -> Any:
                nonlocal rounds
                rounds += 1
                if always or rounds == 1:
                    view.learn(await store.get_many([key]))
                    await relabel(store, key, str(rounds))
                return await committer.settle(store, view, plan)

            monkeypatch.setattr("cni.verbs.garbage.settle", settle)
            done = await node.cni("GC", None, "", config=gc)
            if not always:
                assert done.status == 0
                node.assert_clean()
                return
            assert (done.error["code"], "1 of 1" in done.error["msg"]) == (11, True)
            assert "changed meanwhile" in done.error["details"]
            assert node.in_use() == 1
            monkeypatch.setattr("cni.verbs.garbage.settle", committer.settle)
            assert (await node.cni("GC", None, "", config=gc)).status == 0
            node.assert_clean()


@pytest.mark.asyncio
async def test_each_of_two_collections_hears_of_later_calls(
    node: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-85: the one that ends first takes its own list of callers away, not the other's."""
    lists: list[Any] = []
    ends = [asyncio.Event(), asyncio.Event()]

    async def collect(_context: Any, _turn: Any, called: Any, _request: Any) -> None:
        lists.append(called)
        await ends[len(lists) - 1].wait()

    monkeypatch.setattr(cni.verbs.garbage, "collect", collect)
    gc = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
    async with node.daemon() as daemon:
        calls = []
        for number in (1, 2):
            calls.append(asyncio.create_task(node.cni("GC", None, "", config=gc)))
            await until(lambda number=number: len(lists) == number)  # type: ignore[misc]
        await node.cni("STATUS", None, "", config={"cniVersion": "1.1.0"})
        assert lists[0] == lists[1] == {""}
        ends[1].set()
        assert (await calls[1]).status == 0
        with pod_namespace() as pod:
            result_of(await node.add(pod, "late-1"))
            assert container_id("late-1") in lists[0]
            ends[0].set()
            assert (await calls[0]).status == 0
            assert daemon.server.dispatcher.watching == []
            await node.delete(pod, "late-1")
