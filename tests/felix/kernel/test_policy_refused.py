"""While iptables-restore is refused, no pod is reached under rules that are not its own (DPL-5)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.felix.kernel.test_sweeps import never_quiet
from tests.felix.world import NODE, POOL, World
from tests.support.patience import wait_for

ADDRESS, ROUTE = "10.65.0.40", "10.65.0.40/32"


@pytest.fixture
def refusing(bare_world: World) -> tuple[World, Path]:
    """A node on which a file decides whether iptables-restore works; felix does not run yet."""
    folder, flag = bare_world.folder / "bin", bare_world.folder / "refused"
    folder.mkdir()
    for name in ("iptables-nft-restore", "ip6tables-nft-restore"):
        shim = folder / name
        shim.write_text(
            "#!/bin/sh\n"
            'text=$(mktemp); cat > "$text"\n'
            f'if [ -e "{flag}" ]; then rm "$text"; echo refused >&2; exit 1; fi\n'
            f'/usr/sbin/{name} "$@" < "$text"; code=$?; rm "$text"; exit $code\n'
        )
        shim.chmod(0o755)
    bare_world.program = ("tests.felix.restore_only",)
    bare_world.environment |= {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FELIX_IPTABLESBACKEND": "NFT",
    }
    bare_world.etcd.start()
    bare_world.write_cluster()
    return bare_world, flag


def test_without_hooks_no_pod_has_a_route(refusing: tuple[World, Path]) -> None:
    world, flag = refusing
    flag.touch()
    world.add_pod("first", "cali0first", ADDRESS)
    world.start_felix()
    wait_for(lambda: "refused" in world.log(), "the first commit is refused")
    never_routed(world, 1.0)
    flag.unlink()
    wait_for(lambda: world.route(ROUTE))
    world.wait_ready()


def test_no_tunnel_opens_before_its_rules(refusing: tuple[World, Path]) -> None:
    """Neither at the start nor when a pool asks; what stands already goes on (TDV-4)."""
    world, flag = refusing
    ends = {"ipv4VXLANTunnelAddr": "10.65.0.0", "bgp": {"ipv4Address": "10.99.7.1/24"}}
    world.put("nodes", NODE, "Node", ends)
    world.put("ippools", "v4", "IPPool", {"cidr": POOL, "vxlanMode": "Always"})

    def device() -> str:
        return world.node.run("ip", "-br", "link", "show", "type", "vxlan")

    def never_open(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert not device()
            time.sleep(0.02)

    flag.touch()
    world.environment["CALICO_NETWORKING_BACKEND"] = "vxlan"
    world.start_felix()
    wait_for(lambda: "refused" in world.log())
    never_open(1.0)
    flag.unlink()
    wait_for(lambda: "UP" in device())
    world.put("ippools", "v4", "IPPool", {"cidr": POOL})
    wait_for(lambda: not device())

    def guarded() -> bool:
        return any("VXLAN packets" in text for _, text in world.kernel.counted("cali-INPUT"))

    wait_for(lambda: not guarded(), "the rules go with the device")
    flag.touch()
    world.put("ippools", "v4", "IPPool", {"cidr": POOL, "vxlanMode": "Always"})
    never_open(2.0)
    flag.unlink()
    wait_for(lambda: "UP" in device())
    world.stop_felix()
    flag.touch()
    world.put("ippools", "v4", "IPPool", {"cidr": POOL, "vxlanMode": "Always", "natOutgoing": True})
    said = world.log().count("refused")
    world.start_felix()
    wait_for(lambda: world.log().count("refused") > said)
    assert "UP" in device()


@pytest.mark.parametrize("change", ["profile", "policy"])
def test_a_successor_waits_for_its_rules(refusing: tuple[World, Path], change: str) -> None:
    """Its predecessor's chains are open, or those of the policy that both have."""
    world, flag = refusing
    policy = {"order": 1, "selector": "has(web)", "types": ["Ingress"], "ingress": [
        {"action": "Allow"}]}  # fmt: skip
    labels = {"web": ""} if change == "policy" else {}
    world.put("globalnetworkpolicies", "case", "GlobalNetworkPolicy", policy)
    world.put("profiles", "kns.closed", "Profile", {})
    world.start_felix()
    world.wait_ready()
    pod = world.wire("cali0second", ADDRESS)
    world.put_endpoint("second", pod, container="a" * 64, labels=labels)
    wait_for(lambda: world.route(ROUTE))
    # The route may come first: without the predecessor's chains the successor meets none.
    wait_for(lambda: in_force(world) == 1)
    flag.touch()
    with never_quiet(world):
        # With its interface, so that its chains wait for a sweep.
        world.node.run("ip", "link", "del", "cali0second")
        world.delete_endpoint("second")
        # Without its link it is not in force either: that it is gone says another figure. A felix
        # that has not heard of that would rightly serve the predecessor again.
        wait_for(lambda: world.metric("felix_active_local_endpoints") == 0)
        wait_for(lambda: in_force(world) == 0)
        pod = world.wire("cali0second", ADDRESS)
        if change == "policy":
            shut = policy | {"ingress": []}
            taken = world.metric("felix_calc_graph_updates_processed")
            world.put("globalnetworkpolicies", "case", "GlobalNetworkPolicy", shut)
            # Each kind has a watch of its own: the endpoint could be heard of first.
            wait_for(lambda: world.metric("felix_calc_graph_updates_processed") > taken)
            world.put_endpoint("second", pod, container="b" * 64, labels=labels)
        else:
            world.put_endpoint("second", pod, container="b" * 64, profiles=["kns.closed"])
        never_routed(world, 2.0)
    wait_for(lambda: "refused" in world.log())
    never_routed(world, 0.5)
    flag.unlink()
    wait_for(lambda: world.route(ROUTE))


def never_routed(world: World, seconds: float) -> None:
    """No route to the pod for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not world.route(ROUTE)
        time.sleep(0.02)


def in_force(world: World) -> int:
    """How many endpoints felix says are in force."""
    status = world.folder / "run" / "calico" / "status" / "felix.json"
    # Felix writes it a little after it has begun.
    return int(json.loads(status.read_text())["endpoints_in_force"]) if status.exists() else -1


def test_a_set_in_foreign_use_holds_nobody_up(refusing: tuple[World, Path]) -> None:
    """A set of ours that nobody wants but a stranger's rule names cannot be destroyed."""
    world, _ = refusing
    world.node.run("ipset", "create", "cali40s:old", "hash:net")
    rule = "-A INPUT -m set --match-set cali40s:old src"
    world.node.run("iptables-nft", *rule.split())
    world.add_pod("third", "cali0third", ADDRESS)
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: in_force(world) == 1)
    assert "cali40s:old" in world.node.run("ipset", "list", "-n")
    # At first it is in use for a moment, as any set may be.
    wait_for(lambda: "cali40s:old" in world.log(), "it is said")
    wait_for(lambda: world.metric("felix_int_dataplane_failures_total") >= 1)
