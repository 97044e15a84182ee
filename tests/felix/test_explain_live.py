"""`explain --live`: felix's own word, and the packets that the deciding rule has matched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.felix.console import attempt, calicoctl
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both
from tests.felix.world import eventually

CASE = [allow(protocol="TCP", source=ONLY_CLIENT, destination={"ports": [80]})]


def live(stage: Stage, source: str, *more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer, and what felix says of its stations."""
    command = ("explain", source, "server", "--proto", "tcp", "--port", "80", "--live", *more)
    tree = json.loads(calicoctl(stage.world, *command, "-o", "json"))
    assert tree["live"]["ready"] is True
    return tree["answers"][0], tree["live"]["stations"]


def test_felix_agrees_and_the_kernel_has_counted(stage: Stage) -> None:
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    for who, family, allowed in (("client", 4, True), ("other", 4, False), ("client", 6, True)):
        version = ("--ip-version", str(family))
        answer, before = live(stage, who, *version)
        assert answer["allowed"] is allowed
        assert [s["agrees"] for s in before] == [True, True]
        assert [s["chainStands"] for s in before] == [True, True]
        assert (f"{who} {family} tcp 80" in stage.through(f"{who} {family} tcp 80")) is allowed
        _, after = live(stage, who, *version)
        for was, now in zip(before, after, strict=True):
            assert now["matchedPackets"] >= was["matchedPackets"] + 1
    shown = calicoctl(
        stage.world, "explain", "other", "server", "--port", "80", "--live"
    )  # fmt: skip
    assert "felix on node1 (" in shown
    assert "ingress of default/server: felix decides alike" in shown
    assert "has matched" in shown


def test_a_chain_that_somebody_emptied_is_told_until_felix_repairs_it(stage: Stage) -> None:
    world = stage.world
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.stop_felix()
    world.start_felix(FELIX_IPTABLESREFRESHINTERVAL="60")
    world.wait_ready()
    world.kernel.flush("cali-pi-gnp/case")
    if not world.kernel.native:
        # Until felix looks; of nftables the kernel tells it at once.
        _, stations = live(stage, "client")
        assert stations[1]["chainStands"] is False
        assert stations[1]["matchedPackets"] is None
        shown = calicoctl(world, "explain", "client", "server", "--port", "80", "--live")
        assert "the kernel's chain cali-pi-gnp/case is not as felix wants it" in shown
        world.stop_felix()
        world.start_felix()
        world.wait_ready()
    eventually(lambda: live(stage, "client")[1][1]["chainStands"], 8)


@pytest.mark.parametrize("source", ["203.0.113.9"])
def test_nothing_of_this_node_is_said_to_be_nothing(stage: Stage, source: str) -> None:
    done = attempt(stage.world, "explain", source, "203.0.113.10", "--live")
    assert done.returncode == 1
    assert "nothing of this is decided on node node1" in done.stderr
