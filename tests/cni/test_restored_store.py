"""An older backup of etcd is put back under running nodes, and nobody locked it before.

Two daemons on one real etcd, of which etcdctl makes and restores the snapshot. Pods came and went
since the backup was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libcalico.datastore.interface import Datastore, Put, Replaced
from libcalico.errors import DatastoreUnavailable
from libcalico.model import Metadata, Node, ResourceKey
from tests.cni.world import World, node_world, pod_namespace, put_pool, result_of
from tests.support.patience import HANG, until

BLOCK = 4


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


def second(node: World, folder: Path) -> World:
    """Another node on the same etcd and, for it makes no difference here, in the same namespace."""
    other = World(node.space, node.etcd, folder)
    other.settings = replace(other.settings, nodename_file=folder / "nodename")
    return other


def address(done: Any) -> str:
    return str(result_of(done)["ips"][0]["address"])


def held(node: World) -> tuple[dict[str, Any], set[str]]:
    endpoints = node.endpoints()
    for value in endpoints.values():
        value["metadata"].pop("resourceVersion", None)
    return endpoints, set(node.handles())


async def asked(store: Datastore) -> None:
    """Something is read, as soon as there is an answer, whatever it is."""
    async with asyncio.timeout(HANG):
        while True:
            try:
                await store.get(ResourceKey("Node", "node2"))
            except DatastoreUnavailable:
                await asyncio.sleep(0.01)
            except Replaced:
                return
            else:
                return


@pytest.mark.promise("M-126")
@pytest.mark.asyncio
@pytest.mark.parametrize("token", ["etcd-cluster", "restored"])
async def test_living_nodes_put_back_what_they_own_and_no_address_is_given_twice(
    node: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    (tmp_path / "second").mkdir()
    other = second(node, tmp_path / "second")
    with ExitStack() as stack:
        spaces = [stack.enter_context(pod_namespace(f"p{n}")) for n in range(2 * BLOCK + 5)]
        async with node.daemon() as first:
            store = first.context.store
            await put_pool(store, "pool4", "10.65.0.0/27", 30)
            beside = ResourceKey("Node", "node2")
            await store.commit([Put(beside, Node(metadata=Metadata(name="node2")))])
            async with other.daemon(prepare=False, node="node2") as second_daemon:
                for daemon in (first, second_daemon):
                    daemon.context.cluster.settle_seconds = HANG  # until all is put back
                pods = iter(spaces)
                given = {"old": address(await node.add(next(pods), "old"))}
                given["theirs"] = address(await other.add(next(pods), "theirs"))
                node.etcd.save(tmp_path / "backup")
                for number in range(BLOCK + 2):
                    name = f"young{number}"
                    given[name] = address(await node.add(next(pods), name))
                # By revisions alone a node can tell only what it has asked since the backup.
                given["theirs-young"] = address(await other.add(next(pods), "theirs-young"))
                before = held(node)

                go = asyncio.Event()
                look = first.restorer.look

                async def later() -> None:
                    await go.wait()
                    await look()

                monkeypatch.setattr(first.restorer, "look", later)
                node.etcd.stop()
                node.etcd.put_back(tmp_path / "backup", token)
                node.etcd.start()
                # Addresses of living pods look free now, to every node. Who asks first may take
                # what it is told for any other failure.
                await asked(second_daemon.context.store)
                late = next(pods)
                refused = await other.add(late, "late")
                assert refused.error["code"] == 11, refused
                told = refused.error["msg"] + refused.error.get("details", "")
                assert "earlier state" in told
                assert "earlier state" in str(second_daemon._status()["conditions"])
                await until(lambda: first.context.cluster.settling)
                early = await node.add(late, "late")
                assert early.error["code"] == 11, early
                go.set()
                await until(lambda: held(node) == before)
                for daemon in (first, second_daemon):
                    await until(lambda d=daemon: d.context.cluster.connected)  # type: ignore[misc]
                    daemon.context.cluster.settle_seconds = 0.0
                await until(lambda: not first.restorer.lost)
                assert "earlier state" not in str(first._status()["conditions"])
                for name, there in (("late", other), ("later", node)):
                    space = late if name == "late" else next(pods)
                    given[name] = address(await there.add(space, name))
                assert len(set(given.values())) == len(given), given
                assert node.in_use() == len(given)
                pods = iter(spaces)
                for name in given:
                    there = other if name in ("theirs", "theirs-young", "late") else node
                    assert (await there.delete(next(pods), name)).status == 0
        node.assert_clean()
