"""Pools with and without VXLAN over two racks: mixed/README.md, by its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import pods, stream
from lab.topology import ROUTER_AS
from tests.lab_scenarios.scene import Scene, scene

OVERLAY = {"cni.projectcalico.org/ipv4pools": '["overlay"]'}
ROUTED = {"cni.projectcalico.org/ipv4pools": '["routed"]'}
OVERLAY_PODS = ["on-node1", "on-node2", "on-node3"]
VXLAN_PORT = "4789"
PEER = """\
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {{name: {node}-router}}
spec: {{node: {node}, peerIP: {peer}, asNumber: {number}}}
---
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("mixed", annotations=OVERLAY) as made:
        yield made


def wrapped(made: Scene, source: str, target: str) -> int:
    """How many VXLAN packets the target's node got of the source's while it was pinged five times.

    Others may arrive: the last ones of connections that ended before.
    """
    node = made.pods[target].node
    (sender,) = (one for one in made.lab.plan.nodes if one.name == made.pods[source].node)
    counting = stream.begin(made.machine(node), None, "count", VXLAN_PORT)
    assert pods.answers(made.lab, made.pods[source], made.pods[target].address, count=5)
    arrived: dict[str, int] = counting.finish()["arrived"]
    return arrived.get(str(sender.address.ip), 0)


@pytest.mark.promise("F-62")
def test_1_pods_of_the_overlay_reach_each_other(made: Scene) -> None:
    assert all(pod.address.startswith("10.65.") for pod in made.pods.values())
    made.connected()


@pytest.mark.promise("F-62", "M-147")
def test_2_only_ways_to_the_other_rack_are_tunnels(made: Scene) -> None:
    made.way_becomes("node1", made.block(made.on("node2")), ("10.99.1.2", "eth0"))
    for here, there in (("node1", "node3"), ("node2", "node3"), ("node3", "node1")):
        block = made.block(made.on(there))
        made.eventually(
            lambda here=here, block=block: (  # type: ignore[misc]
                {device for _, device in made.ways(here, block)} == {"vxlan.calico"}
            ),
            f"{here} reaches {there} by VXLAN",
        )


@pytest.mark.promise("F-60", "F-62")
def test_3_only_packets_to_the_other_rack_are_wrapped(made: Scene) -> None:
    assert wrapped(made, "on-node1", "on-node2") == 0
    assert wrapped(made, "on-node1", "on-node3") >= 5
    assert not [r for r in made.routes("router") if r["dst"].startswith("10.65.")]


def test_4_the_routed_pool_ends_where_nobody_routes(made: Scene) -> None:
    for node in ("node1", "node2", "node3"):
        assert made.add(f"routed-{node}", node, ROUTED).address.startswith("10.66.")
    made.connected(["routed-node1", "routed-node2"])
    for here, there in (("node1", "node3"), ("node3", "node1")):
        source, target = made.pods[f"routed-{here}"], made.pods[f"routed-{there}"]
        assert not pods.ping(made.lab, source, target.address, count=2)


@pytest.mark.promise("M-142")
def test_5_with_a_router_that_knows_it_goes_everywhere(made: Scene) -> None:
    made.apply(
        "".join(
            PEER.format(node=node.name, peer=node.segment.gateway, number=ROUTER_AS)
            for node in made.lab.plan.nodes
        )
    )
    made.connected(["routed-node1", "routed-node2", "routed-node3"])
    assert wrapped(made, "routed-node1", "routed-node3") == 0
    made.connected(OVERLAY_PODS)
    assert wrapped(made, "on-node1", "on-node3") >= 5


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
