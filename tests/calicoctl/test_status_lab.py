"""`status`, `bgp peers`, `routes` and `topology` in a lab: planted faults are named by each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from lab import cluster, objects, pods
from lab.cluster import Lab
from tests.e2e.conftest import say
from tests.support.patience import wait_for

DEAD = """\
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: nothing-there}
spec: {node: node1, peerIP: 10.99.1.77, asNumber: 64999}
"""
ASK = ("--ask", "120")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two nodes with a pod each, and a peer of node1 that does not exist."""
    name = f"stat{os.getpid()}"
    made = cluster.up(name, nodes=2, topology="flat", say=say)
    try:
        objects.apply(made)
        for node in made.nodes:
            pods.add(made, f"on-{node.name}", node.name)
        made.machine("node1").run(["calicoctl", "apply", "-f", "-"], stdin=DEAD.encode())
        yield made
    finally:
        cluster.down(name)


def told(lab: Lab, *words: str) -> Any:
    """What a command prints as JSON, on node1."""
    return json.loads(lab.machine("node1").run(["calicoctl", *words, "-o", "json"]).stdout)


def of_dead(sessions: list[dict[str, Any]], name: str) -> set[tuple[str, str]]:
    return {(one["node"], one["state"]) for one in sessions if one["address"] == name}


def test_a_dead_session_is_named_by_every_command(lab: Lab) -> None:
    # The node hears of the peer when it does.
    wait_for(
        lambda: (
            of_dead(told(lab, "bgp", "peers", *ASK)["sessions"], "10.99.1.77")
            == {("node1", "down")}
        ),
        "node1 tells of the peer",
    )
    wait_for(lambda: told(lab, "status", *ASK)["sessions"].get("down") == 1, "all others are up")
    status = told(lab, "status", *ASK)
    nodes = {one["name"]: one for one in status["nodes"]}
    assert (nodes["node1"]["grade"], nodes["node2"]["grade"]) == ("warning", "fine")
    assert any("session with 10.99.1.77 is down" in why for why in nodes["node1"]["why"])
    links = told(lab, "bgp", "topology", *ASK)["links"]
    assert of_dead(links, "10.99.1.77") == {("node1", "down")}
    assert {one["state"] for one in links if one["address"] != "10.99.1.77"} == {"up"}
    drawn = lab.machine("node1").run(["calicoctl", "bgp", "topology", *ASK, "-o", "svg"]).stdout
    assert drawn.count(">down</text>") == 1
    assert told(lab, "get", "caliconodestatus")["items"] == []


def test_routes_of_every_node_to_a_pod(lab: Lab) -> None:
    pod = pods.find(lab, "on-node2")

    def learned() -> dict[str, str]:
        found = told(lab, "bgp", "routes", pod.address, *ASK)["routes"]
        return {one["node"]: one["peer"] for one in found if one["used"]}

    wait_for(lambda: learned() == {"node1": "node2", "node2": ""}, "both nodes have the route")


def test_a_node_that_is_cut_off_does_not_answer_and_is_named(lab: Lab) -> None:
    lab.link("node2", up=False)
    try:
        status = told(lab, "status", "--ask", "5")
    finally:
        lab.link("node2", up=True)
    assert [one["node"] for one in status["unanswered"]] == ["node2"]
    assert status["nodes"][0]["name"] == "node2"
    done = lab.machine("node1").run(["calicoctl", "status", "--exit-code"], check=False)
    assert done.returncode == 2
