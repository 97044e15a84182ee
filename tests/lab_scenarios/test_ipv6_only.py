"""A cluster without IPv4: ipv6-only/README.md, by its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import pods
from tests.lab_scenarios.scene import Scene, scene

NODES = {"node1": "fd99:0:0:1::1", "node2": "fd99:0:0:1::2"}
ROUTER = "fd99:0:0:1::254"
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: six}}
spec: {{cidr: "fd65::/48", blockSize: 122, ipipMode: Never, vxlanMode: {mode}}}
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("ipv6-only") as made:
        yield made


def addresses(text: str) -> set[str]:
    """The addresses in the output of `ip -j address`. Pure."""
    return {a["local"] for link in json.loads(text or "[]") for a in link.get("addr_info", [])}


@pytest.mark.promise("M-132")
def test_1_nowhere_an_ipv4_address(made: Scene) -> None:
    for name in made.lab.plan.machines:
        text = made.machine(name).run(["ip", "-4", "-j", "address"]).stdout
        assert addresses(text) <= {"127.0.0.1"}, name
    for name in NODES:
        assert made.routes(name) == []
    for pod in made.pods.values():
        text = made.machine(pod.node).run(["ip", "-4", "-j", "address"], netns=pod.netns).stdout
        assert addresses(text) <= {"127.0.0.1"}
        assert [a for a in pod.addresses if ":" not in a] == []


@pytest.mark.promise("M-132")
def test_2_sessions_over_ipv6(made: Scene) -> None:
    made.sessions_are("node1", NODES["node2"], ROUTER)
    made.sessions_are("node2", NODES["node1"], ROUTER)


@pytest.mark.promise("F-9")
@pytest.mark.promise("M-132")
def test_3_pods_reach_pods(made: Scene) -> None:
    made.connected()


def test_4_ways_lead_to_the_node(made: Scene) -> None:
    blocks = {name: made.block(made.on(name), 6) for name in NODES}
    made.way_becomes("node1", blocks["node2"], (NODES["node2"], "eth0"))
    made.way_becomes("node2", blocks["node1"], (NODES["node1"], "eth0"))
    for name, block in blocks.items():
        made.way_becomes("router", block, (NODES[name], "rack1"))


def test_5_the_router_reaches_pods(made: Scene) -> None:
    for pod in made.pods.values():
        made.eventually(
            lambda pod=pod: "1 received" in made.text("router", "ping", "-c1", "-W2", pod.address),  # type: ignore[misc]
            f"the router reaches {pod.title}",
        )
        assert pods.answers(made.lab, pod, ROUTER)


@pytest.mark.promise("F-60", "F-62", "M-149")
@pytest.mark.parametrize(
    ("mode", "device"), [("Always", "vxlan-v6.calico"), ("Never", "eth0")], ids=["Always", "Never"]
)
def test_6_a_switch_to_vxlan_and_back_is_hardly_felt(made: Scene, mode: str, device: str) -> None:
    before = {name: pods.find(made.lab, name).addresses for name in made.pods}
    blocks = {name: made.block(made.on(name), 6) for name in NODES}
    with made.traffic("on-node1", "on-node2") as seen:
        made.apply(POOL.format(mode=mode))
        for here, there in (("node1", "node2"), ("node2", "node1")):
            made.eventually(
                lambda here=here, there=there: (
                    {  # type: ignore[misc]
                        dev for _, dev in made.ways(here, blocks[there])
                    }
                    == {device}
                ),
                f"{here}'s way to {there} is {device}",
            )
        made.connected()
        seen.settled()
    print("\n".join(seen.lines))
    assert seen.sent > 50
    assert seen.lost_after == 0, seen.lines
    assert seen.stream_error == ""
    assert {name: pods.find(made.lab, name).addresses for name in made.pods} == before


def test_7_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
