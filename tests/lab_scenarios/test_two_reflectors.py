"""Two reflectors in the cluster: two-reflectors/README.md, by its numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lab.demo import look
from tests.lab_scenarios.scene import SECOND_POOL, SECOND_POOLS, Scene, scene

ONE, TWO, THREE, FOUR = (f"10.99.1.{number}" for number in range(1, 5))


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("two-reflectors") as made:
        yield made


@pytest.mark.promise("F-39", "M-115")
def test_1_reflectors_have_all_sessions(made: Scene) -> None:
    made.sessions_are("node1", TWO, THREE, FOUR)
    made.sessions_are("node2", ONE, THREE, FOUR)
    made.sessions_are("node3", ONE, TWO)
    made.sessions_are("node4", ONE, TWO)


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()
    made.way_becomes("node3", made.block(made.on("node4")), (FOUR, "eth0"))
    made.way_becomes("node4", made.block(made.on("node3")), (THREE, "eth0"))


@pytest.mark.promise("M-128")
def test_3_no_packet_passes_a_reflector(made: Scene) -> None:
    pair = made.on("node3"), made.on("node4")
    with made.passing("node1", *pair) as one, made.passing("node2", *pair) as two:
        made.connected(["on-node3", "on-node4"])
        assert (one(), two()) == (0, 0)


@pytest.mark.promise("F-39", "PAIN-12")
def test_4_a_reflector_that_is_cut_off_costs_nothing(made: Scene) -> None:
    with made.traffic("on-node3", "on-node4") as seen:
        made.lab.link("node1", up=False)
        for name in ("node3", "node4"):
            made.eventually(
                lambda name=name: made.sessions(name).get(ONE, "Established") != "Established",  # type: ignore[misc]
                f"{name} has lost the reflector",
            )
        # Its own block went: what the session brought is withdrawn, not kept.
        block = made.block(made.on("node1"))
        made.eventually(lambda: not made.ways("node3", block), "the way to its block is gone")
    print("\n".join(seen.lines))
    assert seen.sent > 100
    assert (seen.lost, seen.stream_error) == (0, "")
    assert made.ways("node3", made.block(made.on("node4"))) == {(FOUR, "eth0")}
    assert made.ways("node4", made.block(made.on("node3"))) == {(THREE, "eth0")}
    made.connected(["on-node2", "on-node3", "on-node4"])


def test_5_the_other_tells_what_is_new(made: Scene) -> None:
    made.machine("node4").run(["calicoctl", "apply", "-f", "-"], stdin=SECOND_POOL.encode())
    added = made.add("late", "node4", SECOND_POOLS)
    made.way_becomes("node3", made.block(added), (FOUR, "eth0"))
    made.connected(["on-node3", "late"])


def test_6_it_comes_back(made: Scene) -> None:
    made.lab.link("node1", up=True)
    made.sessions_are("node1", TWO, THREE, FOUR)
    made.sessions_are("node3", ONE, TWO)
    made.connected()


@pytest.mark.promise("F-39", "F-43")
def test_7_a_reflector_that_restarts_costs_nothing(made: Scene) -> None:
    node = made.machine("node1")
    (old,) = look.processes(node, "calico-bgp")
    pairs = {"node3": made.block(made.on("node4")), "node4": made.block(made.on("node3"))}
    before = {name: made.ways(name, block) for name, block in pairs.items()}
    with made.traffic("on-node3", "on-node4") as seen:
        os.kill(old, signal.SIGKILL)
        made.eventually(
            lambda: any(pid != old for pid in look.processes(node, "calico-bgp")),
            "the supervisor starts it again",
        )
        made.sessions_are("node1", TWO, THREE, FOUR)
        made.sessions_are("node3", ONE, TWO)
        made.sessions_are("node4", ONE, TWO)
    print("\n".join(seen.lines))
    assert seen.sent > 50
    assert (seen.lost, seen.stream_error) == (0, "")
    assert {name: made.ways(name, block) for name, block in pairs.items()} == before
    made.connected()


def test_8_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
