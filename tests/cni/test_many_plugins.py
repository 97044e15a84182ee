"""Many plugin processes at once: a node's whole set of pods starts, and ends, in one instant.

    30 executables (110 at full size) ──> cni.sock ──> one daemon ──> one etcd, one felix

Expectations: each is answered with an address of its own, its policy in force; requests share
transactions and links leave in groups; afterwards nothing is left of any, neither in the kernel nor
in the datastore nor of descriptors and processes in the daemon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cni.world import World, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import until

COUNT = 110 if os.environ.get("MUSLIN_FULL_SIZE") else 30


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pods() -> Iterator[list[Namespace]]:
    with ExitStack() as stack:
        yield [stack.enter_context(pod_namespace()) for _ in range(COUNT)]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.asyncio
@pytest.mark.promise("M-247")
async def test_all_pods_of_a_node_come_and_go_in_one_instant(
    node: World, pods: list[Namespace]
) -> None:
    async with node.felix() as felix, node.daemon(felix_socket=felix.socket) as daemon:
        config = {"policy_setup_timeout_seconds": 60}
        # One pod first: the block is claimed, libraries are loaded.
        result_of(await node.add(pods[0], "first", config=config))
        assert (await node.delete(pods[0], "first", config=config)).status == 0
        before, served = descriptors(), daemon.context.allocator.transactions

        for _ in range(2):
            added = await asyncio.gather(
                *(node.add(pod, f"web-{n}", config=config) for n, pod in enumerate(pods))
            )
            addresses = {result_of(done)["ips"][0]["address"] for done in added}
            assert len(addresses) == COUNT
            assert len(node.links()) == len(node.endpoints()) == node.in_use() == COUNT
            routes = node.space.run("ip", "route", "show", "proto", "109")
            assert all(address.removesuffix("/32") in routes for address in addresses)
            gone = await asyncio.gather(
                *(node.delete(pod, f"web-{n}", config=config) for n, pod in enumerate(pods))
            )
            assert {done.status for done in gone} == {0}
            await until(lambda: not node.links())
            node.assert_clean()

        # 4 * COUNT requests: how they fall together depends on the machine, but never one by one.
        assert daemon.context.allocator.transactions - served < 3 * COUNT
        await until(lambda: descriptors() <= before + 4)
