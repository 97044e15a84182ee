"""Two routers for each node: dual-tor/README.md, by its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.machine import FAST_PYTHON, PROBE
from tests.lab_scenarios.scene import PORT, Scene, scene

TOR1, TOR2 = ("10.99.1.254", "eth0"), ("10.99.2.254", "eth1")
CONNECTIONS = 40


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("dual-tor") as made:
        yield made


@pytest.mark.promise("F-51", "F-50", "M-142")
def test_1_sessions_with_both_routers(made: Scene) -> None:
    for name in ("node1", "node2"):
        made.sessions_are(name, TOR1[0], TOR2[0])
    for tor in ("tor1", "tor2"):
        made.birds_are_up(tor)


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


@pytest.mark.promise("F-51")
def test_3_two_next_hops_in_the_kernel(made: Scene) -> None:
    made.way_becomes("node1", made.block(made.on("node2")), TOR1, TOR2)
    made.way_becomes("node2", made.block(made.on("node1")), TOR1, TOR2)


@pytest.mark.promise("F-51")
def test_4_flows_are_shared(made: Scene) -> None:
    source, target = made.on("node1"), made.on("node2")
    before = [made.forwarded(tor) for tor in ("tor1", "tor2")]
    for _ in range(CONNECTIONS):
        made.machine("node1").run(
            [*FAST_PYTHON, str(PROBE), "tcp", str(PORT), "60", target.address],
            netns=source.netns,
        )
    shares = [made.forwarded(tor) - old for tor, old in zip(("tor1", "tor2"), before, strict=True)]
    # Each connection is at least six packets; a fair coin gives less than five of 40 to one
    # side once in ten million times.
    assert min(shares) >= 5 * 3, shares


@pytest.mark.promise("F-51", "PAIN-12")
def test_5_one_cable_is_enough(made: Scene) -> None:
    made.lab.link("node1", up=False, interface="eth0")
    made.way_becomes("node1", made.block(made.on("node2")), TOR2)
    made.way_becomes("node2", made.block(made.on("node1")), TOR2)
    made.connected()


def test_6_both_cables_are_used_again(made: Scene) -> None:
    made.lab.link("node1", up=True, interface="eth0")
    made.way_becomes("node1", made.block(made.on("node2")), TOR1, TOR2)
    made.way_becomes("node2", made.block(made.on("node1")), TOR1, TOR2)
    made.connected()


def test_7_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
