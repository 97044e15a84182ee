"""What a killed daemon left unmarked is ours only by the whole picture (CNI-14)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cni.veth.orphan_veths import HOST_MAC
from libcalico import names
from tests.cni.world import World, node_world, pod_namespace, result_of
from tests.support.netns import Namespace

LINK = names.host_interface_name("default", "web-1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def make(node: World, pod: Namespace, *more: str, name: str = LINK, mac: str = HOST_MAC) -> None:
    """The pair as it is before it is marked."""
    peer = ("peer", "name", "eth0", "netns", pod.name)
    node.space.run("ip", "link", "add", name, "address", mac, "type", "veth", *peer)
    node.space.run("ip", "link", "set", name, "up")
    if more:
        pod.run("ip", *more)


@pytest.mark.asyncio
async def test_it_is_removed_by_add_and_by_del(node: World, pod: Namespace) -> None:
    async with node.daemon():
        make(node, pod)
        result_of(await node.add(pod))
        assert (await node.delete(pod)).status == 0
        node.assert_clean()
        make(node, pod)
        assert (await node.delete(pod)).status == 0
        node.assert_clean()
        assert "eth0" not in pod.run("ip", "link")


@pytest.mark.asyncio
async def test_anything_else_stays(node: World, pod: Namespace) -> None:
    async with node.daemon():
        for more in (
            {"name": "cali12345678901"},
            {"mac": "ee:ee:ee:ee:ee:ef"},
            {"up": ("link", "set", "eth0", "up")},
        ):
            up = more.pop("up", ())
            make(node, pod, *up, **more)
            assert "is not ours" in (await node.add(pod)).error["msg"]
            assert (await node.delete(pod)).status == 0
            assert "eth0" in pod.run("ip", "link")
            pod.run("ip", "link", "delete", "eth0")
        # Another pod's namespace: the DEL of an older sandbox.
        with pod_namespace("other") as other:
            make(node, other)
            assert (await node.delete(pod)).status == 0
            assert node.links() == [LINK]
            other.run("ip", "link", "delete", "eth0")
