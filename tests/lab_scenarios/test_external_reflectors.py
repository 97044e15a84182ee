"""BIRD as reflector beside the cluster: external-reflectors/README.md, by its numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from lab import proc
from tests.lab_scenarios.scene import SECOND_POOL, SECOND_POOLS, Scene, scene

FIRST, SECOND = "10.99.0.11", "10.99.0.12"
ONE, TWO = ("10.99.1.1", "eth0"), ("10.99.1.2", "eth0")


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene("external-reflectors") as made:
        yield made


@pytest.mark.promise("PAIN-14", "M-142")
def test_1_sessions_are_with_the_reflectors(made: Scene) -> None:
    for name in ("node1", "node2"):
        made.sessions_are(name, FIRST, SECOND)
    for name in ("reflector1", "reflector2"):
        made.birds_are_up(name)


def test_2_pods_reach_pods(made: Scene) -> None:
    made.connected()


@pytest.mark.promise("M-128")
def test_3_reflectors_are_off_the_path(made: Scene) -> None:
    made.way_becomes("node1", made.block(made.on("node2")), TWO)
    made.way_becomes("node2", made.block(made.on("node1")), ONE)
    for name in ("reflector1", "reflector2"):
        assert made.forwarded(name) == 0
        assert [route["dst"] for route in made.routes(name)] == ["default", "10.99.0.0/24"]


@pytest.mark.promise("PAIN-14")
def test_4_one_reflector_is_enough(made: Scene) -> None:
    machine = made.machine("reflector1")
    with made.traffic("on-node1", "on-node2") as seen:
        for pid in machine.pids():
            if proc.command_of(pid).startswith("bird "):
                os.kill(pid, signal.SIGKILL)
        for name in ("node1", "node2"):
            made.eventually(
                lambda name=name: made.sessions(name).get(FIRST, "Established") != "Established",  # type: ignore[misc]
                f"{name} has lost the reflector",
            )
    print("\n".join(seen.lines))
    assert seen.sent > 40
    assert (seen.lost, seen.stream_error) == (0, "")
    assert made.ways("node1", made.block(made.on("node2"))) == {TWO}
    assert made.ways("node2", made.block(made.on("node1"))) == {ONE}


def test_5_the_other_tells_what_is_new(made: Scene) -> None:
    made.apply(SECOND_POOL)
    added = made.add("late", "node2", SECOND_POOLS)
    made.way_becomes("node1", made.block(added), TWO)
    made.connected(["on-node1", "late"])


def test_6_nothing_is_left(made: Scene) -> None:
    made.leave_nothing()
