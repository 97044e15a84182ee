"""A node without any IPv4 address but its loopback's: a pod is added, reached, and policed.

    pod fd65::x -- caliX [ node 2001:db8:1::1 ] uplink -- [ outside 2001:db8:1::2 ]

The CNI executable, its daemon, felix and etcd are the real ones.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cni.world import CIDR6, WAITS, World, node_world, pod_namespace, put_pool, result_of
from tests.felix.world import RESOURCES, reaches
from tests.support.ended import ended
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

ONLY_IPV6 = WAITS | {"ipam": {"type": "calico-ipam", "assign_ipv4": "false", "assign_ipv6": "true"}}
OUTSIDE = "2001:db8:1::2"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        for words in (
            "ip -4 address flush dev uplink",
            "ip address add 2001:db8:1::1/64 dev uplink nodad",
            f"ip -6 route add default via {OUTSIDE}",
        ):
            world.space.run(*words.split())
        yield world


@pytest.fixture
def outside(node: World) -> Iterator[Namespace]:
    with network_namespace("out") as space:
        node.space.run("ip", "link", "set", "fabric", "netns", space.name)
        for words in (
            f"ip address add {OUTSIDE}/64 dev fabric nodad",
            "ip link set fabric up",
            f"ip -6 route add {CIDR6} via 2001:db8:1::1",
        ):
            space.run(*words.split())
        yield space


def put(node: World, plural: str, name: str, kind: str, spec: object) -> None:
    metadata = {"name": name, "uid": "u", "creationTimestamp": "2026-08-22T10:11:12Z"}
    value = {"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec}
    node.etcd.put(f"{RESOURCES}/{plural}/{name}", json.dumps(value))


async def comes_to(check: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, check)


@pytest.mark.promise("F-9")
@pytest.mark.asyncio
async def test_a_pod_is_added_and_reached(node: World, outside: Namespace) -> None:
    async with node.felix() as felix, node.daemon(felix_socket=felix.socket):
        async with node.etcd.connect() as store:
            await put_pool(store, "pool6", CIDR6, 124, natOutgoing=True)
        for name in ("kns.default", "ksa.default.default"):
            rules = [{"action": "Allow"}] if name.startswith("kns") else []
            put(node, "profiles", name, "Profile", {"ingress": rules, "egress": rules})
        with pod_namespace() as pod, pod_namespace() as other:
            added = result_of(await node.add(pod, config=ONLY_IPV6))
            result_of(await node.add(other, "web-2", config=ONLY_IPV6))
            (ip,) = added["ips"]
            address = ip["address"].removesuffix("/128")
            assert ":" in address
            assert "inet " not in pod.run("ip", "address", "show", "dev", "eth0")

            await comes_to(lambda: reaches(outside, address, wait=0.3))
            assert reaches(other, address, wait=HANG)
            assert reaches(pod, "2001:db8:1::1", wait=HANG), "its own node"
            assert reaches(pod, OUTSIDE, wait=HANG)
            assert await asyncio.to_thread(source_seen, outside, pod) == "2001:db8:1::1"

            interface = node.links()[0]
            for name, value in (
                ("conf.all.forwarding", "1"),
                (f"conf.{interface}.forwarding", "1"),
                (f"conf.{interface}.proxy_ndp", "1"),
                (f"conf.{interface}.accept_ra", "0"),
            ):
                found = node.space.run("sysctl", "-n", f"net.ipv6.{name}").strip()
                assert (name, found) == (name, value)

            put(node, "globalnetworkpolicies", "default.closed", "GlobalNetworkPolicy",
                {"selector": "all()", "types": ["Ingress"], "order": 1})  # fmt: skip
            await comes_to(lambda: not reaches(outside, address, wait=0.3))
            assert reaches(pod, OUTSIDE, wait=HANG)


def source_seen(outside: Namespace, pod: Namespace) -> str:
    """The source address that a host outside sees of a pod's packets."""
    command = ("tcpdump", "-ni", "fabric", "-c", "1", "-l", "icmp6[icmp6type] == icmp6-echo")
    with ended(
        subprocess.Popen(
            outside.command(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    ) as watching:
        assert watching.stderr is not None
        while "listening" not in watching.stderr.readline():
            pass
        reaches(pod, OUTSIDE, wait=HANG)
        out, _ = watching.communicate(timeout=HANG)
        return out.split(" IP6 ")[1].split(" > ")[0]
