"""The fault table: SIGKILL of each process at thirty instants of an ADD and a DEL.

A real felix, etcd, daemon and executable. Whoever was killed is started again at once, as on a
node. Expectation: the runtime's retry succeeds and reaches the pod, and after its DEL the host is
as before: no veth, address, route, rule, set member, endpoint, handle or file. Full size: every
instant with every victim; else a sample, each of its instants with one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.cni.executable import FULL_SIZE
from tests.cni.faulty_node import (
    WAITING,
    Stage,
    add,
    assert_as_before,
    delete,
    faulty_node,
    reachable,
)
from tests.cni.world import container_id, pod_namespace

ADD = (
    "before:parse", "after:parse", "before:facts", "after:taken", "before:submit",
    "after:submit", "before:offer", "after:offer", "after:made", "after:create",
    "before:configure", "after:configure", "before:commit", "after:commit", "before:in_force",
    "after:in_force", "after:result", "after:deliver",
)  # fmt: skip
DEL = (
    "before:parse", "before:unplug", "before:remove", "after:remove", "after:unplug",
    "before:release", "before:flows", "before:commit", "after:commit", "before:retract",
    "before:deliver", "after:deliver",
)  # fmt: skip
POINTS = [*(("ADD", instant) for instant in ADD), *(("DEL", instant) for instant in DEL)]
VICTIMS = ("daemon", "executable", "etcd", "felix")
TABLE = [(verb, instant, victim) for verb, instant in POINTS for victim in VICTIMS]
# Few of etcd and felix, which take seconds to come back.
SAMPLE = [TABLE[number] for number in (0, 5, 21, 30, 36, 45, 49, 52, 59, 60, 73, 80, 89, 107, 110)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with faulty_node(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.mark.parametrize(
    ("verb", "instant", "victim"),
    TABLE if FULL_SIZE else SAMPLE,
    ids=lambda value: value.replace(":", "-"),
)
@pytest.mark.asyncio
async def test_killed(stage: Stage, verb: str, instant: str, victim: str) -> None:
    node, name = stage.node, "web-1"
    number = POINTS.index((verb, instant))
    supervising = asyncio.create_task(stage.restart_the_dead())
    try:
        with pod_namespace("killed") as pod:
            if verb == "DEL":
                await add(stage, pod, name)
            stage.daemon.arm(verb, instant, stage.kill_from(victim))
            done = await node.cni(verb, pod, name, config=WAITING)
            stage.daemon.wait_for("sprung")
            if victim == "executable":
                # One that has printed its answer may be killed too late to matter; a thread stays
                # in `remove` with the kernel after the link has left and the DEL is answered.
                assert done.status == -9 or "deliver" in instant or instant == "after:remove", done
            elif done.status != 0:
                assert done.error["code"] == 11, done
            if victim == "daemon":
                stage.daemon.wait_for("ready")
            if verb == "DEL":
                await delete(stage, pod, name)
            else:
                # A runtime tries the same again, or gives this sandbox up for a new one.
                renewed = number % 2 == 1
                if renewed:
                    await delete(stage, pod, name)
                    assert "eth0" not in pod.run("ip", "link")
                new = container_id("second") if renewed else container_id(name)
                result = await add(stage, pod, name, container=new)
                assert reachable(node, result["ips"][0]["address"].partition("/")[0])
                await delete(stage, pod, name, container=new)
            await assert_as_before(stage, [pod])
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)


def test_the_table_is_whole() -> None:
    assert len(set(POINTS)) == 30
    assert len(TABLE) == 120
    assert {victim for _, _, victim in SAMPLE} == set(VICTIMS)
    assert len({(verb, instant) for verb, instant, _ in SAMPLE}) == len(SAMPLE)
