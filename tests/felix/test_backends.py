"""Each back end on a real kernel: rules stand, hold, are repaired, are not rewritten."""

from __future__ import annotations

import signal

import pytest

from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.world import World, eventually


@pytest.mark.parametrize("backend", ["nft", "legacy", NFTABLES])
def test_rules_in_either_back_end(bare_world: World, backend: str) -> None:
    world = bare_world
    world.environment |= mode(backend)
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    pod = world.add_pod("a", "cali0000000000a", "10.65.0.1")
    eventually(lambda: pod.reaches("203.0.113.9", wait=0.3))
    stranger = world.wire("cali000stranger", "10.65.0.30")
    world.ip("route add 10.65.0.30/32 dev cali000stranger")
    assert not stranger.reaches("10.65.0.1", wait=0.3)
    if backend == NFTABLES:
        saved, saved6 = (world.node.run("nft", "list", "table", f, "calico") for f in ("ip", "ip6"))
    else:
        saved, saved6 = (world.node.run(f"{p}-{backend}-save") for p in ("iptables", "ip6tables"))
    assert "cali-fw-cali0000000000a" in saved
    assert "fully" in saved
    assert "cali-tw-cali0000000000a" in saved6
    world.kernel.flush("cali-FORWARD")
    eventually(lambda: "cali-cidr-block" in world.chain("cali-FORWARD"), 4)
    world.stop_felix(signal.SIGKILL)
    world.start_felix()
    world.wait_ready()
    assert world.rule_writes == 0
    assert world.metric("muslin_felix_ipset_writes_total") == 0
    assert pod.reaches("203.0.113.9")
