"""Many pods created and deleted in random order, sixteen calls in flight, processes killed.

A real felix, etcd, daemon and executable; a runtime that tries again, as containerd does. First a
part without kills, over which the memory of daemon and felix must stay flat, then one in which any
of the four dies after some calls more. After each the host is as at the start and `ipam check` is
clean, in the second already while pods live. 1,000 pods at full size.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cni.executable import FULL_SIZE, Done
from tests.cni.faulty_node import (
    PATIENCE,
    WAITING,
    Stage,
    assert_as_before,
    faulty_node,
    reachable,
)
from tests.cni.world import container_id, pod_namespace, result_of
from tests.support.netns import Namespace

CALM, WILD = (500, 500) if FULL_SIZE else (30, 30)
IN_FLIGHT = 16
KILL_EVERY = (2, 12)
"""Calls that succeed between one kill and the next."""
GROWTH = 6 << 20
"""Bytes that a process may grow by over the second half of the calm part; a leak of one message
a pod would be more at full size."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with faulty_node(tmp_path_factory.mktemp("node")) as found:
        yield found


@dataclass
class Runtime:
    """Sixteen workers over some namespaces; a pod lives in one of them until its DEL."""

    stage: Stage
    spaces: list[Namespace]
    dice: random.Random
    left: int
    keep: int = 0
    """How many pods are to live in the end."""
    living: dict[int, str] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)
    made: int = 0
    retries: int = 0
    good: int = 0

    async def run(self) -> None:
        """Until the pods are used up and at most `keep` live."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._work())

    async def _work(self) -> None:
        while self.left > 0 or len(self.living) > self.keep:
            free = [number for number in range(len(self.spaces)) if number not in self.busy]
            if self.left <= 0:
                free = [number for number in free if number in self.living]
            if not free:
                await asyncio.sleep(0.01)
                continue
            number = self.dice.choice(free)
            self.busy.add(number)
            try:
                if number in self.living:
                    await self._delete(number, self.living[number])
                    self.living.pop(number)
                else:
                    self.left -= 1
                    self.made += 1
                    name = f"web-{self.made}"
                    await self._add(number, name)
                    self.living[number] = name
            finally:
                self.busy.discard(number)

    async def _add(self, number: int, name: str) -> None:
        """Until it succeeds; a sandbox that failed is sometimes given up for another one."""
        deadline = time.monotonic() + PATIENCE
        while not self._good(done := await self._call("ADD", number, name)):
            assert time.monotonic() < deadline, done
            if self.dice.random() < 0.5:
                await self._delete(number, name)
            await asyncio.sleep(0.05)
        assert result_of(done)["ips"][0]["address"].startswith("10.65.0.")

    async def _delete(self, number: int, name: str) -> None:
        """Until it succeeds; the namespace is as new before it is used again.

        A DEL that was queued, because the daemon was dead, has not removed the link yet.
        """
        deadline = time.monotonic() + PATIENCE
        while not self._good(done := await self._call("DEL", number, name)):
            assert time.monotonic() < deadline, done
            await asyncio.sleep(0.05)
        while "queued" in done.stderr and "eth0" in self.spaces[number].run("ip", "link"):
            assert time.monotonic() < deadline, done
            await asyncio.sleep(0.1)

    async def _call(self, verb: str, number: int, name: str) -> Done:
        return await self.stage.node.cni(verb, self.spaces[number], name, config=WAITING)

    def _good(self, done: Done) -> bool:
        if done.status == 0:
            self.good += 1
            return True
        self.retries += 1
        # Killed, or told to try again; anything else is a defect.
        assert done.status == -signal.SIGKILL or done.error["code"] == 11, done
        return False


def executables() -> list[int]:
    """The plugins that run now."""
    found = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        # Threads and programs that ended meanwhile have nothing to say.
        with suppress(OSError):
            children = (task / "children").read_text().split()
            found += [int(pid) for pid in children if _name(pid) == "calico"]
    return found


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def kill(stage: Stage, runtime: Runtime, dice: random.Random, killed: dict[str, int]) -> None:
    """One after another, until cancelled; a slow machine gets the time to get somewhere."""
    while True:
        enough = runtime.good + dice.randint(*KILL_EVERY)
        while runtime.good < enough:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        victim = dice.choice(["daemon", "executable", "executable", "executable", "etcd", "felix"])
        if victim == "daemon":
            stage.daemon.saw("")
            pid = stage.daemon.pid
        elif victim == "executable":
            calls = executables()
            if not calls:
                continue
            pid = dice.choice(calls)
        else:
            pid = int(stage.kill_from(victim))
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed[victim] = killed.get(victim, 0) + 1


def memory(pid: int) -> int:
    """What a process holds of its own, in bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) << 10 for kib in re.findall(r"^Private_\w+: +(\d+) kB", rollup, re.M))


def check(stage: Stage) -> None:
    """`calicoctl ipam check` finds nothing wrong."""
    program = [sys.executable, "-m", "calicoctl.main", "ipam", "check"]
    environ = {"PATH": os.environ["PATH"], **stage.node.etcd.environment()}
    done = subprocess.run(program, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "found 0 problems" in done.stdout, done.stdout


@pytest.mark.asyncio
@pytest.mark.promise("M-247")
async def test_many_pods_in_random_order_and_random_kills(stage: Stage) -> None:
    dice = random.Random(8)
    began = time.monotonic()
    with ExitStack() as stack:
        count = 48 if FULL_SIZE else 20
        spaces = [stack.enter_context(pod_namespace(f"p{n}")) for n in range(count)]
        calm = Runtime(stage, spaces, dice, CALM // 2)
        await calm.run()
        watched = {"daemon": stage.daemon.pid, "felix": stage.felix.process.pid}
        before = {name: memory(pid) for name, pid in watched.items()}
        calm.left = CALM - CALM // 2
        await calm.run()
        grown = {name: memory(pid) - before[name] for name, pid in watched.items()}
        assert max(grown.values()) < GROWTH, grown
        assert calm.retries == 0
        await assert_as_before(stage, spaces)
        check(stage)
        calm_seconds = time.monotonic() - began

        wild = Runtime(stage, spaces, dice, WILD, keep=count // 4, made=calm.made)
        killed: dict[str, int] = {}
        supervising = asyncio.create_task(stage.restart_the_dead())
        killing = asyncio.create_task(kill(stage, wild, dice, killed))
        try:
            await wild.run()
            while sum(killed.values()) <= 2 and not killing.done():
                # A fast node is through before anybody was killed.
                wild.left = WILD // 4
                await wild.run()
            killing.cancel()
            with suppress(asyncio.CancelledError):
                await killing
            await settled(stage, wild)
            for number in wild.living:
                text = spaces[number].run("ip", "-o", "-4", "address", "show", "dev", "eth0")
                assert reachable(stage.node, text.split()[3].partition("/")[0])
            check(stage)
            wild.keep = 0
            await wild.run()
            await assert_as_before(stage, spaces)
            check(stage)
        finally:
            for task in (supervising, killing):
                task.cancel()
            await asyncio.gather(supervising, killing, return_exceptions=True)
        assert sum(killed.values()) > 2
        print(
            f"{CALM} pods in {calm_seconds:.1f} s, memory {grown}; {WILD} with kills {killed}, "
            f"{wild.retries} retries, {time.monotonic() - began - calm_seconds:.1f} s"
        )


async def settled(stage: Stage, runtime: Runtime) -> None:
    """Wait until the journal is empty and just the pods that live have endpoint and address."""
    names = {container_id(name)[:12] for name in runtime.living.values()}
    assert len(names) == len(runtime.living)
    deadline = time.monotonic() + PATIENCE
    while True:
        waiting = list(stage.node.settings.pending.glob("*.json"))
        state = (len(stage.node.endpoints()), stage.node.in_use(), len(waiting))
        # An address of each family would be two.
        if state == (len(runtime.living), len(runtime.living), 0):
            return
        assert time.monotonic() < deadline, (state, len(runtime.living))
        await asyncio.sleep(0.2)
