"""Where the places of a drawing lie: no box over another, none outside, no line behind a third."""

from __future__ import annotations

import random

import pytest

from bgp.cluster.view import ClusterView
from calicoctl.routing.folding import PLACES, folded
from calicoctl.routing.labels import label
from calicoctl.routing.layout import Box, Layout, ends, laid_out
from calicoctl.routing.topology import Topology, topology
from tests.bgp.make import node, put, view_of
from tests.size import examples


def racks(count: int, sides: int, *, reflectors: int = 0, mesh: bool = False) -> ClusterView:
    """Nodes in racks, each with a router of its own; reflectors, or a mesh."""
    view = view_of(0)
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": mesh})
    for number in range(1, count + 1):
        more = {"routeReflectorClusterID": "224.0.0.1"} if number <= reflectors else {}
        node(view, number, labels={"rack": f"r{number % sides}", **(
            {"rr": "yes"} if number <= reflectors else {})}, **more)  # fmt: skip
    for rack in range(sides):
        spec = {"peerIP": f"10.9.{rack}.1", "asNumber": 64500, "nodeSelector": f"rack == 'r{rack}'"}
        put(view, "BGPPeer", f"tor{rack}", spec)
    if reflectors:
        put(view, "BGPPeer", "rr", {"nodeSelector": "all()", "peerSelector": "rr == 'yes'"})
    return view


CASES = {
    "a mesh of 15": view_of(15),
    "a small mesh": view_of(8),
    "one node": view_of(1),
    "15 nodes in racks and a mesh": racks(15, 3, mesh=True),
    "40 nodes in racks": racks(40, 4),
    "reflectors": racks(20, 1, reflectors=2),
    "200 nodes in racks and a mesh": racks(200, 4, mesh=True),
}


def plan_of(view: ClusterView) -> tuple[Topology, Layout]:
    drawn = folded(topology(view))
    return drawn, laid_out(drawn, label)


def overlap(one: Box, other: Box) -> bool:
    return (
        abs(one.x - other.x) < (one.width + other.width) / 2
        and abs(one.y - other.y) < (one.height + other.height) / 2
    )


def sound(drawn: Topology, plan: Layout) -> None:
    """No two boxes meet, and each is inside the drawing."""
    boxes = [plan.boxes[place.name] for place in drawn.places]
    for number, one in enumerate(boxes):
        assert one.width / 2 <= one.x <= plan.width - one.width / 2
        assert one.height / 2 <= one.y <= plan.height - one.height / 2
        assert not any(overlap(one, other) for other in boxes[:number])


@pytest.mark.parametrize("name", list(CASES))
def test_boxes_are_apart_and_lines_run_behind_no_third(name: str) -> None:
    drawn, plan = plan_of(CASES[name])
    sound(drawn, plan)
    for link in drawn.links:
        near, far = plan.boxes[link.near], plan.boxes[link.far]
        for place in drawn.places:
            box = plan.boxes[place.name]
            if place.name in (link.near, link.far) or near.y == far.y:
                continue
            # Lines between bands are straight: they meet the height of a band in one point.
            begin, end = ends(near, far)
            for y in (box.y - box.height / 2, box.y, box.y + box.height / 2):
                if min(begin, end) < y < max(begin, end):
                    x = near.x + (far.x - near.x) * (y - begin) / (end - begin)
                    beside = abs(x - box.x) > box.width / 2
                    assert beside, f"{link.near} - {link.far} behind {place.name}"


@pytest.mark.parametrize("seed", range(examples(20)))
def test_boxes_of_any_cluster_are_apart(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(1, 60)
    view = racks(count, chance.randint(1, 9), reflectors=chance.choice([0, 0, 1, min(3, count)]),
                 mesh=chance.random() < 0.5)  # fmt: skip
    sound(*plan_of(view))


def test_a_large_cluster_is_drawn_small() -> None:
    drawn, plan = plan_of(CASES["200 nodes in racks and a mesh"])
    assert len([place for place in drawn.places if place.node]) <= PLACES
    assert sum(len(place.members) for place in drawn.places) == 200
    assert plan.width < 3000
