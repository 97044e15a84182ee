"""ADD and DEL through the real executable, the daemon, a real etcd and real namespaces."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

import felix
from felix.dataplane.routes.own_routes import pod_route
from libcalico import names
from libcalico.local.node_api import ROUTE_METRIC, ROUTE_PROTOCOL
from linux import links, routes
from linux.netlink import Socket
from tests.cni.world import (
    NETWORK,
    WAITS,
    FelixPeer,
    World,
    container_id,
    node_world,
    pod_namespace,
    result_of,
)
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


def only(found: dict[str, Any]) -> Any:
    assert len(found) == 1, found
    return next(iter(found.values()))


def show(space: Namespace, *arguments: str) -> Any:
    return json.loads(space.run("ip", "-j", *arguments) or "[]")


@pytest.mark.promise("M-124", "F-1")
@pytest.mark.asyncio
@pytest.mark.promise("M-20")
@pytest.mark.promise("M-135")
@pytest.mark.promise("M-136")
@pytest.mark.promise("M-137")
@pytest.mark.promise("M-138")
async def test_a_pod_gets_its_address_routes_and_neighbour(node: World, pod: Namespace) -> None:
    async with node.daemon():
        result = result_of(await node.add(pod))
        address = result["ips"][0]["address"]
        ip = address.removesuffix("/32")
        link = names.host_interface_name("default", "web-1")

        inner = show(pod, "-d", "link", "show", "eth0")[0]
        assert "UP" in inner["flags"]
        assert result["interfaces"] == [
            {"name": link},
            {"name": "eth0", "mac": inner["address"], "sandbox": str(pod.path)},
        ]
        assert int(inner["address"][:2], 16) & 3 == 2
        assert inner["num_tx_queues"] == 1
        addresses = [
            a for a in show(pod, "address", "show", "eth0")[0]["addr_info"] if a["family"] == "inet"
        ]
        assert [(a["local"], a["prefixlen"]) for a in addresses] == [(ip, 32)]
        lines = [" ".join(line.split()) for line in pod.run("ip", "route").splitlines()]
        assert lines == ["default via 169.254.1.1 dev eth0", "169.254.1.1 dev eth0 scope link"]
        neighbour = show(pod, "neigh", "show", "169.254.1.1")[0]
        assert neighbour["lladdr"] == "ee:ee:ee:ee:ee:ee"
        assert neighbour["state"] == ["PERMANENT"]

        outer = show(node.space, "link", "show", link)[0]
        assert outer["address"] == "ee:ee:ee:ee:ee:ee"
        assert "UP" in outer["flags"]
        for setting, value in {"proxy_arp": 1, "forwarding": 1, "route_localnet": 1}.items():
            found = Path(f"/proc/sys/net/ipv4/conf/{link}/{setting}")
            assert node.space.run("cat", str(found)).strip() == str(value), setting
        delay = node.space.run("cat", f"/proc/sys/net/ipv4/neigh/{link}/proxy_delay")
        assert delay.strip() == "0"
        assert pod.run("cat", "/proc/sys/net/ipv4/ip_forward").strip() == "0"

        endpoint = only(node.endpoints())
        assert endpoint["metadata"]["name"] == "node1-k8s-web--1-eth0"
        assert endpoint["spec"] == {
            "orchestrator": "k8s",
            "node": "node1",
            "containerID": container_id("web-1"),
            "pod": "web-1",
            "endpoint": "eth0",
            "serviceAccountName": "default",
            "ipNetworks": [address],
            "profiles": ["kns.default", "ksa.default.default"],
            "interfaceName": link,
            "mac": inner["address"],
        }
        assert list(node.handles()) == [f"{NETWORK}.{container_id('web-1')}"]

        node.space.run("ip", "route", "add", ip, "dev", link)
        node.space.run("ping", "-c", "1", "-w", "60", ip)
        pod.run("ping", "-c", "1", "-w", "60", "10.99.1.1")

        assert (await node.delete(pod)).status == 0
        node.assert_clean()
        assert "eth0" not in pod.run("ip", "link")
        assert (await node.delete(None)).status == 0, "a repeated DEL without namespace"


@pytest.mark.asyncio
async def test_a_dual_stack_pod_talks_ipv6_at_once(node: World, pod: Namespace) -> None:
    config = {"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}}
    async with node.daemon():
        result = result_of(await node.add(pod, config=config))
        four, six = (entry["address"].partition("/") for entry in result["ips"])
        assert six[2] == "128"
        found = show(pod, "address", "show", "eth0")[0]["addr_info"]
        own = [a for a in found if a["family"] == "inet6" and a["scope"] == "global"]
        assert [(a["local"], a["prefixlen"]) for a in own] == [(six[0], 128)]
        assert "tentative" not in own[0]
        default = show(pod, "-6", "route", "show", "default")[0]
        assert default["gateway"] == "fe80::ecee:eeff:feee:eeee"
        assert show(pod, "-6", "neigh", "show", "dev", "eth0")[0]["lladdr"] == "ee:ee:ee:ee:ee:ee"
        link = names.host_interface_name("default", "web-1")
        for setting, value in {"proxy_ndp": 1, "forwarding": 1, "accept_ra": 0}.items():
            path = f"/proc/sys/net/ipv6/conf/{link}/{setting}"
            assert node.space.run("cat", path).strip() == str(value), setting

        node.space.run("ip", "route", "add", four[0], "dev", link)
        node.space.run("ip", "-6", "route", "add", six[0], "dev", link)
        node.space.run("ping", "-c", "1", "-W", "60", six[0])
        host = show(node.space, "-6", "address", "show", link)[0]["addr_info"]
        assert host[0]["local"] == "fe80::ecee:eeff:feee:eeee"
        assert (await node.delete(pod, config=config)).status == 0
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_repeated_add_keeps_address_and_cable(node: World, pod: Namespace) -> None:
    async with node.daemon():
        first = result_of(await node.add(pod))
        before = show(pod, "link", "show", "eth0")[0]["ifindex"]
        assert result_of(await node.add(pod)) == first
        assert show(pod, "link", "show", "eth0")[0]["ifindex"] == before
        assert node.in_use() == 1
        assert len(node.links()) == 1
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_two_interfaces_of_one_container_are_independent(node: World, pod: Namespace) -> None:
    async with node.daemon():
        eth0 = result_of(await node.add(pod))
        net1 = result_of(await node.add(pod, ifname="net1"))
        assert eth0["ips"][0]["address"] != net1["ips"][0]["address"]
        assert len(node.links()) == 2
        assert only(node.handles())["block"] == {next(iter(only(node.handles())["block"])): 2}
        assert (await node.delete(pod, ifname="net1")).status == 0
        assert only(node.endpoints())["spec"]["ipNetworks"] == [eth0["ips"][0]["address"]]
        assert node.in_use() == 1
        assert "eth0" in pod.run("ip", "link")
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_new_container_of_a_pod_takes_over_and_survives_the_old_del(
    node: World, pod: Namespace
) -> None:
    """CAL-24, ADD-08, ADD-14: the DEL of the old sandbox comes after the ADD of the new one."""
    async with node.daemon():
        old = result_of(await node.add(pod, container="a" * 64))
        with pod_namespace("new") as newer:
            new = result_of(await node.add(newer, container="b" * 64))
            assert new["ips"] != old["ips"]
            uid = only(node.endpoints())["metadata"]["uid"]
            assert (await node.delete(pod, container="a" * 64)).status == 0
            endpoint = only(node.endpoints())
            assert endpoint["spec"]["containerID"] == "b" * 64
            assert endpoint["metadata"]["uid"] == uid
            assert node.in_use() == 1
            assert node.links() == [endpoint["spec"]["interfaceName"]]
            assert "eth0" in newer.run("ip", "link")
            await node.delete(newer, container="b" * 64)
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_foreign_interface_of_that_name_is_left_alone(node: World, pod: Namespace) -> None:
    async with node.daemon():
        pod.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
        error = (await node.add(pod)).error
        assert "eth0" in error["msg"]
        assert "other" in pod.run("ip", "link", "show", "eth0")
        await node.delete(pod)
        assert "eth0" in pod.run("ip", "link")
        node.assert_clean()


@pytest.mark.asyncio
async def test_the_answer_waits_for_felix(node: World, pod: Namespace) -> None:
    async with FelixPeer(node.settings.felix_socket) as felix, node.daemon() as daemon:
        await until(lambda: daemon.context.felix.connected)
        felix.hold = True
        config = {"policy_setup_timeout_seconds": 1}
        error = (await node.add(pod, config=config)).error
        assert error["code"] == 11
        assert "not in force within 1 s" in error["msg"]
        node.assert_clean()
        await until(felix.retractions)

        felix.hold, config = False, WAITS
        result_of(await node.add(pod, config=config))
        stored = node.etcd.get(
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node1-k8s-web--1-eth0"
        )
        assert felix.offers()[-1].value.encode() == stored, "the offer is what is stored"
        told = len(felix.offers())
        result_of(await node.add(pod, config=config))
        again = {offer.value.encode() for offer in felix.offers()[told:]}
        assert again == {stored}, "felix hears of no other address for a pod that runs"

        felix.error = "no such interface"
        with pod_namespace("refused") as other:
            refused = (await node.add(other, "web-2", config=config)).error
            assert "no such interface" in refused["msg"]
        assert len(node.endpoints()) == 1
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_a_repeated_add_that_fails_leaves_the_first_one_without_ipam(
    node: World, pod: Namespace
) -> None:
    """The endpoint of addresses that no pool gave stands as the first ADD wrote it (ADD-07)."""
    asked = {"cni.projectcalico.org/ipAddrsNoIpam": '["192.0.2.50"]'}
    config: dict[str, Any] = {
        "capabilities": {"io.kubernetes.cri.pod-annotations": True},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": asked},
        "feature_control": {"ip_addrs_no_ipam": True},
    }
    hasty = {**config, "policy_setup_timeout_seconds": 1}
    config |= WAITS
    async with FelixPeer(node.settings.felix_socket) as felix, node.daemon() as daemon:
        await until(lambda: daemon.context.felix.connected)
        result_of(await node.add(pod, config=config))
        before = node.endpoints()
        felix.hold = True
        assert (await node.add(pod, config=hasty)).error["code"] == 11
        felix.hold = False
        assert node.endpoints() == before
        assert felix.retractions() == []
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_routes_that_felix_leaves_to_the_daemon_are_its_own_to_the_byte(
    node: World, pod: Namespace
) -> None:
    """CNI-24: written when the rules stand, before the answer; a refused one undoes the ADD."""
    assert (ROUTE_PROTOCOL, ROUTE_METRIC) == (felix.ROUTE_PROTOCOL, felix.ROUTE_METRIC)
    async with FelixPeer(node.settings.felix_socket) as peer, node.daemon() as daemon:
        await until(lambda: daemon.context.felix.connected)
        peer.hold = True
        adding = asyncio.create_task(node.add(pod, config=WAITS))
        await until(lambda: peer.awaits() and "cali" in node.space.run("ip", "-br", "link"))
        assert " dev cali" not in node.space.run("ip", "route"), "rules first"
        [asked] = peer.awaits()
        assert asked.wired
        peer.routes = ["10.65.0.7/32"]
        await peer.answer(asked)
        result_of(await adding)
        link = names.host_interface_name("default", "web-1")
        with node.space.entered(), Socket() as sock:
            index = links.get(sock, link).index  # type: ignore[union-attr]
            found = routes.dump(sock, table=routes.TABLE_MAIN)
        [made] = [route for route in found if route.oif == index and route.dst.version == 4]
        assert made == pod_route(ip_network("10.65.0.7/32"), index)
        assert (await node.delete(pod)).status == 0

        peer.hold, peer.routes = False, ["no prefix"]
        assert (await node.add(pod, config=WAITS)).error["code"]
        node.assert_clean()


@pytest.mark.asyncio
async def test_felix_away_gives_code_11_and_nothing_left(node: World, pod: Namespace) -> None:
    async with node.daemon():
        error = (await node.add(pod, config={"policy_setup_timeout_seconds": 1})).error
        assert error["code"] == 11
        assert "felix cannot be reached" in error["details"]
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.promise("F-7", "PAIN-21")
async def test_new_pods_get_the_mtu_that_felix_found_last(node: World, pod: Namespace) -> None:
    file = node.settings.mtu_file
    file.write_text("1450\n")
    async with node.daemon():
        result_of(await node.add(pod))
        assert show(pod, "link", "show", "eth0")[0]["mtu"] == 1450
        host = names.host_interface_name("default", "web-1")
        assert show(node.space, "link", "show", host)[0]["mtu"] == 1450
        new = file.with_name("mtu.new")
        new.write_text("1380\n")
        new.replace(file)
        with pod_namespace("other") as other:
            result_of(await node.add(other, "web-2"))
            assert show(other, "link", "show", "eth0")[0]["mtu"] == 1380
            await node.delete(other, "web-2")
        assert show(pod, "link", "show", "eth0")[0]["mtu"] == 1450, "what runs keeps its own"
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_labels_ports_and_pools_of_the_request(node: World, pod: Namespace) -> None:
    config = {
        "args": {"cni": {"labels": [{"key": "app", "value": "web"}]}},
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]},
        "mtu": 1400,
        "ipam": {"type": "calico-ipam", "ipv4_pools": ["pool4"]},
    }
    async with node.daemon():
        result_of(await node.add(pod, config=config))
        endpoint = only(node.endpoints())
        assert endpoint["metadata"]["labels"] == {
            "app": "web",
            "projectcalico.org/namespace": "default",
            "projectcalico.org/orchestrator": "k8s",
            "projectcalico.org/serviceaccount": "default",
        }
        assert endpoint["spec"]["ports"] == [
            {"name": "", "protocol": "TCP", "port": 80, "hostPort": 8080, "hostIP": ""}
        ]
        assert show(pod, "link", "show", "eth0")[0]["mtu"] == 1400
        bad = {"ipam": {"type": "calico-ipam", "ipv4_pools": ["nowhere"]}}
        with pod_namespace("other") as other:
            error = (await node.add(other, "web-2", config=bad)).error
        assert "'nowhere' does not exist" in error["msg"]
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
async def test_every_version_gets_its_result(node: World, pod: Namespace, version: str) -> None:
    async with node.daemon():
        result = result_of(await node.add(pod, config={"cniVersion": version}))
        assert result["cniVersion"] == version
        assert (await node.delete(pod, config={"cniVersion": version})).status == 0
        node.assert_clean()


@pytest.mark.asyncio
async def test_sixteen_at_once_share_transactions(node: World) -> None:
    async with node.daemon() as daemon:
        with pod_namespace("warm") as warm:
            result_of(await node.add(warm, "warm"))
        spaces = [pod_namespace(f"p{i}") for i in range(12)]
        pods = [space.__enter__() for space in spaces]
        try:
            before = daemon.context.allocator.transactions
            results = await asyncio.gather(
                *(node.add(pod, f"web-{i}") for i, pod in enumerate(pods))
            )
            addresses = {result_of(done)["ips"][0]["address"] for done in results}
            assert len(addresses) == len(pods)
            assert daemon.context.allocator.transactions - before <= len(pods)
            await asyncio.gather(*(node.delete(pod, f"web-{i}") for i, pod in enumerate(pods)))
            await node.delete(None, "warm")
            node.assert_clean()
        finally:
            for space in spaces:
                space.__exit__(None, None, None)


@pytest.mark.promise("M-10")
@pytest.mark.asyncio
async def test_the_log_the_status_file_and_the_metrics_tell_of_an_add(
    node: World, pod: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="cni")
    async with node.daemon() as daemon:
        result_of(await node.add(pod))
        wanted = ["veth created", "address assigned", "address configured"]
        assert [r.message for r in caplog.records if r.message in wanted] == wanted
        await until(lambda: daemon.health.port != 0)
        await until(lambda: daemon.context.cluster.connected)
        url = f"http://127.0.0.1:{daemon.health.port}"

        def read(path: str) -> str:
            return node.space.run("curl", "-s", "-m", "60", "-w", "%{http_code}", url + path)

        metrics = await asyncio.to_thread(read, "/metrics")
        for stage in ("names", "plan", "wire", "commit", "answer", "total"):
            line = f'calico_cni_stage_seconds_count{{command="ADD",stage="{stage}"}}'
            assert line in metrics
        assert (await asyncio.to_thread(read, "/liveness")).endswith("200")
        found = daemon._traces.summaries()[-1]
        assert found["command"] == "ADD"
        assert set(found["stages"]) >= {"names", "plan", "wire", "commit"}
        await until((node.settings.status / "cni.json").exists)
        await node.delete(pod)


@pytest.mark.asyncio
async def test_status_and_gc_are_served(node: World, pod: Namespace) -> None:
    async with node.daemon():
        result_of(await node.add(pod))
        newest = {"cniVersion": "1.1.0"}
        assert (await node.cni("STATUS", None, "", config=newest)).status == 0
        assert (await node.cni("GC", None, "", config=newest)).status == 0
        assert node.in_use() == 1, "no list: nothing is removed"
        gone = await node.cni("GC", None, "", config={**newest, "cni.dev/valid-attachments": []})
        assert (gone.status, gone.stdout) == (0, b"")
        node.assert_clean()
