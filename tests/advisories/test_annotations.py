"""CVE-2022-28224: an annotation that draws others' traffic, written by who may write a pod.

The real executable, daemon, etcd and felix; the attacker writes annotations and nothing else. An
annotation works only with the authority that stands elsewhere: the network configuration, the
pools, felix's configuration.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from libcalico.datastore.interface import Put
from libcalico.model import FelixConfiguration, FelixConfigurationSpec, Metadata, ResourceKey
from tests.cni.test_annotations import annotated
from tests.cni.world import NODE, World, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import until

pytestmark = pytest.mark.asyncio
VICTIM = "10.99.1.77"
WAITING = {"policy_setup_timeout_seconds": 20}
ALLOWED = {"floating_ips": True, "ip_addrs_no_ipam": True}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with node_world(tmp_path_factory.mktemp("node")) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


@pytest_asyncio.fixture
async def serving(node: World) -> AsyncIterator[World]:
    async with node.felix() as felix, node.daemon(felix_socket=felix.socket):
        yield node
        node.assert_clean()


async def configure(node: World, **spec: Any) -> None:
    """Felix's configuration of this node."""
    key = ResourceKey("FelixConfiguration", f"node.{NODE}")
    value = FelixConfiguration(
        metadata=Metadata(name=key.name), spec=FelixConfigurationSpec(**spec)
    )
    async with node.etcd.connect(5.0) as store:
        entry = await store.get(key)
        await store.commit([Put(key, value, entry.revision if entry else None)])


def conditions(node: World) -> str:
    file: Path = node.folder / "run/calico/status/felix.json"
    return json.dumps(json.loads(file.read_text())["conditions"]) if file.exists() else ""


def rules(node: World) -> str:
    return node.space.run("iptables-nft-save", "-t", "nat")


@pytest.mark.promise("ADV-2")
async def test_no_annotation_works_without_its_authority(serving: World, pod: Namespace) -> None:
    """Each in turn: the ADD fails and nothing is left."""
    for wish in (
        {"floatingIPs": [VICTIM]},
        {"ipAddrsNoIpam": [VICTIM]},
        {"ipAddrs": [VICTIM]},
        {"ipv4pools": ["192.0.2.0/24"]},
    ):
        done = await serving.add(pod, config=annotated(**wish) | WAITING)
        assert done.status == 1, (wish, done)
        assert VICTIM not in rules(serving)
        serving.assert_clean()
    assert VICTIM not in serving.space.run("ip", "route")


@pytest.mark.promise("ADV-2")
async def test_prefixes_have_no_effect_unless_felix_allows_them(
    serving: World, pod: Namespace
) -> None:
    """Packets: tests/felix/kernel/test_confined.py."""
    config = annotated(allowedSourcePrefixes=["192.0.2.0/24"]) | WAITING
    result_of(await serving.add(pod, config=config))
    await until(lambda: "workloadSourceSpoofing is not Any" in conditions(serving))
    await configure(serving, workloadSourceSpoofing="Any")
    await until(lambda: "workloadSourceSpoofing" not in conditions(serving))
    assert (await serving.delete(pod)).status == 0
    await configure(serving)


@pytest.mark.promise("ADV-2")
async def test_the_plugins_word_is_not_enough_for_a_floating_address(
    serving: World, pod: Namespace
) -> None:
    """Allowed in the network configuration alone: the pod runs, and nothing leads to it."""
    config = annotated(ALLOWED, floatingIPs=[VICTIM]) | WAITING
    result_of(await serving.add(pod, config=config))
    await until(lambda: "floatingIPs is not Enabled" in conditions(serving))
    assert VICTIM not in rules(serving)
    await configure(serving, floatingIPs="Enabled")
    await until(lambda: f"-d {VICTIM}/32" in rules(serving))
    serving.space.run("ping", "-c", "1", "-W", "60", VICTIM)
    await configure(serving)
    await until(lambda: VICTIM not in rules(serving))
    assert (await serving.delete(pod)).status == 0


@pytest.mark.promise("F-16", "M-7", "F-8")
async def test_every_interface_of_a_pod_works(serving: World, pod: Namespace) -> None:
    """Routes, policy and CHECK by interface, as Multus would have them."""
    ipam = {"type": "calico-ipam", "assign_ipv6": "true"}
    calls: dict[str, dict[str, Any]] = {
        "eth0": {"ipam": ipam},
        "net1": {"name": "second"},
        "net2": {},
    }
    results = {
        ifname: result_of(await serving.add(pod, ifname=ifname, config=config | WAITING))
        for ifname, config in calls.items()
    }
    for ifname, result in results.items():
        for ip in result["ips"]:
            address = ip["address"].partition("/")[0]
            serving.space.run("ping", "-c", "1", "-W", "60", address)
        again = await serving.check(pod, result, ifname=ifname, config=calls[ifname])
        assert again.status == 0, again
    for ifname, config in calls.items():
        assert (await serving.delete(pod, ifname=ifname, config=config)).status == 0
