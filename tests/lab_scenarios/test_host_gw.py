"""Ways from the datastore alone: host-gw/README.md, by its numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lab import proc
from lab.demo import look
from tests.lab_scenarios.scene import Scene, scene
from tests.support import stopping
from tests.support.patience import HANG

NODES = {"node1": "10.99.1.1", "node2": "10.99.1.2"}
TINY = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: tiny}
spec: {cidr: 10.68.0.0/30, blockSize: 30, ipipMode: Never, vxlanMode: Never}
"""
FROM_TINY = {"cni.projectcalico.org/ipv4pools": '["tiny"]'}


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("host-gw") as made:
        yield made


@pytest.mark.promise("M-182")
@pytest.mark.promise("F-58", "M-192")
def test_1_nobody_speaks_bgp(made: Scene) -> None:
    for node in made.lab.nodes:
        assert look.processes(node, "calico-felix")
        assert look.processes(node, "calico-bgp") == []
        assert ":179 " not in node.run(["ss", "-ltn"]).stdout


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


@pytest.mark.promise("F-48", "F-58", "M-251")
def test_3_ways_lead_straight_to_the_node(made: Scene) -> None:
    for here in NODES:
        for there, address in NODES.items():
            block = made.block(made.on(there))
            if here != there:
                made.way_becomes(here, block, (address, "eth0"))
            else:
                made.own_block_ends_here(here)


@pytest.mark.promise("F-58", "PAIN-4")
def test_4_a_borrowed_address_has_a_way_of_its_own(made: Scene) -> None:
    made.apply(TINY)
    owner, borrower = (made.add(f"tiny-{node}", node, FROM_TINY) for node in NODES)
    made.way_becomes("node2", "10.68.0.0/30", (NODES["node1"], "eth0"))
    made.way_becomes("node1", f"{borrower.address}/32", (NODES["node2"], "eth0"))
    made.connected([owner.name, borrower.name])


@pytest.mark.promise("F-58")
def test_5_without_etcd_and_over_a_restart_packets_go_on(made: Scene) -> None:
    node, etcd = made.machine("node1"), made.lab.etcd
    servers = [pid for pid in etcd.pids() if proc.command_of(pid).startswith("etcd ")]
    (before,) = look.processes(node, "calico-felix")
    with made.traffic("on-node1", "on-node2") as seen:
        for pid in servers:
            stopping.pause(pid)
        try:
            os.kill(before, signal.SIGKILL)
            made.eventually(
                lambda: look.processes(node, "calico-felix") not in ([], [before]),
                "felix is there again",
            )
        finally:
            for pid in servers:
                os.kill(pid, signal.SIGCONT)
        node.wait_http(9099, "/readiness", timeout=HANG)
    print("\n".join(seen.lines))
    assert seen.sent > 40
    assert (seen.lost, seen.stream_error) == (0, "")
    made.connected()


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
