"""Two racks with eBGP routers: two-racks/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab_scenarios.scene import Scene, scene

TOR1, TOR2 = "10.99.1.254", "10.99.2.254"


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("two-racks") as made:
        yield made


@pytest.mark.promise("F-40", "M-142")
def test_1_each_node_peers_with_its_own_router(made: Scene) -> None:
    for node, tor, own_as in (("node1", TOR1, 64601), ("node2", TOR1, 64602),
                              ("node3", TOR2, 64603)):  # fmt: skip
        made.sessions_are(node, tor)
        told = json.loads(made.text(node, "cat", "/var/run/calico/status/bgp.json"))
        assert told["local_as"] == own_as


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


def test_3_ways_stay_in_the_rack_where_they_can(made: Scene) -> None:
    blocks = {name: made.block(made.on(name)) for name in ("node1", "node2", "node3")}
    made.way_becomes("node1", blocks["node2"], ("10.99.1.2", "eth0"))
    made.way_becomes("node2", blocks["node1"], ("10.99.1.1", "eth0"))
    made.way_becomes("node1", blocks["node3"], (TOR1, "eth0"))
    made.way_becomes("node3", blocks["node1"], (TOR2, "eth0"))


@pytest.mark.promise("M-127")
def test_4_routers_know_every_block(made: Scene) -> None:
    for name, via1, via3 in (
        ("router", ("10.99.9.1", "fabric"), ("10.99.9.2", "fabric")),
        ("tor1", ("10.99.1.1", "rack1"), ("10.99.9.2", "eth0")),
        ("tor2", ("10.99.9.1", "eth0"), ("10.99.2.3", "rack2")),
    ):
        made.way_becomes(name, made.block(made.on("node1")), via1)
        made.way_becomes(name, made.block(made.on("node3")), via3)
    block = made.block(made.on("node1"))
    told = made.text("tor2", "birdc", "show", "route", block, "primary", "all")
    assert "BGP.as_path: 64500 64501 64601" in told, told


@pytest.mark.promise("M-251")
def test_5_the_packets_go_that_way(made: Scene) -> None:
    source, target = made.on("node1"), made.on("node3")
    done = made.machine("node1").run(
        ["traceroute", "-n", "-q1", "-w2", target.address], netns=source.netns
    )
    hops = [line.split()[1] for line in done.stdout.splitlines()[1:]]
    # A router answers from the address that its own way back leaves from.
    assert hops[1:] == [TOR1, "10.99.9.2", "10.99.2.3", target.address], done.stdout
    assert hops[0] in ("10.99.1.1", "169.254.1.1"), done.stdout


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
