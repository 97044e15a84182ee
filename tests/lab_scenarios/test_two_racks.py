"""Two racks with eBGP routers: two-racks/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import router
from tests.lab_scenarios.scene import Scene, scene

TOR1, TOR2 = "10.99.1.254", "10.99.2.254"
LET_IN = """\
apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: host-routes}
spec: {importV4: [{cidr: 10.99.1.2/32, matchOperator: Equal, action: Accept}]}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: rack-one}
spec: {nodeSelector: rack == "one", peerIP: 10.99.1.254, asNumber: 64501, filters: [host-routes]}
"""


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
        ["traceroute", "-n", "-q1", "-w60", target.address], netns=source.netns
    )
    hops = [line.split()[1] for line in done.stdout.splitlines()[1:]]
    # A router answers from the address that its own way back leaves from.
    assert hops[1:] == [TOR1, "10.99.9.2", "10.99.2.3", target.address], done.stdout
    assert hops[0] in ("10.99.1.1", "169.254.1.1"), done.stdout


def test_6_host_routes_lead_to_no_neighbour(made: Scene) -> None:
    conf = made.machine("tor1").path(router.CONFIG)
    before, link, beyond = conf.read_text(), "10.99.1.2/32", "10.98.0.9/32"
    odd = f"protocol static odd {{ ipv4; route {link} blackhole; route {beyond} blackhole; }}\n"
    conf.write_text(odd + before.replace("source = RTS_BGP;", 'source = RTS_BGP || proto = "odd";'))
    far = {"kind": "Node", "metadata": {"name": "far"}, "spec": {"bgp": {"ipv4Address": beyond}}}
    node = json.dumps({"apiVersion": "projectcalico.org/v3", **far})
    made.apply(node)  # its address is on no link: the router alone knows the way
    made.text("tor1", "birdc", "configure")
    made.way_becomes("node1", beyond, (TOR1, "eth0"))
    why = (
        "it is the address of node node2, on a connected network of this node;"
        " a BGPFilter that accepts it lets it in"
    )
    made.eventually(lambda: refused(made, "node1", TOR1) == {link: why}, "it is refused, and named")
    assert made.ways("node1", link) == set()
    made.connected()
    made.apply(LET_IN)
    made.way_becomes("node1", link, (TOR1, "eth0"))
    conf.write_text(before)
    made.text("tor1", "birdc", "configure")
    made.way_becomes("node1", link)
    made.way_becomes("node1", beyond)
    admin = made.machine("node1")
    admin.run(["calicoctl", "delete", "-f", "-"], stdin=node.encode())
    made.connected()


def refused(made: Scene, name: str, peer: str) -> dict[str, str]:
    """The paths of a peer that a node does not take, and why, as its status tells them."""
    told = json.loads(made.text(name, "cat", "/var/run/calico/status/bgp.json"))
    found: dict[str, dict[str, str]] = {
        one["address"]: one["refused_paths"] for one in told["peers"]
    }
    return found[peer]


def test_7_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
