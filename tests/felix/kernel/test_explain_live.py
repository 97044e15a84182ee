"""`explain --live`: felix's own word, and the packets that the deciding rule has matched."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from libcalico.local.framing import connect_unix
from libcalico.local.node_api import Hello, Offer, Stored
from tests.felix.console import attempt, calicoctl
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both
from tests.felix.world import CONTAINER, endpoint_spec
from tests.support.patience import wait_for

CASE = [allow(protocol="TCP", source=ONLY_CLIENT, destination={"ports": [80]})]


def live(stage: Stage, source: str, *more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer, and what felix says of its stations."""
    command = ("explain", source, "server", "--proto", "tcp", "--port", "80", "--live", *more)
    done = attempt(stage.world, *command, "-o", "json")
    tree = json.loads(done.stdout)
    assert tree["basis"] == "datastore, compared with node node1"
    assert tree["live"]["ready"] is True
    differs = any(station["differs"] for station in tree["live"]["stations"])
    assert done.returncode == differs, done.stderr
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
    assert "  nearly allowed:\n" in shown
    assert "but for source.selector" in shown


def test_a_chain_that_somebody_emptied_is_told_until_felix_repairs_it(stage: Stage) -> None:
    world = stage.world
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    world.stop_felix()
    world.start_felix(FELIX_IPTABLESREFRESHINTERVAL="0")
    world.wait_ready()
    world.kernel.flush("cali-pi-gnp/case")
    if not world.kernel.native:
        # Felix never looks; of nftables the kernel tells it at once.
        _, stations = live(stage, "client")
        assert stations[1]["chainStands"] is False
        assert stations[1]["matchedPackets"] is None
        done = attempt(world, "explain", "client", "server", "--port", "80", "--live")
        assert done.returncode == 1
        assert "*** NODE node1 DIFFERS FROM THE DATASTORE at 1 of 2 stations" in done.stdout
        reason = "the kernel's chain cali-pi-gnp/case is not as felix wants it"
        assert f"node node1 differs from the datastore: ingress of default/server: {reason}" in (
            done.stderr
        )
        world.stop_felix()
        world.start_felix()
        world.wait_ready()
    wait_for(lambda: live(stage, "client")[1][1]["chainStands"])


@pytest.mark.asyncio
async def test_what_felix_follows_instead_of_the_datastore_is_told_loudly(stage: Stage) -> None:
    """An offer that nobody said to be stored; a chain and a way that others changed."""
    world, name = stage.world, stage.world.endpoint_name("server")
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    spec = endpoint_spec("server", stage.server)
    metadata = {"name": name, "namespace": "default", "labels": {"role": "none"}, "uid": "other"}
    offered = {"kind": "WorkloadEndpoint", "metadata": metadata, "spec": spec}
    async with await connect_unix(world.socket, Hello("cni")) as cni:
        await cni.send(Offer("default", name, json.dumps(offered)))
        await asyncio.to_thread(wait_for, lambda: not live(stage, "client")[1][1]["agrees"])
        told = live(stage, "client")[1][1]["differs"]
        assert told[0].startswith("felix decides otherwise: allowed")
        assert "offered by cni, which has not said that it is stored" in told
        await cni.send(Stored("default", name, CONTAINER))
        await asyncio.to_thread(wait_for, lambda: live(stage, "client")[1][1]["agrees"])
    assert live(stage, "client")[1][1]["differs"] == []
    world.ip(f"route add {stage.server.address}/32 dev eth0 metric 5")
    told = live(stage, "client")[1][1]["differs"]
    assert told == [f"the kernel leads {stage.server.address} to eth0, not to cali3server"]
    world.ip(f"route del {stage.server.address}/32 dev eth0 metric 5")
    assert live(stage, "client")[1][1]["differs"] == []


def test_without_live_it_says_that_it_speaks_of_the_datastore(stage: Stage) -> None:
    shown = calicoctl(stage.world, "explain", "client", "server", "--port", "80")
    assert shown.endswith(
        "So says the datastore. What felix and the kernel do was not asked."
        " On node1, as root, --live compares it.\n"
    )
    told = json.loads(calicoctl(stage.world, "explain", "client", "server", "-o", "json"))
    assert told["basis"] == "datastore"


@pytest.mark.parametrize("source", ["203.0.113.9"])
def test_nothing_of_this_node_is_said_to_be_nothing(stage: Stage, source: str) -> None:
    done = attempt(stage.world, "explain", source, "203.0.113.10", "--live")
    assert done.returncode == 1
    assert "nothing of this is decided on node node1" in done.stderr
