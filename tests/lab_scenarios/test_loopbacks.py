"""Nodes known by loopback addresses: loopbacks/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab_scenarios.scene import Scene, scene

TORS = {"node1": "10.99.1.254", "node2": "10.99.1.254", "node3": "10.99.2.254"}
LINKS = {"node1": "10.99.1.1", "node2": "10.99.1.2", "node3": "10.99.2.3"}
ADDRESSES = {name: f"10.99.250.{name[-1]}" for name in TORS}


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("loopbacks") as made:
        yield made


def test_1_sessions_with_the_own_router(made: Scene) -> None:
    told = made.text("node1", "calicoctl", "get", "nodes", "-o", "json")
    found = {one["metadata"]["name"]: one["spec"]["bgp"] for one in json.loads(told)["items"]}
    assert {name: bgp["ipv4Address"] for name, bgp in found.items()} == {
        name: f"{address}/32" for name, address in ADDRESSES.items()
    }
    for name, tor in TORS.items():
        made.sessions_are(name, tor)


def test_2_host_routes_to_nodes_are_taken(made: Scene) -> None:
    for name, tor in TORS.items():
        for other, address in ADDRESSES.items():
            if other != name:
                # In the rack the router names the node itself (RFC 4271 5.1.3).
                hop = LINKS[other] if TORS[other] == tor else tor
                made.way_becomes(name, f"{address}/32", (hop, "eth0"))
        told = json.loads(made.text(name, "cat", "/var/run/calico/status/bgp.json"))
        refused = {net for peer in told["peers"] for net in peer["refused_paths"]}
        assert refused <= {f"{ADDRESSES[name]}/32"}, refused


def test_3_pods_reach_pods(made: Scene) -> None:
    made.connected()


def test_4_nodes_reach_nodes(made: Scene) -> None:
    for name in TORS:
        for address in ADDRESSES.values():
            assert ", 0% packet loss" in made.text(name, "ping", "-c1", "-W5", address)


def test_5_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
