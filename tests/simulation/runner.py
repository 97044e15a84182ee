"""Runs seeds in processes that are forked from one that has imported everything.

Each process runs a short row of them. A seed that fails there is run again in a process of its
own, and what comes of that is told.

A world is a coroutine that is given a `Run` and says by `run.trace.fail` what must not be. Sets of
objects are ordered by addresses in memory, so addresses must not differ: the process that forks is
started with PYTHONHASHSEED=0 and without address randomisation (`command`).
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import os
import shutil
import signal
import sys
import time as _time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import IO

from libcalico.process.process import die_with_parent
from tests.simulation import edges
from tests.simulation.kernel.machine import Machine, begin_anew
from tests.simulation.kernel.sockets import readable
from tests.simulation.loop import Clock, Loop, SecondLoop
from tests.simulation.trace import Trace

WORLDS = {
    "felix": "tests.simulation.felix_world",
    "addresses": "tests.simulation.addresses_world",
    "bgp": "tests.simulation.bgp_world",
}
_MIX = ("felix", "addresses", "felix", "bgp", "felix", "felix")
_WARM = range(3)
ROW = 40
"""Seeds of one process: a fork costs as much as a fourth of a seed."""
_PATIENCE = 60.0
"""Simulated seconds in which the tasks of a run have to end."""
real_clock = _time.perf_counter
"""Not simulated."""


@dataclass
class Run:
    """One seed in one world."""

    seed: int
    chance: Random
    machine: Machine
    clock: Clock
    loop: Loop
    folder: Path
    trace: Trace


@dataclass
class Result:
    """What came of a seed."""

    seed: int
    world: str
    failures: list[str] = field(default_factory=list)
    digest: str = ""
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    simulated: float = 0.0


World = Callable[[Run], Awaitable[None]]


class _Logs(logging.Handler):
    """What the code logs belongs to the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "object", "")
        text = f"{record.levelname} {record.name}: {record.getMessage()} {about}"
        if record.levelno >= logging.WARNING:
            self._trace.story(f"log {text}")
        else:
            self._trace.detail(f"log {text}")
        if record.exc_info and record.exc_info[1] is not None:
            self._trace.fail(
                f"an exception was logged: {record.getMessage()}: {record.exc_info[1]!r}"
            )


def world_of(seed: int) -> str:
    """The world in which a seed runs."""
    return _MIX[seed % len(_MIX)]


def prepare(warm: Iterable[str] = ()) -> None:
    """Import and replace everything; once, in the process that forks.

    `warm`: run a few seeds of these worlds first, which makes all others cheaper and changes none.
    """
    edges.install_time()
    edges.install()
    for module in WORLDS.values():
        importlib.import_module(module)
    # What the first run of a process makes (codecs, patterns, imports) is made now, once, or each
    # child would make it again.
    for world in warm:
        for seed in _WARM:
            run_here(world, seed)
            _end(asyncio.get_event_loop())
    gc.collect()
    gc.freeze()


def _end(loop: asyncio.AbstractEventLoop) -> bool:
    """Nothing of a run is left that could speak when it is thrown away; whether that is so."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    left: set[asyncio.Task[object]] = set()
    if tasks:
        _, left = loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
    loop.close()
    return not left


def run_here(world: str, seed: int, whole: bool = False) -> Result:
    """One seed in this very process, which runs another one only behind `_end`."""
    gc.disable()
    began = real_clock()
    edges.seed(seed)
    chance = Random(seed)
    edges.WORLD.machines.clear()
    edges.WORLD.real.clear()
    begin_anew()
    machine = edges.WORLD.boot(Machine())
    clock = edges.WORLD.clock
    clock.now = 1000.0
    start = clock.now
    trace = Trace(lambda: clock.now - start, whole)
    machine.log = trace.detail
    folder = Path(_memory(), f"simulate-{os.getpid():09}")
    # What a killed process of this number left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trace.folder = str(folder)
    edges.install_files(folder)
    logging.getLogger().handlers[:] = [_Logs(trace)]
    logging.getLogger().setLevel(logging.INFO)
    loop = Loop(clock, Random(seed + 1), readable)
    edges.WORLD.stir = loop.selector.stir
    loop.programs = edges.WORLD.run_program
    machine.entered = loop.threads.pause
    asyncio.set_event_loop(loop)
    # A thread may want one of its own.
    asyncio.new_event_loop = lambda: SecondLoop(loop)  # type: ignore[assignment, return-value]
    module = importlib.import_module(WORLDS[world])
    run = Run(seed, chance, machine, clock, loop, folder, trace)
    try:
        loop.run_until_complete(module.run(run))
    except Exception as error:
        trace.fail(f"the world broke: {error!r}")
        if whole:
            import traceback

            trace.lines.append("".join(traceback.format_exception(error)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for text in edges.WORLD.real:
        trace.fail(f"{text} is of the real machine")
    for text in loop.errors:
        trace.fail(f"unheard of in the loop: {text}")
    lines = trace.lines if whole or trace.failures else []
    return Result(
        seed, world, trace.failures, trace.digest, lines, real_clock() - began, clock.now - start
    )


def _memory() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"


def run_forked(cases: Sequence[tuple[str, int]], whole: bool = False) -> Iterator[Result]:
    """These worlds with their seeds, in children; `whole`: each alone, with all of its trace."""
    done, length = 0, 1 if whole else ROW
    while done < len(cases):
        row = cases[done : done + length]
        results = _child(row, whole)
        done += len(results)
        failed = results[-1]
        if failed.failures and len(results) > 1:
            results[-1:] = _child(row[len(results) - 1 : len(results)], whole)
            if not results[-1].failures:
                failed.failures.append(f"not alone, but in a row as number {len(results)}")
                results[-1] = failed
        yield from results


def _child(row: Sequence[tuple[str, int]], whole: bool) -> list[Result]:
    """What came of the first seeds of a row, at least of one; of the last one perhaps failures."""
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        die_with_parent(signal.SIGKILL, parent)
        os.close(reader)
        code = 1
        try:
            with os.fdopen(writer, "w") as out:
                _run_row(row, whole, out)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as source:
        results = [Result(**json.loads(line)) for line in source]
    _, status = os.waitpid(child, 0)
    if status and len(results) < len(row):
        world, seed = row[len(results)]
        results.append(Result(seed, world, ["the process of the simulation died"]))
    return results


def _run_row(row: Sequence[tuple[str, int]], whole: bool, out: IO[str]) -> None:
    """Until one fails, or does not end so that another one can begin."""
    for world, seed in row:
        result = run_here(world, seed, whole)
        out.write(json.dumps(asdict(result)) + "\n")
        out.flush()
        if result.failures or len(row) == 1 or not _end(asyncio.get_event_loop()):
            return
