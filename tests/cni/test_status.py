"""STATUS says no where an ADD would fail: each cause by itself, with the real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.server.daemon import Daemon
from cni.verbs import status
from ipam.allocator.facts import Facts
from libcalico.datastore.interface import Delete, Put
from libcalico.model import IPAMConfig
from libcalico.model.keys import IPAMConfigKey, ResourceKey
from tests.cni.world import NODE, World, hurried, node_world, pod_namespace, put_pool, result_of
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

NEWEST = {"cniVersion": "1.1.0"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def facts(daemon: Daemon) -> Facts:
    found = daemon.context.cluster.facts(NODE)
    assert found is not None
    return found


async def told(node: World) -> str:
    """Why no pod can start; "" where one can."""
    done = await node.cni("STATUS", None, "", config=NEWEST)
    assert done.status == 0 or done.error["code"] == 50, done
    return str(done.error["msg"]) if done.status else ""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"maxBlocksPerHost": 1, "auto_allocate_blocks": True}, "maxBlocksPerHost"),
        ({"auto_allocate_blocks": False}, "no address is free"),
    ],
)
async def test_a_node_that_may_claim_no_block_more_is_full(
    node: World, pod: Namespace, settings: dict[str, Any], why: str
) -> None:
    async with node.daemon() as daemon:
        store = daemon.context.store
        await store.commit([Delete(ResourceKey("IPPool", "pool4"))])
        await put_pool(store, "small", "10.66.0.0/24", 32)
        await until(lambda: "small" in {p.name for p in facts(daemon).pools})
        assert await told(node) == ""
        result_of(await node.add(pod, "web-1"))
        config = IPAMConfig(strict_affinity=False, **settings)
        await store.commit([Put(IPAMConfigKey(), config)])
        await until(lambda: facts(daemon).config == config)
        with pod_namespace("second") as other:
            assert (await node.add(other, "web-2")).status != 0
        daemon.server.dispatcher._room.looked.clear()
        async with asyncio.timeout(HANG):
            while why not in await told(node):  # the look itself is not waited for
                pass


@pytest.mark.asyncio
async def test_a_node_without_its_node_resource_starts_no_pod(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        await daemon.context.store.commit([Delete(ResourceKey("Node", NODE))])
        await until(lambda: not daemon.context.cluster.has_node(NODE))
        assert (await node.add(pod)).status != 0
        assert "there is no Node resource" in await told(node)


@pytest.mark.asyncio
async def test_a_datastore_that_was_put_back_starts_no_pod(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        daemon.context.cluster.settle_seconds = HANG
        daemon.context.cluster.replaced()
        assert (await node.add(pod)).status != 0
        assert "put back to an earlier state" in await told(node)


@pytest.mark.asyncio
async def test_a_datastore_that_is_away_for_a_while_starts_no_pod(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.daemon() as daemon:
        with hurried(daemon, 2, datastore_seconds=3):
            node.etcd.kill()
            await until(lambda: not daemon.context.cluster.connected)
            monkeypatch.setattr(status, "QUIET_SECONDS", HANG)
            assert await told(node) == "", "it may be back at once"
            monkeypatch.setattr(status, "QUIET_SECONDS", 0)
            assert (await node.add(pod)).status != 0
            assert "the datastore does not answer" in await told(node)
            node.etcd.start()
            await until(lambda: daemon.context.cluster.connected)
            assert await told(node) == ""
