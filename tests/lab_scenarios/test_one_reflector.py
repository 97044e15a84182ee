"""One reflector in the cluster: one-reflector/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import scenarios
from tests.lab_scenarios.scene import Scene, scene

ONE, TWO, THREE = "10.99.1.1", "10.99.1.2", "10.99.1.3"
MESH = """\
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: true, asNumber: 64512}
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("one-reflector") as made:
        yield made


@pytest.mark.promise("F-39", "M-128")
def test_1_all_sessions_are_the_reflectors(made: Scene) -> None:
    made.sessions_are("node1", TWO, THREE)
    made.sessions_are("node2", ONE)
    made.sessions_are("node3", ONE)


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


def test_3_reflected_ways_lead_to_the_owner(made: Scene) -> None:
    made.way_becomes("node2", made.block(made.on("node3")), (THREE, "eth0"))
    made.way_becomes("node3", made.block(made.on("node2")), (TWO, "eth0"))


@pytest.mark.promise("M-128")
def test_4_no_packet_passes_the_reflector(made: Scene) -> None:
    one, two, three = (made.on(f"node{number}") for number in (1, 2, 3))
    with made.passing("node1", two, three) as packets:
        with made.traffic("on-node2", "on-node3") as seen:
            made.connected(["on-node2", "on-node3"])
        assert (seen.lost, seen.stream_error) == (0, "")
        assert packets() == 0
    # The counter does count: this goes through.
    with made.passing("node1", one, two) as packets:
        made.connected(["on-node1", "on-node2"])
        assert packets() > 0


def reflects(made: Scene, cluster_id: str | None) -> None:
    """Node1 reflects under this id; a node that reflects is no part of the mesh."""
    patch = json.dumps({"spec": {"bgp": {"routeReflectorClusterID": cluster_id}}})
    made.machine("node1").run(["calicoctl", "patch", "node", "node1", "-p", patch])


@pytest.mark.promise("PAIN-15")
def test_5_to_the_mesh_and_back_without_a_gap(made: Scene) -> None:
    with made.traffic("on-node2", "on-node3") as seen:
        made.apply(MESH)
        made.sessions_are("node2", ONE, THREE)
        reflects(made, None)
        made.machine("node1").run(["calicoctl", "delete", "bgppeer", "reflectors"])
        made.sessions_are("node1", TWO, THREE)
        made.sessions_are("node2", ONE, THREE)
        made.sessions_are("node3", ONE, TWO)
        reflects(made, "244.0.0.1")
        made.apply(scenarios.find("one-reflector").objects.read_text())
        made.sessions_are("node2", ONE)
        made.sessions_are("node3", ONE)
    print("\n".join(seen.lines))
    assert seen.sent > 100
    assert (seen.lost, seen.stream_error) == (0, "")
    made.connected()


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
