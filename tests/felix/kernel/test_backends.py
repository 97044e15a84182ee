"""Each back end on a real kernel: rules stand, hold, are repaired, are not rewritten."""

from __future__ import annotations

import itertools
import signal

import pytest

from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.world import World
from tests.support.patience import HANG, wait_for


@pytest.mark.parametrize("backend", ["nft", "legacy", NFTABLES])
def test_rules_in_either_back_end(bare_world: World, backend: str) -> None:
    world = bare_world
    world.environment |= mode(backend)
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    pod = world.add_pod("a", "cali0000000000a", "10.65.0.1")
    wait_for(lambda: pod.reaches("203.0.113.9", wait=0.3))
    stranger = world.wire("cali000stranger", "10.65.0.30")
    world.ip("route add 10.65.0.30/32 dev cali000stranger")
    assert not stranger.reaches("10.65.0.1", wait=0.3)

    def six() -> str:
        if backend == NFTABLES:
            return world.node.run("nft", "list", "table", "ip6", "calico")
        return world.node.run(f"ip6tables-{backend}-save")

    if backend == NFTABLES:
        saved = world.node.run("nft", "list", "table", "ip", "calico")
    else:
        saved = world.node.run(f"iptables-{backend}-save")
    saved6 = six()
    assert "cali-fw-cali0000000000a" in saved
    assert "fully" in saved
    # It has no address there: dispatch drops what it sends, and what is sent to it (RBK-5).
    assert "cali-from-wl-dispatch" in saved6
    assert "cali0000000000a" not in saved6
    two = world.add_pod("b", "cali1000000000b", "10.65.0.2", "fd65::2")
    wait_for(lambda: two.reaches("203.0.113.9", wait=0.3))
    # Each family is written by itself.
    wait_for(lambda: "cali-tw-cali1000000000b" in six())
    # It loses an address while something comes all the time: its old rules do not wait for a pause.
    stirs = itertools.cycle(("add", "del"))

    def withdrawn() -> bool:
        world.node.run("ip", "address", next(stirs), "192.0.2.1/32", "dev", "lo")
        return "cali1000000000b" not in six()

    world.put_endpoint("b", two, ipNetworks=["10.65.0.2/32"])
    wait_for(withdrawn)
    world.kernel.flush("cali-FORWARD")
    wait_for(lambda: "to-wl-dispatch" in world.chain("cali-FORWARD"))
    world.stop_felix(signal.SIGKILL)
    world.start_felix()
    world.wait_ready()
    assert world.rule_writes == 0
    assert world.metric("muslin_felix_ipset_writes_total") == 0
    assert pod.reaches("203.0.113.9", wait=HANG)
