"""DPL-3: in force means in the kernel, in both families; and nothing passes before."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time

import pytest

from libcalico.local.node_api import Await, InForce, Offer
from tests.felix.agent.test_node_server import connected, message
from tests.felix.world import CONTAINER, World, endpoint_spec
from tests.support.patience import HANG, wait_for

RULE = {"action": "Allow", "source": {"selector": "role == 'friend'"}}


PIECES = {
    True: (
        '"cali00000000web" : goto filter-cali-tw-cali00000000web',
        '"cali00000000web" : goto filter-cali-fw-cali00000000web',
        "chain filter-cali-tw-cali00000000web {",
        "jump filter-cali-pi-gnp/web",
        "chain filter-cali-pi-gnp/web {",
        "chain filter-cali-pro-kns.default {",
    ),
    False: (
        "-g cali-tw-cali00000000web",
        "-g cali-fw-cali00000000web",
        "-A cali-tw-cali00000000web ",
        "-j cali-pi-gnp/web",
        "-A cali-pi-gnp/web ",
        "-A cali-pro-kns.default",
    ),
}


def saved(world: World) -> tuple[str, str, str]:
    """The rules of IPv4, those of IPv6, and the sets."""
    run = world.node.run
    if world.kernel.native:
        both = [run("nft", "list", "table", family, "calico") for family in ("ip", "ip6")]
        return both[0], both[1], "".join(both)
    four, six = (
        "".join(run(f"{p}-{k}-save", "-t", "filter", check=False) for k in ("nft", "legacy"))
        for p in ("iptables", "ip6tables")
    )
    return four, six, run("ipset", "list")


@pytest.mark.asyncio
async def test_in_force_means_routes_sets_policies_and_chains(world: World) -> None:
    """Looked at as soon as felix says so; the endpoint is stored nowhere yet."""
    spec = {"selector": "role == 'web'", "types": ["Ingress"], "ingress": [RULE]}
    taken = world.metric("felix_calc_graph_updates_processed")
    world.put("globalnetworkpolicies", "web", "GlobalNetworkPolicy", spec)
    # The offer comes by the socket: it could else be heard of before what the datastore tells.
    wait_for(lambda: world.metric("felix_calc_graph_updates_processed") > taken)
    friend = world.wire("cali0000friend", "10.65.0.20", "fd65::20")
    world.put_endpoint("friend", friend, labels={"role": "friend"})
    wait_for(lambda: world.route("10.65.0.20/32") and world.route("fd65::20/128"))
    pod = world.wire("cali00000000web", "10.65.0.21", "fd65::21")
    name = world.endpoint_name("web")
    value = json.dumps(
        {
            "kind": "WorkloadEndpoint",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "namespace": "default", "labels": {"role": "web"}},
            "spec": endpoint_spec("web", pod),
        }
    )
    async with connected(world, "cni") as cni:
        await cni.send(Offer("default", name, value))
        await cni.send(Await("default", name, CONTAINER))
        told = await message(cni, InForce)
        assert told == InForce("default", name, CONTAINER, "")
        *rules, sets = await asyncio.to_thread(saved, world)
        assert world.route("10.65.0.21/32")
        assert world.route("fd65::21/128")
        for text in rules:
            for piece in PIECES[world.kernel.native]:
                assert piece in text, piece
        assert "10.65.0.20" in sets
        assert "fd65::20" in sets
        assert friend.reaches("10.65.0.21", wait=HANG)
    world.delete("globalnetworkpolicies", "web")


def test_a_successor_is_never_met_by_its_predecessors_policy(world: World) -> None:
    """The same interface comes back closed right after it was open."""
    world.put("profiles", "kns.closed", "Profile", {})
    pod = world.wire("cali000comeback", "10.65.0.30")
    receiver = pod.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receiver.bind(("", 7))
    receiver.setblocking(False)
    sender = world.outside.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sender.setblocking(False)
    numbers = itertools.count()

    def arrived(seconds: float) -> int:
        """Datagrams that arrive while some thousand a second are sent; of these, no earlier ones.

        Where others take the processors, what an open endpoint let in may arrive later.
        """
        number = b"%d" % next(numbers)
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(10):
                try:
                    sender.sendto(number, ("10.65.0.30", 7))
                except OSError:
                    break
            time.sleep(0.005)
            try:
                while told := receiver.recv(10):
                    count += told == number
            except BlockingIOError:
                pass
        return count

    with receiver, sender:
        for number in range(5):
            world.put_endpoint("comeback", pod, container="a" * 60 + f"{number:04}")
            wait_for(lambda: arrived(0.05), "an open endpoint receives")
            world.delete_endpoint("comeback")
            wait_for(lambda: not world.route("10.65.0.30/32"))
            wait_for(lambda: not arrived(0.05))
            world.put_endpoint(
                "comeback", pod, container="b" * 60 + f"{number:04}", profiles=["kns.closed"]
            )
            assert not arrived(0.5)
            wait_for(lambda: world.route("10.65.0.30/32"), "it is in force")
            assert not arrived(0.1)
    world.delete_endpoint("comeback")
