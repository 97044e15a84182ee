"""SIGKILL of the daemon in the middle of an ADD, with a real etcd.

Expectation: the executable answers code 11 at once, and the runtime's DEL, to the next daemon
or into the queue, leaves nothing: no link, no address, no endpoint, no file. The runtime's
retry succeeds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cni.server.daemon import Daemon
from tests.cni.executable import FULL_SIZE
from tests.cni.world import WAITS, FelixPeer, World, node_world, pod_namespace, result_of
from tests.support.patience import HANG, patient, until

INSTANTS = [
    "before:submit",
    "before:offer",
    "after:create",
    "before:configure",
    "after:configure",
    "before:commit",
    "after:commit",
    "before:in_force",
    "after:in_force",
    "after:result",
]
STEPS = (0, 3, 6, 10, 15, 21, 28, 36, 45)
CHOSEN = INSTANTS if FULL_SIZE else [*INSTANTS[::2], "after:commit"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


@asynccontextmanager
async def mortal(node: World, instant: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A daemon of its own process that dies at an instant of its next ADD."""
    settings = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in dataclasses.asdict(node.settings).items()
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.cni.mortal",
        json.dumps(settings),
        node.etcd.endpoint,
        instant,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=Path(__file__).parent.parent.parent,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        assert process.stdout
        assert await asyncio.wait_for(process.stdout.readline(), patient(20)) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def connected(daemon: Daemon) -> None:
    await until(lambda: daemon.context.felix.connected)


def nothing_waits(node: World) -> bool:
    return not list(node.settings.pending.glob("*"))


@pytest.mark.promise("M-189")
@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["next daemon", "queue"])
async def test_killed_in_the_middle_of_an_add(node: World, where: str) -> None:
    async with FelixPeer(node.settings.felix_socket), node.daemon():
        with pod_namespace("warm") as warm:
            # The node's block is there already, as on any node that lives.
            result_of(await node.add(warm, "warm"))
            assert (await node.delete(warm, "warm")).status == 0
    for number, instant in enumerate(CHOSEN if where == "queue" else CHOSEN[1:-1]):
        config = WAITS
        async with FelixPeer(node.settings.felix_socket):
            with pod_namespace("killed") as pod:
                async with mortal(node, instant) as process:
                    began = time.monotonic()
                    error = (await node.add(pod, config=config)).error
                    assert error["code"] == 11, (instant, error)
                    assert time.monotonic() - began < HANG
                    assert await process.wait() == -9
                    if where == "queue":
                        done = await node.delete(pod)
                        assert done.status == 0, (instant, done)
                        assert "queued" in done.stderr
                async with node.daemon(prepare=False) as daemon:
                    await connected(daemon)
                    if where == "queue":
                        await until(functools.partial(nothing_waits, node))
                    elif number % 2:
                        # A runtime may try again without a DEL.
                        result_of(await node.add(pod, config=config))
                    assert (await node.delete(pod)).status == 0
                    node.assert_clean()
                    assert "eth0" not in pod.run("ip", "link")
                    assert nothing_waits(node)


@pytest.mark.asyncio
async def test_killed_at_any_step_of_its_loop(node: World) -> None:
    """ENV-29, for the daemon: at instants that nobody chose."""
    async with node.daemon():
        pass
    for step in STEPS if FULL_SIZE else STEPS[::4]:
        with pod_namespace("killed") as pod:
            async with mortal(node, f"step:{step}") as process:
                done = await node.add(pod)
                if done.status != 0:
                    assert done.error["code"] == 11
                    assert await process.wait() == -9
            async with node.daemon(prepare=False):
                assert (await node.delete(pod)).status == 0
                node.assert_clean()
                assert "eth0" not in pod.run("ip", "link")
