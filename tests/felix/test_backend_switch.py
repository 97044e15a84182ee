"""BKE-1: another back end takes over while packets flow, and nothing of the old one is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.felix.in_kernel import InKernel
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both, make_stage
from tests.felix.world import World, eventually

KUBE_PROXY = """
add table ip kube-proxy
add chain ip kube-proxy services { type nat hook prerouting priority -100; }
add rule ip kube-proxy services counter
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with make_stage(tmp_path_factory.mktemp("world"), "nft") as stage:
        world = stage.world
        world.stop_felix()
        # The environment says nothing of the mode: the datastore does.
        del world.environment["FELIX_NFTABLESMODE"]
        set_mode(world, "Disabled")
        world.start_felix()
        world.wait_ready()
        yield stage


def set_mode(world: World, mode: str) -> None:
    world.put("felixconfigurations", "default", "FelixConfiguration", {"nftablesMode": mode})


def ours(world: World) -> tuple[bool, bool, bool]:
    """Whether there is anything of ours in nftables, in iptables, among the ipsets."""
    saved = "".join(
        world.node.run(f"{program}-{kind}-save", check=False)
        for program in ("iptables", "ip6tables")
        for kind in ("nft", "legacy")
    )
    listed = world.node.run("nft", "list", "tables")
    return " calico\n" in listed, "cali" in saved, "cali" in world.node.run("ipset", "list", "-n")


NFTABLES, IPTABLES = (True, False, False), (False, True, True)


@contextmanager
def never(stage: Stage, probe: str, always: str) -> Iterator[None]:
    """While this lasts one probe never comes through, and the other always does."""
    leaked, lost, count, over = [], [], 0, threading.Event()

    def watch() -> None:
        nonlocal count
        while not over.is_set():
            through = stage.through(probe, always)
            count += 1
            if probe in through:
                leaked.append(time.monotonic())
            if always not in through:
                lost.append(time.monotonic())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert (leaked, lost) == ([], [])
    assert count > 3, "it was looked at"


def test_nftables_and_back_without_a_gap(stage: Stage) -> None:
    world = stage.world
    node = world.node
    stage.policy("case", [allow(protocol="TCP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.iptables("-A", "FORWARD", "-s", "192.0.2.9", "-j", "DROP")
    node.run("ipset", "create", "theirs", "hash:ip", "-exist")
    assert ours(world) == IPTABLES
    for mode, wanted in (("Enabled", NFTABLES), ("Disabled", IPTABLES)):
        with never(stage, "other 4 tcp 80", "client 4 tcp 80"):
            set_mode(world, mode)
            eventually(lambda wanted=wanted: ours(world) == wanted, 15)  # type: ignore[misc]
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
        # What comes later is enforced, too.
        stage.policy("more", [allow(protocol="UDP", source=ONLY_CLIENT)])
        stage.comes_to(both("client * udp 53"), both("other * udp 53"))
        world.delete("globalnetworkpolicies", "more")
        stage.comes_to(set(), both("client * udp 53"))
        assert "192.0.2.9" in node.run("iptables-nft", "-S", "FORWARD")
        assert "theirs" in node.run("ipset", "list", "-n")


def test_auto_follows_kube_proxy(stage: Stage) -> None:
    world = stage.world
    set_mode(world, "Auto")
    stage.policy("case", [allow(protocol="TCP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    assert ours(world) == IPTABLES
    world.node.run("nft", "-f", "-", input=KUBE_PROXY)
    # It is looked for every fifteen seconds, or when parameters change.
    eventually(lambda: ours(world) == NFTABLES, 40)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    assert InKernel(world.node, native=True).chain("cali-pi-gnp/case")
    world.node.run("nft", "delete", "table", "ip", "kube-proxy")
    set_mode(world, "Disabled")
    eventually(lambda: ours(world) == IPTABLES, 15)


def test_what_a_dead_felix_left_in_another_back_end_goes(stage: Stage) -> None:
    world = stage.world
    stage.policy("case", [allow(protocol="TCP", source=ONLY_CLIENT)])
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.stop_felix(9)
    set_mode(world, "Enabled")
    with never(stage, "other 4 tcp 80", "client 4 tcp 80"):
        world.start_felix()
        world.wait_ready()
        eventually(lambda: ours(world) == NFTABLES, 15)
    world.stop_felix(9)
    set_mode(world, "Disabled")
    world.start_felix()
    world.wait_ready()
    eventually(lambda: ours(world) == IPTABLES, 15)
