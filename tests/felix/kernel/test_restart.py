"""Start and restart: nothing is touched before its time, nothing is written twice."""

from __future__ import annotations

import re
import signal
import subprocess
import time

import pytest

from lab.demo.traffic import lost
from tests.felix.world import BLOCK, World
from tests.support.ended import ended
from tests.support.patience import HANG, wait_for

KEPT = "10.65.77.0/26 via 10.99.7.2 dev eth0 proto 109 metric 1024"


def kernel_state(world: World) -> str:
    """Everything felix could change, without counters."""
    commands = (
        "ip route show table main",
        "ip -6 route show table main",
        "ip -o link",
        "ipset save",
        "iptables-legacy-save",
        "iptables-nft-save",
        "ip6tables-legacy-save",
        "ip6tables-nft-save",
        "nft -s list table ip calico",
        "nft -s list table ip6 calico",
        "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding",
    )
    text = "\n".join(world.node.run(*command.split(), check=False) for command in commands)
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    return re.sub(r"\[\d+:\d+\]| initval \w+| expires \d+sec", "", text)


def at_rest(world: World) -> str:
    """The same once felix has written it all: a pod is reached by IPv4 before IPv6 is done."""

    def done() -> bool:
        pods = world.metric("felix_active_local_endpoints")
        return world.metric("muslin_felix_endpoints_in_force") == pods

    wait_for(done, "every endpoint is in force")
    return kernel_state(world)


@pytest.mark.promise("M-206")
def test_without_a_datastore_felix_waits_and_touches_nothing(bare_world: World) -> None:
    world = bare_world
    world.ip(f"route add {KEPT}")
    before = kernel_state(world)
    world.start_felix()
    wait_for(lambda: world.get("/liveness")[0] == 200)
    assert world.get("/readiness")[0] == 503
    time.sleep(1)
    assert kernel_state(world) == before
    world.etcd.start()
    wait_for(lambda: "not ready" in world.log(), "an empty datastore is not in sync")
    assert kernel_state(world) == before
    assert world.get("/readiness")[0] == 503
    world.write_cluster()
    world.wait_ready()
    assert world.route(BLOCK)
    # bgp has not spoken yet: what the kernel has is kept.
    assert world.route("10.65.77.0/26")


@pytest.mark.promise("M-189")
@pytest.mark.promise("M-113")
def test_a_killed_felix_comes_back_unfelt_and_writes_nothing(world: World) -> None:
    pod = world.add_pod("a", "cali0000000000a", "10.65.0.1", "fd65::1")
    wait_for(lambda: pod.reaches("203.0.113.9", wait=0.3))
    wait_for(lambda: world.route("fd65::1/128"))
    wait_for(lambda: "tentative" not in world.node.run("ip", "-6", "address"))
    world.ip(f"route add {KEPT}")
    before = at_rest(world)
    with (
        ended(
            subprocess.Popen(
                pod.space.command("ping", "-n", "-i", "0.01", "-W", "20", "203.0.113.9"),
                stdout=subprocess.PIPE,
                text=True,
            )
        ) as pings,
        ended(
            subprocess.Popen(
                world.node.command("ip", "-o", "monitor", "link", "route", "rule"),
                stdout=subprocess.PIPE,
                text=True,
            )
        ) as monitor,
    ):
        world.stop_felix(signal.SIGKILL)
        assert kernel_state(world) == before
        world.start_felix()
        world.wait_ready()
        assert world.rule_writes == 0
        for name in ("muslin_felix_route_writes", "muslin_felix_link_writes",
                     "muslin_felix_ipset_writes"):  # fmt: skip
            assert world.metric(f"{name}_total") == 0, name
        assert kernel_state(world) == before
        assert pod.reaches("203.0.113.9", wait=HANG)  # those of the stream are answered before
        pings.send_signal(signal.SIGINT)
        sent, missing = lost(pings.communicate(timeout=HANG)[0])
        assert (missing, sent > 10) == (0, True)
        monitor.terminate()
        assert monitor.communicate(timeout=HANG)[0] == ""


def test_what_changed_while_felix_was_dead_is_made_good(world: World) -> None:
    stale = world.add_pod("stale", "cali000stale", "10.65.0.20")
    wait_for(lambda: stale.reaches("203.0.113.9", wait=0.3))
    world.stop_felix(signal.SIGKILL)
    world.delete_endpoint("stale")
    world.ip("route del blackhole 10.65.0.0/26")
    world.kernel.flush("cali-wl-to-host")
    fresh = world.add_pod("fresh", "cali000fresh", "10.65.0.21")
    world.start_felix()
    world.wait_ready()
    assert not world.route("10.65.0.20/32")
    assert world.route("10.65.0.21/32")
    assert world.route(BLOCK)
    assert not world.chain("cali-fw-cali000stale")
    assert "Configured DefaultEndpointToHostAction" in world.chain("cali-wl-to-host")
    assert fresh.reaches("203.0.113.9", wait=HANG)


def test_etcd_away_changes_nothing_and_back_it_is_followed(world: World) -> None:
    before = at_rest(world)
    world.etcd.stop()
    time.sleep(1)
    assert kernel_state(world) == before
    world.etcd.start()
    pod = world.add_pod("after", "cali000after", "10.65.0.22")
    wait_for(lambda: pod.reaches("203.0.113.9", wait=0.3))


def test_an_orderly_end_leaves_the_kernel_as_it_is(world: World) -> None:
    before = at_rest(world)
    assert world.stop_felix(signal.SIGTERM) == 0
    assert kernel_state(world) == before
    world.start_felix()
    world.wait_ready()


def test_a_wiped_datastore_is_no_order_to_remove_everything(world: World) -> None:
    world.stop_felix(signal.SIGKILL)
    world.etcd.delete("/calico/")
    before = kernel_state(world)
    world.start_felix()
    wait_for(lambda: "not ready" in world.log())
    assert kernel_state(world) == before
    assert world.get("/liveness")[0] == 200
    assert world.get("/readiness")[0] == 503
