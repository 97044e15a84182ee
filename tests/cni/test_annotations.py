"""What a pod's annotations do, from the runtime's hand-over to kernel, datastore and release.

Also several interfaces of one pod, and both generations of the configuration.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cni.server.daemon import Daemon
from libcalico import names
from libcalico.apiconfig import ETCD, DatastoreConfig
from libcalico.datastore.interface import Put
from libcalico.model import Metadata, Node, ResourceKey
from tests.cni.world import (
    NETWORK,
    NODE,
    World,
    container_id,
    node_world,
    pod_namespace,
    put_pool,
    result_of,
)
from tests.support.certificates import Authority
from tests.support.netns import Namespace
from tests.support.patience import patient

pytestmark = pytest.mark.asyncio
PREFIX = "cni.projectcalico.org/"
CANARY = "canary-token-of-the-configuration"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with node_world(tmp_path_factory.mktemp("node")) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


@pytest_asyncio.fixture
async def daemon(node: World) -> AsyncIterator[Daemon]:
    access = DatastoreConfig(ETCD, etcd_endpoints=node.etcd.endpoint)
    async with node.daemon(more={"access": access}) as running:
        yield running
        node.assert_clean()


def annotated(features: Any = None, **annotations: Any) -> dict[str, Any]:
    """A configuration as containerd sends it for a pod with these annotations."""
    written = {
        PREFIX + name: value if isinstance(value, str) else json.dumps(value)
        for name, value in annotations.items()
    }
    return {
        "capabilities": {"io.kubernetes.cri.pod-annotations": True},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": written},
        "feature_control": features or {},
    }


def spec_of(node: World, name: str = "node1-k8s-web--1-eth0") -> dict[str, Any]:
    found: dict[str, Any] = node.endpoints()[name]["spec"]
    return found


def addresses_of(space: Namespace, ifname: str = "eth0") -> set[str]:
    found = json.loads(space.run("ip", "-j", "address", "show", ifname))[0]["addr_info"]
    return {each["local"] for each in found if each["scope"] == "global"}


@pytest.mark.promise("F-10")
async def test_a_pod_gets_the_address_and_the_mac_that_it_asks_for(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    mac = "7e:11:22:33:44:55"
    config = annotated(ipAddrs=["10.65.0.77", "fd65::77"], hwAddr=mac)
    result = result_of(await node.add(pod, config=config))
    assert [ip["address"] for ip in result["ips"]] == ["10.65.0.77/32", "fd65::77/128"]
    assert result["interfaces"][1]["mac"] == mac
    assert addresses_of(pod) == {"10.65.0.77", "fd65::77"}
    assert f"link/ether {mac}" in pod.run("ip", "link", "show", "eth0")
    assert spec_of(node)["mac"] == mac
    with pod_namespace("other") as other:
        taken = await node.add(other, "web-2", config=config)
        assert taken.status == 1
        assert "10.65.0.77" in taken.error["msg"]
        outside = await node.add(other, "web-2", config=annotated(ipAddrs=["192.0.2.1"]))
        assert "192.0.2.1" in outside.error["msg"]
    assert (await node.delete(pod)).status == 0


@pytest.mark.promise("F-8", "F-9")
@pytest.mark.parametrize(
    ("families", "expected"), [(["IPv4", "IPv6"], [4, 6]), (["IPv6"], [6]), (["IPv4"], [4])]
)
async def test_families_are_the_pods_to_choose(
    node: World, pod: Namespace, daemon: Daemon, families: list[str], expected: list[int]
) -> None:
    result = result_of(await node.add(pod, config=annotated(ipFamilies=families)))
    found = [6 if ":" in ip["address"] else 4 for ip in result["ips"]]
    assert found == expected
    routes = {4: pod.run("ip", "-4", "route"), 6: pod.run("ip", "-6", "route")}
    for family in (4, 6):
        assert ("default" in routes[family]) is (family in expected)
    assert (await node.delete(pod)).status == 0


@pytest.mark.promise("F-9")
async def test_a_cluster_may_have_no_ipv4_at_all(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    ipam = {"type": "calico-ipam", "assign_ipv4": "false", "assign_ipv6": "true"}
    result = result_of(await node.add(pod, config={"ipam": ipam}))
    assert [":" in ip["address"] for ip in result["ips"]] == [True]
    assert len(spec_of(node)["ipNetworks"]) == 1
    assert not pod.run("ip", "-4", "route")
    link = names.host_interface_name("default", "web-1")
    address = result["ips"][0]["address"].removesuffix("/128")
    node.space.run("ip", "route", "add", address, "dev", link)
    node.space.run("ping", "-c", "1", "-w", "60", address)
    assert (await node.delete(pod)).status == 0


async def test_pools_are_the_pods_to_choose(node: World, pod: Namespace, daemon: Daemon) -> None:
    await put_pool(daemon.context.store, "extra", "10.67.0.0/24", 28)
    try:
        async with asyncio.timeout(patient(10)):
            while True:
                done = await node.add(pod, config=annotated(ipv4pools=["10.67.0.0/24"]))
                if done.status == 0:
                    break
                await asyncio.sleep(0.05)  # the watch tells the daemon of a new pool
        assert result_of(done)["ips"][0]["address"].startswith("10.67.0.")
        assert (await node.delete(pod)).status == 0
        unknown = await node.add(pod, config=annotated(ipv4pools=["nowhere"]))
        assert unknown.status == 1
        assert "nowhere" in unknown.error["msg"]
    finally:
        node.etcd.ctl("del", "/calico/resources/v3/projectcalico.org/ippools/extra")


@pytest.mark.promise("ADV-2")
async def test_addresses_without_ipam_need_an_administrator(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    wish = {"ipAddrsNoIpam": ["192.0.2.50", "2001:db8::50"]}
    without: list[Any] = [{}, {"ip_addrs_no_ipam": False}, {"floating_ips": True}]
    for features in without:
        refused = await node.add(pod, config=annotated(features, **wish))
        assert (refused.status, refused.error["code"]) == (1, 7)
        assert "ip_addrs_no_ipam" in refused.error["msg"]
        node.assert_clean()
    config = annotated({"ip_addrs_no_ipam": True}, **wish)
    for _ in range(2):
        result = result_of(await node.add(pod, config=config))
        assert [ip["address"] for ip in result["ips"]] == ["192.0.2.50/32", "2001:db8::50/128"]
        assert addresses_of(pod) == {"192.0.2.50", "2001:db8::50"}
        assert spec_of(node)["ipNetworks"] == ["192.0.2.50/32", "2001:db8::50/128"]
        assert node.handles() == {}
        assert node.in_use() == 0
    assert (await node.delete(pod)).status == 0


@pytest.mark.promise("ADV-2")
async def test_floating_addresses_and_sources_are_handed_to_felix(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    wish = {"floatingIPs": ["192.0.2.60"], "allowedSourcePrefixes": ["10.9.1.1/16"]}
    refused = await node.add(pod, config=annotated(**wish))
    assert (refused.status, refused.error["code"]) == (1, 7)
    assert "floating_ips" in refused.error["msg"]
    node.assert_clean()
    result = result_of(await node.add(pod, config=annotated({"floating_ips": True}, **wish)))
    own = result["ips"][0]["address"].removesuffix("/32")
    spec = spec_of(node)
    assert spec["ipNATs"] == [{"internalIP": own, "externalIP": "192.0.2.60"}]
    assert spec["allowSpoofedSourcePrefixes"] == ["10.9.0.0/16"]
    assert addresses_of(pod) == {own}
    assert (await node.delete(pod)).status == 0


async def test_other_ipam_plugins_cannot_be_asked_for_an_address(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    config = annotated(ipAddrs=["10.65.0.9"]) | {"ipam": {"type": "host-local"}}
    refused = await node.add(pod, config=config)
    assert (refused.status, refused.error["code"]) == (1, 7)
    assert "ipam.type" in refused.error["msg"]
    assert "host-local" in refused.error["msg"]


@pytest.mark.promise("F-16", "M-7")
async def test_a_pod_joins_several_networks(node: World, pod: Namespace, daemon: Daemon) -> None:
    """As Multus calls: one container, other interface names, other networks and pools."""
    await put_pool(daemon.context.store, "second", "10.68.0.0/24", 28)
    ipam = {"type": "calico-ipam", "assign_ipv6": "true"}
    calls: dict[str, dict[str, Any]] = {
        "eth0": {},
        "net1": {"name": "second", "mtu": 1400},
        "net2": {"ipam": ipam},
    }
    try:
        results = {
            ifname: result_of(await node.add(pod, ifname=ifname, config=config))
            for ifname, config in calls.items()
        }
        used = [addresses_of(pod, ifname) for ifname in calls]
        assert len(set.union(*used)) == 4
        assert set(node.endpoints()) == {f"node1-k8s-web--1-{ifname}" for ifname in calls}
        links = node.links()
        assert len(links) == 3
        assert names.host_interface_name("default", "web-1") in links
        for ifname, result in results.items():
            spec = spec_of(node, f"node1-k8s-web--1-{ifname}")
            assert spec["endpoint"] == ifname
            assert spec["interfaceName"] == result["interfaces"][0]["name"] in links
            assert result["interfaces"][1]["name"] == ifname
        assert "mtu 1400" in pod.run("ip", "link", "show", "net1")
        handles = {f"{NETWORK}.{container_id('web-1')}", f"second.{container_id('web-1')}"}
        assert set(node.handles()) == handles

        assert (await node.delete(pod, ifname="net2")).status == 0
        assert addresses_of(pod, "eth0") == used[0]
        assert set(node.endpoints()) == {"node1-k8s-web--1-eth0", "node1-k8s-web--1-net1"}
        assert set(node.handles()) == handles, "eth0 holds the handle still"
        for ifname in ("eth0", "net1"):
            done = await node.delete(pod, ifname=ifname, config=calls[ifname])
            assert done.status == 0
    finally:
        node.etcd.ctl("del", "/calico/resources/v3/projectcalico.org/ippools/second")


@pytest.mark.promise("M-11", "M-155")
async def test_at_debug_an_add_tells_its_three_steps(
    node: World,
    pod: Namespace,
    daemon: Daemon,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("cni"), "level", logging.INFO)
    result_of(await node.add(pod, config={"log_level": "debug"}))
    steps = [
        r.message
        for r in caplog.records
        if r.name == "cni.verbs.pod_veth" and r.levelno < logging.INFO
    ]
    assert steps == ["veth created", "address assigned", "address configured"]
    caplog.clear()
    assert (await node.delete(pod, config={"log_level": "error"})).status == 0
    assert "attachment removed" not in caplog.text


def first_generation(node: World, folder: Path) -> dict[str, Any]:
    """The documented `10-calico.conf`, with this test's own endpoint, files and token."""
    authority = Authority(folder, "ca")
    pair = authority.issue("cni", names=(), usage="clientAuth")
    return {
        "name": "k8s-pod-network",
        "cniVersion": "0.1.0",
        "type": "calico",
        "etcd_endpoints": node.etcd.endpoint,
        "etcd_key_file": str(pair.key),
        "etcd_cert_file": str(pair.cert),
        "etcd_ca_cert_file": str(authority.cert),
        "log_level": "info",
        "mtu": 1500,
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s", "k8s_api_root": "https://127.0.0.1:1", "k8s_auth_token": CANARY},
    }


@pytest.mark.cni("CAL-06", "CAL-08")
@pytest.mark.promise("M-152", "M-153", "M-154", "M-156", "M-157", "M-158", "M-46")
async def test_the_first_generation_configuration_adds_a_pod(
    node: World, pod: Namespace, daemon: Daemon, tmp_path: Path
) -> None:
    """Without its Kubernetes part, which tests/apiserver/test_pods.py has."""
    config = first_generation(node, tmp_path)
    config["policy"] = {"type": "k8s"}
    result = result_of(await node.add(pod, config=config))
    assert result["ip4"]["ip"].endswith("/32")
    assert "mtu 1500" in pod.run("ip", "link", "show", "eth0")
    assert spec_of(node)["profiles"] == ["kns.default", "ksa.default.default"]
    assert (await node.delete(pod, config=config)).status == 0
    other = await node.add(pod, config={**config, "etcd_endpoints": "https://192.0.2.1:2379"})
    assert (other.status, other.error["code"]) == (1, 7)
    for part in ("https://192.0.2.1:2379", node.etcd.endpoint):
        assert part in other.error["msg"]
    missing = await node.add(pod, config={**config, "etcd_key_file": "/gone/etcd-key"})
    assert missing.error["code"] == 7
    assert "etcd_key_file cannot be read: /gone/etcd-key" in missing.error["msg"]


@pytest.mark.promise("M-160")
async def test_a_token_of_the_configuration_is_told_to_nobody(
    node: World,
    pod: Namespace,
    daemon: Daemon,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    config = {**first_generation(node, tmp_path), "log_level": "debug"}
    done = await node.add(pod, config=config)
    assert (done.status, done.error["code"]) == (1, 11)
    assert "https://127.0.0.1:1" in done.error["details"]
    await node.delete(pod, config=config)
    shown = done.stdout.decode() + done.stderr + caplog.text
    status = (node.settings.status / "cni.json").read_text()
    stored = node.etcd.ctl("get", "--prefix", "/").decode()
    assert CANARY not in shown + status + stored
    for path in (node.settings.pending, node.settings.status):
        for file in path.rglob("*") if path.exists() else ():
            assert not file.is_file() or CANARY not in file.read_text()


@pytest.mark.promise("M-92")
async def test_a_nodename_that_names_no_node_is_refused(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    for name in ("127.0.0.1", "elsewhere"):
        refused = await node.add(pod, config={"nodename": name})
        assert (refused.status, refused.error["code"]) == (1, 7)
        assert f"nodename '{name}' names no node" in refused.error["msg"]
        assert NODE in refused.error["msg"]
    result_of(await node.add(pod, config={"nodename": NODE}))
    assert (await node.delete(pod)).status == 0


@pytest.mark.promise("M-92")
async def test_a_nodename_that_is_an_address_is_as_good(node: World, pod: Namespace) -> None:
    config = {"nodename": "127.0.0.1"}
    async with node.daemon(node="127.0.0.1") as daemon:
        refused = await node.add(pod, config=config)
        assert refused.error["code"] == 7
        assert "there is no Node resource" in refused.error["msg"]
        value = Node(metadata=Metadata(name="127.0.0.1"))
        await daemon.context.store.commit([Put(ResourceKey("Node", "127.0.0.1"), value)])
        async with asyncio.timeout(patient(10)):
            while (await node.add(pod, config=config)).status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert list(node.endpoints()) == ["127.0.0.1-k8s-web--1-eth0"]
        assert (await node.delete(pod)).status == 0


@pytest.mark.promise("M-53", "M-46")
async def test_whatever_a_runtime_adds_is_taken_in(
    node: World, pod: Namespace, daemon: Daemon
) -> None:
    identity = container_id("web-1")
    documented = (
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;"
        f"K8S_POD_INFRA_CONTAINER_ID={identity};FOO=bar;;X=a=b"
    )
    mesos = {"network_info": {"labels": {"labels": [{"key": "tier", "value": "front"}]}}}
    odd: list[Any] = [{"org.apache.mesos": mesos, "labels": [1]}, {"cni": [{}, None]}, [1], "x", 5]
    for args in odd:
        done = await node.add(pod, config={"args": args}, CNI_ARGS=documented)
        assert done.status == 0, done
        if isinstance(args, dict) and len(args) == 2:
            labels = node.endpoints()["node1-k8s-web--1-eth0"]["metadata"]["labels"]
            assert labels["tier"] == "front"
    assert (await node.delete(pod)).status == 0


@pytest.mark.cni("CAL-20")
@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"device_type": "ipvlan"}, "device_type must be one of veth, netkit"),
        ({"dataplane_options": {"type": "grpc"}}, "dataplane_options.type must be one of linux"),
        ({"feature_control": {"floating_ips": "maybe"}}, "feature_control.floating_ips must be"),
        ({"kubernetes": {"kubeconfig": 5}}, "kubernetes.kubeconfig must be a string"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(
    node: World, pod: Namespace, daemon: Daemon, config: dict[str, Any], part: str
) -> None:
    refused = await node.add(pod, config=config)
    assert (refused.status, refused.error["code"]) == (1, 7)
    assert part in refused.error["msg"]
