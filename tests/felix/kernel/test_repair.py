"""Drift: whatever somebody changes of what felix owns is back in time; the rest is left alone."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import pytest

from tests.felix.world import BLOCK, BLOCK6, Pod, World
from tests.support.patience import HANG, wait_for

POD = "cali0000000000a"
MAC = "aa:bb:cc:dd:ee:01"


@pytest.fixture(scope="module")
def pod(world: World) -> Pod:
    pod = world.add_pod("a", POD, "10.65.0.1", "fd65::1")
    wait_for(lambda: world.route("10.65.0.1/32"))
    pod.until_reached("203.0.113.9")
    return pod


def back_within(seconds: float, check: Callable[[], object]) -> float:
    """How long it took; fails after `seconds`."""
    start = time.monotonic()
    wait_for(check)
    return time.monotonic() - start


@pytest.mark.promise("M-120")
@pytest.mark.parametrize(
    ("prefix", "deleted"),
    [
        ("10.65.0.1/32", "ip route del 10.65.0.1/32"),
        (BLOCK, f"ip route del blackhole {BLOCK}"),
        ("fd65::1/128", "ip -6 route del fd65::1/128"),
        (BLOCK6, f"ip -6 route del blackhole {BLOCK6}"),
    ],
)
def test_a_deleted_route_is_back_within_a_second(
    world: World, pod: Pod, prefix: str, deleted: str
) -> None:
    wait_for(lambda: world.route(prefix))
    before = world.route(prefix)
    world.node.run(*deleted.split())
    back_within(1.0, lambda: world.route(prefix) == before)


def test_a_route_of_ours_that_nobody_wants_goes_within_a_second(world: World, pod: Pod) -> None:
    world.ip(f"route add 10.65.0.9 dev {POD} proto 109 metric 1024")
    back_within(1.0, lambda: not world.route("10.65.0.9/32"))


@pytest.mark.promise("M-119")
@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("net.ipv4.conf.{}.proxy_arp", "0", "1"),
        ("net.ipv4.conf.{}.forwarding", "0", "1"),
        ("net.ipv6.conf.{}.proxy_ndp", "0", "1"),
        ("net.ipv6.conf.{}.forwarding", "0", "1"),
    ],
)
def test_a_changed_setting_is_back_within_a_second(
    world: World, pod: Pod, name: str, wrong: str, right: str
) -> None:
    setting = name.format(POD)
    wait_for(lambda: world.node.run("sysctl", "-n", setting).strip() == right)
    world.node.run("sysctl", "-qw", f"{setting}={wrong}")
    back_within(1.0, lambda: world.node.run("sysctl", "-n", setting).strip() == right)


@pytest.mark.promise("M-119")
def test_a_changed_hardware_address_is_back_within_a_second(world: World, pod: Pod) -> None:
    world.node.run("ip", "link", "set", POD, "address", "02:00:00:00:00:01")
    back_within(1.0, lambda: "ee:ee:ee:ee:ee:ee" in world.node.run("ip", "link", "show", POD))


def test_a_link_that_went_down_is_up_with_its_routes_within_a_second(
    world: World, pod: Pod
) -> None:
    world.node.run("ip", "link", "set", POD, "down")
    back_within(1.0, lambda: world.route("10.65.0.1/32"))
    wait_for(lambda: world.route("fd65::1/128"))
    pod.until_reached("10.99.7.1", "the carrier is back, too")


def test_a_link_that_flapped_has_its_routes_within_a_second(world: World, pod: Pod) -> None:
    """Down and up in one system call's time: the kernel drops the route and says nothing."""
    world.node.run("ip", "-batch", "-", input=f"link set {POD} down\nlink set {POD} up\n")
    back_within(1.0, lambda: world.route("10.65.0.1/32"))


def test_a_changed_rule_is_back_within_the_refresh_interval(world: World, pod: Pod) -> None:
    drift = world.metric("muslin_felix_rule_drift_total")
    world.kernel.flush("cali-from-wl-dispatch")
    world.kernel.flush(f"cali-tw-{POD}")
    # It may be back already: of nftables felix hears at once, of iptables it reads now and then.
    back_within(4.0, lambda: "Unknown interface" in world.chain("cali-from-wl-dispatch"))
    wait_for(lambda: "ESTABLISHED" in world.chain(f"cali-tw-{POD}").upper())
    # It counts what it has mended.
    wait_for(lambda: world.metric("muslin_felix_rule_drift_total") > drift)


def test_a_removed_hook_is_back_first(world: World, pod: Pod) -> None:
    if world.kernel.native:
        world.kernel.flush("FORWARD")
        back_within(4.0, lambda: "cali-FORWARD" in world.chain("FORWARD"))
        return
    # In one step: felix could mend between two, and the foreign rule would come last.
    world.node.run(
        f"iptables-{'legacy' if world.kernel.legacy else 'nft'}-restore",
        "--noflush",
        input="*filter\n-F FORWARD\n-A FORWARD -s 192.0.2.1 -j DROP\nCOMMIT\n",
    )
    back_within(4.0, lambda: "cali-FORWARD" in world.chain("FORWARD"))
    rules = [line for line in world.chain("FORWARD").splitlines() if line.startswith("-A")]
    assert "cali-FORWARD" in rules[0]
    assert "192.0.2.1" in rules[1]
    assert "explicitly accepted" in rules[-1]
    world.iptables("-D", "FORWARD", "-s", "192.0.2.1", "-j", "DROP")


def test_felix_without_descriptors_repairs_once_it_has_some(world: World, pod: Pod) -> None:
    """Calico's operators meet EMFILE and EAGAIN: no program can be run to read rules back."""
    assert world.process is not None
    pid, limits = world.process.pid, resource.RLIMIT_NOFILE
    before = len(world.log())
    allowed = resource.prlimit(pid, limits)

    def failed() -> bool:
        # Each time anew: a program that ran at the first look gives its descriptors back.
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(pid, limits, (free, allowed[1]))
        return "read-back of the rules failed" in world.log()[before:]

    try:
        failed()
        world.kernel.flush("FORWARD")
        if not world.kernel.native:
            wait_for(failed)
            assert "Too many open files" in world.log()[before:]
    finally:
        resource.prlimit(pid, limits, allowed)
    wait_for(lambda: "cali-FORWARD" in world.chain("FORWARD"))
    assert "never retrieved" not in world.log()[before:]
    assert "Traceback" not in world.log()[before:]


@pytest.mark.parametrize("address", ["10.65.0.1", "fd65::1"])
def test_a_permanent_neighbour_with_a_wrong_mac_goes(world: World, pod: Pod, address: str) -> None:
    """PIN-1: the kernel asks for the pod's MAC itself, and a pinned wrong one cuts the pod off."""
    shown = f"neigh show {address} dev {POD} nud permanent"
    world.ip(f"neigh replace {address} lladdr 02:00:00:00:00:99 dev {POD} nud permanent")
    wait_for(lambda: not world.ip(shown).strip())
    assert pod.reaches("203.0.113.9", wait=HANG)
    world.ip(f"neigh replace {address} lladdr {MAC} dev {POD} nud permanent")
    world.ip(f"neigh replace 192.0.2.77 lladdr 02:00:00:00:00:98 dev {POD} nud permanent")
    world.node.run("ip", "route", "del", "10.65.0.1/32")
    wait_for(lambda: world.route("10.65.0.1/32"))
    assert world.ip(shown).strip(), "of the workload's own MAC: Calico's felix sets such"
    assert world.ip(f"neigh show 192.0.2.77 dev {POD}").strip(), "no address of the workload"
    world.ip(f"neigh del {address} dev {POD}")
    world.ip(f"neigh del 192.0.2.77 dev {POD}")


def test_what_is_foreign_stays(world: World, pod: Pod) -> None:
    node = world.node
    world.ip("route add 198.51.100.0/24 via 10.99.7.2 proto 12")
    world.ip(f"route add 10.65.0.99 dev {POD}")
    node.run("ipset", "create", "someone", "hash:ip")
    world.iptables("-N", "SOMEONE")
    world.iptables("-A", "INPUT", "-j", "SOMEONE")
    world.add_pod("other", "cali0000other", "10.65.0.50")
    wait_for(lambda: world.route("10.65.0.50/32"))
    time_for_a_refresh(world)
    assert "198.51.100.0/24" in world.routes("proto", "12")
    assert f"10.65.0.99 dev {POD}" in world.routes()
    assert "someone" in node.run("ipset", "list", "-name")
    assert "-j SOMEONE" in node.run("iptables-nft", "-S", "INPUT")


def time_for_a_refresh(world: World) -> None:
    reads = world.rule_reads
    wait_for(lambda: world.rule_reads > reads)


def test_a_foreign_route_in_the_way_is_named_not_replaced(world: World, pod: Pod) -> None:
    world.ip("route add 10.65.0.60 via 10.99.7.2 metric 1024 proto static")
    world.add_pod("late", "cali00000late", "10.65.0.60")
    wait_for(lambda: world.metric("muslin_felix_route_conflicts") == 1)
    assert "proto static" in world.routes("exact", "10.65.0.60/32")
    world.ip("route del 10.65.0.60 metric 1024")
    back_within(1.0, lambda: world.route("10.65.0.60/32"))


def test_idle_felix_writes_nothing(world: World, pod: Pod) -> None:
    def writes() -> dict[str, float]:
        names = ("muslin_felix_route_writes", "muslin_felix_link_writes",
                 "muslin_felix_ipset_writes")  # fmt: skip
        found = {name: world.metric(f"{name}_total") for name in names}
        return found | {"rules": world.rule_writes}

    # What the earlier tests began is done, and counted.
    time_for_a_refresh(world)
    before = writes()
    time_for_a_refresh(world)
    assert writes() == before


def test_a_deleted_neighbour_of_a_pod_is_back_within_a_second(world: World, pod: Pod) -> None:
    """The host's entry is not pinned, so the kernel itself learns it again; nobody is cut off."""
    neighbour = ("ip", "neigh", "show", "10.65.0.1", "dev", POD)
    assert pod.reaches("203.0.113.9", wait=HANG)
    assert "lladdr" in world.node.run(*neighbour)
    world.node.run("ip", "neigh", "del", "10.65.0.1", "dev", POD)
    assert "lladdr" not in world.node.run(*neighbour)
    back_within(1.0, lambda: pod.reaches("203.0.113.9", wait=0.3))
    assert "lladdr" in world.node.run(*neighbour)


def test_a_pod_whose_gateway_entry_was_deleted_is_answered_by_proxy_arp(
    world: World, pod: Pod
) -> None:
    pod.space.run("ip", "neigh", "flush", "dev", "eth0", "nud", "all")
    back_within(1.0, lambda: pod.reaches("203.0.113.9", wait=0.3))
    assert "ee:ee:ee:ee:ee:ee" in pod.space.run("ip", "neigh", "show", "169.254.1.1")
