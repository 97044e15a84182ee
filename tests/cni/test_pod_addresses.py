"""Pools, families and fixed addresses that a pod asks for, through the daemon and a real etcd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.pods.pod_requests import PREFIX
from cni.request.config import POD_ANNOTATIONS
from cni.server.daemon import Daemon
from libcalico.datastore.interface import Put
from libcalico.model import Metadata, Profile, ProfileSpec, ResourceKey
from tests.cni.world import NODE, World, node_world, pod_namespace, put_pool, result_of
from tests.support.netns import Namespace
from tests.support.patience import until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


def annotated(**annotations: Any) -> dict[str, Any]:
    """A configuration as the runtime hands it over with the pod's annotations."""
    texts = {PREFIX + key: json.dumps(value) for key, value in annotations.items()}
    return {"runtimeConfig": {POD_ANNOTATIONS: texts}}


async def pools(world: World, *rows: tuple[str, str, dict[str, Any]]) -> None:
    async with world.etcd.connect(5.0) as store:
        for name, cidr, spec in rows:
            await put_pool(store, name, cidr, 28, **spec)


async def heard_of(daemon: Daemon, pool: str) -> None:
    """The daemon's watch has told of a pool."""

    def told() -> bool:
        facts = daemon.context.cluster.facts(NODE)
        return facts is not None and any(known.name == pool for known in facts.pools)

    await until(told)


def addresses(done: Any) -> list[str]:
    return [ip["address"] for ip in result_of(done)["ips"]]


@pytest.mark.asyncio
@pytest.mark.promise("F-23")
async def test_a_pod_chooses_its_pool_and_families(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        await pools(node, ("web", "10.66.0.0/24", {"assignmentMode": "Manual"}))
        await heard_of(daemon, "web")
        (first,) = addresses(await node.add(pod, config=annotated(ipv4pools=["web"])))
        assert first.startswith("10.66.0.")
        (other,) = addresses(await node.add(pod, "web-2", ifname="eth1"))
        assert other.startswith("10.65.0."), "a manual pool serves on request only"
        both = annotated(ipFamilies=["IPv4", "IPv6"], ipv4pools=["10.66.0.0/24"])
        four, six = addresses(await node.add(pod, "web-3", ifname="eth2", config=both))
        assert four.startswith("10.66.0.")
        assert six.startswith("fd65::")


@pytest.mark.asyncio
@pytest.mark.promise("F-23")
@pytest.mark.promise("F-24")
async def test_a_namespace_chooses_its_pool_by_label(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        async with node.etcd.connect(5.0) as store:
            name = "kns.shop"
            profile = Profile(
                metadata=Metadata(name=name),
                spec=ProfileSpec(labelsToApply={"pcns.team": "sales"}),
            )
            await store.commit([Put(ResourceKey("Profile", name), profile)])
            await put_pool(
                store, "a-sales", "10.66.0.0/24", 28, namespaceSelector="team == 'sales'"
            )
        await heard_of(daemon, "a-sales")
        (mine,) = addresses(await node.add(pod, namespace="shop"))
        assert mine.startswith("10.66.0.")
        (theirs,) = addresses(await node.add(pod, "web-2", ifname="eth1"))
        assert theirs.startswith("10.65.0.")


@pytest.mark.asyncio
@pytest.mark.promise("F-25")
async def test_a_pod_gets_the_very_addresses_it_names(node: World, pod: Namespace) -> None:
    config = annotated(ipAddrs=["10.65.0.77", "fd65::77"])
    async with node.daemon():
        got = addresses(await node.add(pod, config=config))
        assert got == ["10.65.0.77/32", "fd65::77/128"]
        assert addresses(await node.add(pod, config=config)) == got, "a repeated ADD keeps them"

        taken = json.loads((await node.add(pod, "web-2", ifname="eth1", config=config)).stdout)
        assert "10.65.0.77" in taken["msg"]
        assert (await node.delete(pod)).status == 0
        node.assert_clean()
        got = addresses(await node.add(pod, "web-2", ifname="eth1", config=config))
        assert got == ["10.65.0.77/32", "fd65::77/128"], "freed and asked for again: given"
        assert (await node.delete(pod, "web-2", ifname="eth1")).status == 0
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.promise("F-25")
async def test_an_address_outside_every_pool_is_refused(node: World, pod: Namespace) -> None:
    async with node.daemon() as daemon:
        await pools(node, ("tunnels", "10.67.0.0/24", {"allowedUses": ["Tunnel"]}))
        await heard_of(daemon, "tunnels")
        for wanted in ("192.0.2.1", "10.67.0.5"):
            done = await node.add(pod, config=annotated(ipAddrs=[wanted]))
            assert wanted in json.loads(done.stdout)["msg"], done
        node.assert_clean()
