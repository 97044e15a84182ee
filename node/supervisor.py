"""Keeping the node's agents alive: the supervisor starts each, and again when it dies.

Invariants:
  SUP-1  An agent that dies is started again within 0.3 s, unless it keeps dying at once.
  SUP-2  All that an agent leaves behind in its process group dies before its successor starts.
  SUP-3  Stopping ends the agents one by one and touches nothing in the kernel: traffic flows on.
  SUP-4  An agent that ended by itself at that moment (a service manager signals the whole group)
         does not hold up the stop.
Tested in `tests/node/test_supervisor.py` with real processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from libcalico.process import tasks
from libcalico.process.tasks import ended
from node.restart import RestartPolicy

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Program:
    """An agent: its name as `ps` shows it, and its command line."""

    name: str
    argv: tuple[str, ...]


def agents(backend: str, only: str = "", *, felix: bool = True) -> list[Program]:
    """The agents of a node in starting order; `only` one of them, no speaker without BGP."""
    rooms = ["felix", "bgp", "cni"] if backend == "bird" else ["felix", "cni"]
    if not felix:
        rooms.remove("felix")
    if only:
        rooms = [room for room in rooms if room == only]
    return [
        Program(f"calico-{room}", (sys.executable, "-m", "node.child", room, str(os.getpid())))
        for room in rooms
    ]


class Supervisor:
    """Runs programs until it is cancelled, then stops them in reverse order."""

    def __init__(
        self,
        programs: Sequence[Program],
        environ: Mapping[str, str],
        log_dir: Path | None = None,
    ) -> None:
        self._programs = programs
        self._environ = dict(environ)
        self._log_dir = log_dir
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def pids(self) -> dict[str, int]:
        """Name to process id of every program that runs now."""
        return {name: child.pid for name, child in self._children.items()}

    def restart(self) -> None:
        """End every program that runs, so that each is started again at once."""
        for name, child in self._children.items():
            log.info("starting %s again", name)
            # A child that ended meanwhile is not reaped yet, so no other process has its id.
            os.kill(child.pid, signal.SIGTERM)

    async def run(self) -> None:
        """Keep all programs running; returns only by cancellation, when all have stopped."""
        keepers = [tasks.start(self._keep(program), program.name) for program in self._programs]
        try:
            await asyncio.gather(*keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await ended(keepers)
            await _to_the_end(self._stop())

    async def _keep(self, program: Program) -> None:
        policy, loop = RestartPolicy(), asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                child = self._start(program)
            except OSError as error:
                log.error("%s cannot be started: %s", program.name, error)
                await asyncio.sleep(policy.delay(0.0))
                continue
            await _ended(child)
            status = _reap(child)
            del self._children[program.name]
            delay = policy.delay(loop.time() - started)
            log.warning(
                "%s %s; starting it again %s",
                program.name,
                _ending(status),
                f"in {delay:.2f} s" if delay else "now",
            )
            if delay:
                await asyncio.sleep(delay)

    def _start(self, program: Program) -> subprocess.Popen[bytes]:
        output = self._output(program)
        try:
            child = subprocess.Popen(
                program.argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        finally:
            if output is not None:
                output.close()
        self._children[program.name] = child
        log.info("started %s", program.name, extra={"pid": child.pid})
        return child

    def _output(self, program: Program) -> IO[bytes] | None:
        if self._log_dir is None:
            return None
        self._log_dir.mkdir(parents=True, exist_ok=True)
        return (self._log_dir / f"{program.name}.log").open("ab")

    async def _stop(self) -> None:
        for program in reversed(self._programs):
            child = self._children.pop(program.name, None)
            if child is None:
                continue
            # Not Popen.send_signal: it would reap a child that has just ended (SUP-2, SUP-4).
            os.kill(child.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(_ended(child), STOP_SECONDS)
            except TimeoutError:
                log.warning("%s did not stop within %.0f s", program.name, STOP_SECONDS)
            log.info("%s %s", program.name, _ending(_reap(child)))


async def _ended(child: subprocess.Popen[bytes]) -> None:
    """Return when the child has ended, not yet reaped."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    descriptor = os.pidfd_open(child.pid)
    try:
        loop.add_reader(descriptor, _settle, done)
        await done
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _reap(child: subprocess.Popen[bytes]) -> int:
    # Before reaping: the ended leader still holds the group's id, so no other group has it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


async def _to_the_end(work: Coroutine[object, object, None]) -> None:
    """Finish `work` even if this task is cancelled again meanwhile (a second SIGTERM)."""
    task = tasks.start(work, "end of the agents")
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
