"""`./run simulate [--seeds N] [--first SEED] [--world NAME] [--json] [--trace]`.

A seed runs in one world, which its number chooses (`runner.world_of`), or in those that are named.
One that fails is told with its story (what actors did, and what was wrong); `--trace` shows all of
each run. Exit status 1 when any failed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

_NO_RANDOMISATION = 0x0040000
"""personality(2), ADDR_NO_RANDOMIZE: sets of objects are ordered by where these lie."""
MODULE = "tests.simulation.command"
SHOWN = 3
"""Failures of which the trace is shown."""


def main() -> int:
    """Run what the arguments ask for."""
    asked = _parse(sys.argv[1:])
    if os.environ.get("PYTHONHASHSEED") != "0":
        _start_again()
    if asked.jobs > 1 and asked.seeds > 1:
        return _tell(asked, _beside_each_other(asked))
    return _tell(asked, _run(asked))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds, 500 by default")
    parser.add_argument("--first", type=int, default=0, help="the first seed, 0 by default")
    parser.add_argument("--world", action="append", help="felix, bgp or addresses")
    parser.add_argument("--json", action="store_true", help="tell the result as JSON")
    parser.add_argument("--trace", action="store_true", help="show all of each run")
    parser.add_argument("--stop", action="store_true", help="end at the first failure")
    parser.add_argument("--cold", action="store_true", help="for a seed or two: begin sooner")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(words)


def _start_again() -> None:
    """This process anew, with a fixed order of sets and without address randomisation."""
    ctypes.CDLL(None).personality(_NO_RANDOMISATION)
    fixed = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-m", MODULE, *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **fixed})


def _run(asked: argparse.Namespace) -> dict[str, Any]:
    from tests.simulation import runner

    began = time.perf_counter()
    runner.prepare(() if asked.cold else asked.world or runner.WORLDS)
    failed = []
    digests: dict[str, str] = {}
    cases = [
        (world, seed)
        for seed in range(asked.first, asked.first + asked.seeds)
        for world in asked.world or [runner.world_of(seed)]
    ]
    for result in runner.run_forked(cases, asked.trace):
        digests[f"{result.world} {result.seed}"] = result.digest
        if asked.trace:
            print("\n".join(result.lines))
        if result.failures:
            failed.append(asdict(result))
            if asked.stop:
                break
    return {
        "seeds": asked.seeds,
        "first": asked.first,
        "worlds": list(asked.world or runner.WORLDS),
        "failures": failed,
        "digests": digests,
        "seconds": round(runner.real_clock() - began, 1),
    }


def _beside_each_other(asked: argparse.Namespace) -> dict[str, Any]:
    """The seeds in several processes, each with a part of them; they end with this one."""
    from tests import box

    began = time.perf_counter()
    share = -(-asked.seeds // asked.jobs)
    children = []
    for first in range(asked.first, asked.first + asked.seeds, share):
        count = min(share, asked.first + asked.seeds - first)
        words = ["--jobs", "1", "--json", "--first", str(first), "--seeds", str(count)]
        for world in asked.world or ():
            words += ["--world", world]
        words += ["--stop"] if asked.stop else []
        words += ["--cold"] if asked.cold else []
        command = [sys.executable, "-m", MODULE, *words]
        children.append(box.start(command, stdout=subprocess.PIPE))
    parts = [json.loads(child.communicate()[0]) for child in children]
    return {
        "seeds": asked.seeds,
        "first": asked.first,
        "worlds": parts[0]["worlds"],
        "failures": [one for part in parts for one in part["failures"]],
        "digests": {name: one for part in parts for name, one in part["digests"].items()},
        "seconds": round(time.perf_counter() - began, 1),
    }


def _tell(asked: argparse.Namespace, found: dict[str, Any]) -> int:
    failures = found["failures"]
    if asked.json:
        print(json.dumps(found))
        return 1 if failures else 0
    for one in failures[:SHOWN]:
        print(f"--- {one['world']}, seed {one['seed']}")
        print("\n".join(one["lines"]))
    for one in failures:
        print(f"{one['world']}, seed {one['seed']}: {'; '.join(one['failures'])}")
    where = ", ".join(found["worlds"])
    print(f"{found['seeds']} seeds ({where}), {len(failures)} failed, {found['seconds']} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
