"""Full mesh: full-mesh/README.md, by its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from libcalico.process import paths
from tests.lab_scenarios.scene import Scene, scene
from tests.support.patience import HANG

NODES = {"node1": "10.99.1.1", "node2": "10.99.1.2", "node3": "10.99.1.3"}


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("full-mesh") as made:
        yield made


@pytest.mark.promise("F-38")
@pytest.mark.promise("M-115")
def test_1_everybody_peers_with_everybody(made: Scene) -> None:
    for name, own in NODES.items():
        made.sessions_are(name, *(each for each in NODES.values() if each != own))


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


@pytest.mark.promise("F-37", "F-38")
@pytest.mark.promise("F-48", "M-127", "M-251")
def test_3_ways_lead_straight_to_the_node(made: Scene) -> None:
    for here in NODES:
        for there, address in NODES.items():
            block = made.block(made.on(there))
            if here != there:
                made.way_becomes(here, block, (address, "eth0"))
            else:
                made.own_block_ends_here(here)


@pytest.mark.promise("PAIN-12")
def test_4_a_node_that_is_cut_off_costs_the_others_nothing(made: Scene) -> None:
    block = made.block(made.on("node3"))
    with made.traffic("on-node1", "on-node2") as seen:
        made.lab.link("node3", up=False)
        try:
            for name in ("node1", "node2"):
                made.eventually(
                    lambda name=name: not made.ways(name, block),  # type: ignore[misc]
                    f"{name} has no way to node3's block",
                )
                made.machine(name).wait_http(paths.FELIX_HEALTH_PORT, "/readiness", timeout=HANG)
        finally:
            made.lab.link("node3", up=True)
        made.way_becomes("node1", block, (NODES["node3"], "eth0"))
    print("\n".join(seen.lines))
    assert seen.sent > 100
    assert (seen.lost, seen.stream_error) == (0, "")
    made.connected()


@pytest.mark.promise("F-34")
def test_5_a_disabled_pool_leaves_its_pods_alone(made: Scene) -> None:
    made.disabled_pool_leaves_pods_alone("pods")
    for here in NODES:
        for there, address in NODES.items():
            if here != there:
                made.way_becomes(here, made.block(made.on(there)), (address, "eth0"))


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
