"""CHECK with real links, a real etcd and, where it matters, the real felix.

1. What ADD left is good, at every version, with one and two interfaces and families, and with
   what later plugins of a chain add.
2. Each point that is broken from outside is named, and nothing is changed by looking.
3. Codes: 7 and 6 for prevResult, 3 only when nothing is held, 11 while datastore or felix
   do not answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cni.server.daemon import Daemon
from cni.verbs import check
from libcalico import names
from tests.cni.world import WAITS, FelixPeer, World, hurried, node_world, pod_namespace, result_of
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

LINK = names.host_interface_name("default", "web-1")
DUAL = {"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}}
ENDPOINT = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node1-k8s-web--1-eth0"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


@asynccontextmanager
async def served(node: World) -> AsyncIterator[tuple[Daemon, FelixPeer]]:
    """A daemon, and a felix that reports everything in force and programs nothing."""
    async with (
        FelixPeer(node.settings.felix_socket) as felix,
        node.daemon() as daemon,
    ):
        await until(lambda: daemon.context.felix.connected)
        yield daemon, felix


async def added(node: World, pod: Namespace, name: str = "web-1", **options: Any) -> dict[str, Any]:
    """An ADD with the host's routes, which felix would program."""
    result = result_of(await node.add(pod, name, **options))
    link = result["interfaces"][0]["name"]
    for ip in result["ips"]:
        node.space.run("ip", "route", "replace", ip["address"], "dev", link)
    return result


def first_address(result: dict[str, Any]) -> str:
    return str(result["ips"][0]["address"]).removesuffix("/32")


def everything(node: World, pod: Namespace) -> tuple[str, ...]:
    """Kernel on both sides and datastore, as text."""
    looks = (
        ("ip", "-d", "link"),
        ("ip", "address"),
        ("ip", "route", "show", "table", "all"),
        ("ip", "-6", "route", "show", "table", "all"),
        ("ip", "neigh", "show", "nud", "permanent"),
        ("sysctl", "-a"),
        ("iptables-save",),
    )
    kernel = [space.run(*look) for space in (node.space, pod) for look in looks]
    kept = ["\n".join(line for line in text.splitlines() if not volatile(line)) for text in kernel]
    return (*kept, node.etcd.ctl("get", "--prefix", "/").decode(), str(node.etcd.revision()))


async def at_rest(node: World, pod: Namespace) -> tuple[str, ...]:
    """`everything`, once the kernel has finished what it does by itself after an ADD."""
    before: tuple[str, ...] = ()
    now = everything(node, pod)
    while now != before or any(" tentative" in text for text in now):
        await asyncio.sleep(0.2)
        before, now = now, everything(node, pod)
    return now


def assert_same(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    for old, new in zip(before, after, strict=True):
        assert set(old.splitlines()) ^ set(new.splitlines()) == set()


def volatile(line: str) -> bool:
    return (
        line.startswith(("#", "fs.", "kernel.", "vm.", "dev.", "debug.")) or "nf_conntrack" in line
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
async def test_what_add_left_is_good_and_stays_as_it_is(
    node: World, pod: Namespace, version: str
) -> None:
    """CNI-50, CHK-01, CHK-09."""
    async with served(node):
        result = await added(node, pod, config={"cniVersion": version, **DUAL})
        before = await at_rest(node, pod)
        done = await node.check(pod, result, config=DUAL)
        assert (done.status, done.stdout) == (0, b""), done
        assert_same(before, everything(node, pod))
        pod.run("ip", "neigh", "del", "169.254.1.1", "dev", "eth0")
        before = await at_rest(node, pod)
        assert (await node.check(pod, result)).error["code"] == 100
        assert_same(before, everything(node, pod))
        assert not list(node.settings.pending.glob("*"))
        await node.delete(pod)
        node.assert_clean()


@pytest.mark.asyncio
async def test_what_later_plugins_add_and_change_is_good(node: World, pod: Namespace) -> None:
    """CNI-52, PRV-09, CHK-04."""
    async with served(node):
        result = await added(node, pod, config={"cniVersion": "1.1.0"})
        for command in (
            "link add extra0 type veth peer name extra1",
            "link set extra0 up",
            "address add 192.0.2.7/24 dev extra0",
            "address add 192.0.2.9/32 dev eth0",
            "route add 198.51.100.0/24 dev extra0",
            "link set eth0 mtu 1300",
            "link set eth0 address 02:00:00:00:00:07",
        ):
            pod.run("ip", *command.split())
        result["interfaces"][1]["mac"] = "02:00:00:00:00:07"
        result["interfaces"].append({"name": "ifb0", "mac": "02:00:00:00:00:08"})
        result["interfaces"].append({"name": "eth0", "sandbox": "/another"})
        result["ips"].append({"address": "192.0.2.7/24", "interface": 2})
        done = await node.check(pod, result)
        assert done.status == 0, done
        assert (await node.check(pod, {**result, "cniVersion": "1.0.0"})).status == 0
        await node.delete(pod)


@pytest.mark.asyncio
async def test_addresses_that_a_pod_brings_itself_are_good(node: World, pod: Namespace) -> None:
    """`ipAddrsNoIpam`: no block holds them."""
    notes = {"cni.projectcalico.org/ipAddrsNoIpam": '["192.0.2.50"]'}
    config = {
        "feature_control": {"ip_addrs_no_ipam": True},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": notes},
    }
    async with served(node):
        result = await added(node, pod, config=config)
        done = await node.check(pod, result, config=config)
        assert done.status == 0, done


@pytest.mark.asyncio
async def test_two_interfaces_of_one_container(node: World, pod: Namespace) -> None:
    async with served(node):
        eth0 = await added(node, pod)
        net1 = await added(node, pod, ifname="net1")
        assert (await node.check(pod, eth0)).status == 0
        assert (await node.check(pod, net1, ifname="net1")).status == 0
        assert (await node.delete(pod, ifname="net1")).status == 0
        error = (await node.check(pod, net1, ifname="net1")).error
        assert "interface net1 is missing" in error["msg"]
        await node.delete(pod)
        node.assert_clean()


def edited(node: World, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """A stored object changed behind everybody's back."""
    value = json.loads(node.etcd.get(key) or b"")
    change(value)
    node.etcd.put(key, json.dumps(value))


def freed(node: World) -> None:
    """Somebody released the address by hand."""

    def change(block: dict[str, Any]) -> None:
        taken = [n for n, index in enumerate(block["allocations"]) if index is not None]
        block["allocations"] = [None] * len(block["allocations"])
        block["unallocated"] += taken
        block["attributes"] = []

    (key,) = [
        k
        for k, b in node.stored("/calico/ipam/v2/assignment/").items()
        if any(index is not None for index in b["allocations"])
    ]
    edited(node, key, change)


def inside(command: str) -> Callable[[World, Namespace, str], None]:
    return lambda node, pod, ip: void(pod.run(*command.format(ip=ip).split()))


def outside(command: str) -> Callable[[World, Namespace, str], None]:
    return lambda node, pod, ip: void(node.space.run(*command.format(ip=ip).split()))


def stored(change: Callable[[dict[str, Any]], None]) -> Callable[[World, Namespace, str], None]:
    return lambda node, pod, ip: edited(node, ENDPOINT, change)


def void(_: object) -> None:
    """Drops a value."""


BREAKS: list[tuple[str, Callable[[World, Namespace, str], None], str]] = [
    ("link down", inside("ip link set eth0 down"), "interface eth0 in the container is down"),
    (
        "mac",
        inside("ip link set eth0 address 02:00:00:00:00:07"),
        "interface eth0 in the container has the MAC 02:00:00:00:00:07, prevResult says ",
    ),
    ("name", inside("ip link set eth0 down name eth9"), "interface eth0 is missing"),
    ("address", inside("ip address del {ip}/32 dev eth0"), "address {ip}/32 is missing on eth0"),
    ("default", inside("ip route del default"), "the default route via 169.254.1.1 is missing"),
    (
        "elsewhere",
        inside("ip route replace default dev lo"),
        "the default route via 169.254.1.1 is missing",
    ),
    (
        "neighbour",
        inside("ip neigh del 169.254.1.1 dev eth0"),
        "the permanent neighbour 169.254.1.1",
    ),
    (
        "wrong neighbour",
        inside("ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent"),
        "the permanent neighbour 169.254.1.1 is missing",
    ),
    ("host down", outside(f"ip link set {LINK} down"), f"host interface {LINK} is down"),
    (
        "host mac",
        outside(f"ip link set {LINK} address 02:00:00:00:00:02"),
        f"host interface {LINK} has the MAC 02:00:00:00:00:02",
    ),
    ("host mtu", outside(f"ip link set {LINK} mtu 1400"), f"{LINK} has the MTU 1400"),
    ("host name", outside(f"ip link set {LINK} down name gone"), f"{LINK} is missing"),
    ("alias", outside(f"ip link set {LINK} alias other/eth0"), "belongs to another container"),
    (
        "proxy_arp",
        outside(f"sysctl -qw net.ipv4.conf.{LINK}.proxy_arp=0"),
        f"net.ipv4.conf.{LINK}.proxy_arp is not 1",
    ),
    (
        "forwarding",
        outside(f"sysctl -qw net.ipv4.conf.{LINK}.forwarding=0"),
        f"net.ipv4.conf.{LINK}.forwarding is not 1",
    ),
    ("host route", outside("ip route del {ip}"), "the host has no route to {ip}"),
    (
        "wrong route",
        outside("ip route replace {ip} dev uplink"),
        f"the host's route to {{ip}} does not lead to {LINK}",
    ),
    (
        "endpoint",
        lambda node, pod, ip: void(node.etcd.ctl("del", ENDPOINT)),
        "WorkloadEndpoint node1-k8s-web--1-eth0 does not exist",
    ),
    (
        "container",
        stored(lambda endpoint: endpoint["spec"].update(containerID="f" * 64)),
        f"belongs to container {'f' * 64}",
    ),
    (
        "networks",
        stored(lambda endpoint: endpoint["spec"].update(ipNetworks=["10.65.0.99/32"])),
        "lacks the address {ip}",
    ),
    ("allocation", lambda node, pod, ip: freed(node), "address {ip} is not allocated to this"),
]
STORED = ("endpoint", "container", "networks", "allocation")


@pytest.mark.asyncio
async def test_each_broken_point_is_named(node: World) -> None:
    """CNI-51, CHK-03, CHK-05, CHK-06."""
    async with served(node) as (daemon, _):
        for label, damage, text in BREAKS:
            # What felix would repair is waited for.
            seconds = HANG if label in STORED else 0.3
            with pod_namespace("broken") as pod:
                result = await added(node, pod, config={"cniVersion": "1.1.0"})
                assert (await node.check(pod, result)).status == 0, label
                damage(node, pod, first_address(result))
                with hurried(daemon, HANG, check_seconds=seconds):
                    error = (await node.check(pod, result)).error
                assert error["code"] == 100, (label, error)
                assert error["cniVersion"] == "1.1.0"
                assert text.format(ip=first_address(result)) in error["msg"], (label, error)
                await node.delete(pod)
                for link in ("gone", LINK):
                    node.space.run("ip", "link", "del", link, check=False)
                node.etcd.ctl("del", ENDPOINT)


@pytest.mark.asyncio
async def test_several_broken_points_stand_in_one_error(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "HASTE", HANG)
    async with served(node) as (_, felix):
        result = await added(node, pod)
        felix.error = "no such chain"
        pod.run("ip", "route", "del", "default")
        node.space.run("ip", "route", "del", first_address(result))
        node.etcd.ctl("del", ENDPOINT)
        text = (await node.check(pod, result)).error["msg"]
        assert text.startswith("CHECK of default/web-1 eth0: ")
        assert text.count(";") == 3
        for each in ("default route", "no route to", "does not exist", "no such chain"):
            assert each in text


@pytest.mark.asyncio
async def test_prevresult_is_needed_and_must_be_ours(node: World, pod: Namespace) -> None:
    """PRV-03, PRV-08."""
    async with served(node):
        result = await added(node, pod)
        none: list[dict[str, Any] | None] = [{}, None]
        for previous in none:
            done = await node.check(pod, result, config={"prevResult": previous})
            assert (done.error["code"], done.error["msg"]) == (7, "Required prevResult missing")
        unreadable = {**result, "ips": [{"address": "nonsense"}]}
        error = (await node.check(pod, unreadable)).error
        assert error["code"] == 6
        assert error["msg"].startswith("could not parse prevResult: ")
        assert (await node.check(pod, result, config={"prevResult": "x"})).error["code"] == 7
        other = await node.check(pod, {**result, "interfaces": result["interfaces"][:1]})
        assert "prevResult lists no interface eth0" in other.error["msg"]
        nothing = await node.check(pod, {**result, "ips": []})
        assert "prevResult lists no address" in nothing.error["msg"]
        old = await node.check(pod, result, config={"cniVersion": "0.3.1"})
        assert (old.error["code"], old.error["msg"]) == (1, "config version does not allow CHECK")
        delegated = {"ipam": {"type": "host-local"}}
        missing = (await node.check(pod, result, config=delegated)).error
        assert 'failed to find plugin "host-local"' in missing["msg"]


@pytest.mark.asyncio
async def test_code_3_only_when_nothing_is_held(node: World, pod: Namespace) -> None:
    """CNI-53, ERR-06, CHK-13."""
    async with served(node) as (daemon, _):
        with pod_namespace("short") as short:
            result = await added(node, short)
        await until(lambda: not short.path.exists())
        error = (await node.check(short, result)).error
        assert error["code"] == 100
        assert str(short.path) in error["msg"]
        assert "WorkloadEndpoint node1-k8s-web--1-eth0, address 10.65.0." in error["details"]
        assert (await node.delete(None)).status == 0
        for space in (short, pod):
            error = (await node.check(space, result)).error
            assert error["code"] == 3, error
        # The same without a datastore: who could say that nothing is held?
        node.etcd.kill()
        with hurried(daemon, 5.0, check_seconds=0.3, release_seconds=0.5):
            for space in (short, pod):
                error = (await node.check(space, result)).error
                assert error["code"] != 3, error
            assert (await node.check(short, result)).error["code"] == 11
            assert (await node.delete(None)).status == 0
        node.etcd.start()


@pytest.mark.asyncio
@pytest.mark.parametrize("trouble", ["kill", "pause"])
async def test_without_the_datastore_the_kernel_is_compared(
    node: World, pod: Namespace, trouble: str
) -> None:
    async with served(node) as (daemon, _):
        result = await added(node, pod)
        getattr(node.etcd, trouble)()
        with hurried(daemon, 2.0, check_seconds=1.0):
            began = time.monotonic()
            error = (await node.check(pod, result)).error
            assert time.monotonic() - began < HANG
            assert error["code"] == 11
            assert "datastore does not answer" in error["msg"]
            pod.run("ip", "route", "del", "default")
            error = (await node.check(pod, result)).error
        assert error["code"] == 100
        assert "default route" in error["msg"]
        assert "datastore did not answer" in error["details"]
        node.etcd.kill()
        node.etcd.start()


@pytest.mark.cni("CHK-14", "ERR-12")
@pytest.mark.asyncio
async def test_felix_that_does_not_say_so_gives_code_11(
    node: World, pod: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-14."""
    real = check._policy

    async def impatient(context: Any, attachment: Any, _: float, *, hasty: bool) -> Any:
        """The datastore is given its time, felix none."""
        soon = asyncio.get_running_loop().time() + (0.3 if quiet else HANG)
        return await real(context, attachment, soon, hasty=hasty)

    quiet = False
    monkeypatch.setattr(check, "_policy", impatient)
    async with served(node) as (daemon, felix):
        result = await added(node, pod)
        felix.hold = quiet = True
        error = (await node.check(pod, result)).error
        assert error["code"] == 11
        assert "calico-felix did not say" in error["msg"]
        assert daemon.context.felix._waits == {}
        felix.hold = quiet = False
        assert (await node.check(pod, result)).status == 0
        felix.error = "its chain is missing"
        error = (await node.check(pod, result)).error
        assert (error["code"], "its chain is missing" in error["msg"]) == (100, True)
    quiet = True
    async with node.daemon(prepare=False):
        error = (await node.check(pod, result)).error
        assert error["code"] == 11
        assert "cannot be reached" in error["msg"]


@pytest.mark.asyncio
async def test_right_after_an_add_it_waits_for_the_real_felix(node: World, pod: Namespace) -> None:
    """CHK-08, TIM-05: with and without the wait in ADD, and after a restart of the agent."""
    async with (
        node.felix() as felix,
        node.daemon(felix_socket=felix.socket) as daemon,
    ):
        await until(lambda: daemon.context.felix.connected)
        for wait in (60, 0):
            for index in range(3):
                name = f"web-{wait}-{index}"
                with pod_namespace("after") as space:
                    config = {"policy_setup_timeout_seconds": wait}
                    result = result_of(await node.add(space, name, config=config))
                    done = await node.check(space, result, name, config=config)
                    assert done.status == 0, done
                    await node.delete(space, name)
        result = result_of(await node.add(pod, config=WAITS))
        # What felix repairs is waited for.
        node.space.run("ip", "route", "del", first_address(result))
        node.space.run("sysctl", "-qw", f"net.ipv4.conf.{LINK}.proxy_arp=0")
        done = await node.check(pod, result)
        assert done.status == 0, done
        felix.process.kill()
        felix.process.wait()
        await until(lambda: not daemon.context.felix.connected)
        asleep = asyncio.create_task(node.check(pod, result))
        async with node.felix():
            done = await asleep
            assert done.status == 0, done
            await node.delete(pod)
            node.assert_clean()
