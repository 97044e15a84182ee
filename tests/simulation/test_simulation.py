"""Seeds of the simulation: none fails, and one seed gives one trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pytest

from tests.simulation import runner
from tests.simulation.edges import CLOCKS
from tests.support.patience import wait_for

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
KNOWN: tuple[str, ...] = ()
"""What is being mended right now; each goes with its mend."""
ROOMS = ("bgp", "felix", "ipam", "libcalico", "linux")
NO_CLOCKS = {"sleep"}


ELSEWHERE = """\
mount -t tmpfs none /var/lib && mount -t tmpfs none /var/run &&
mkdir -p /var/run/calico/private && touch /var/run/calico/private/flow-accounting || exit 2
"$@"
ended=$?
test -z "$(ls -A /var/lib)" || { echo "files were written below /var/lib" >&2; exit 2; }
exit $ended
"""
"""Another machine for a command: a container with a network of its own, where a felix has been."""


def elsewhere() -> tuple[str, ...]:
    """The words before a command that runs on another machine, as far as this user may make one."""
    if os.geteuid() != 0:
        return ()
    return ("unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", ELSEWHERE, "sh")


def simulate(*arguments: str, place: Sequence[str] = ()) -> dict[str, Any]:
    """The command's result, at another place if one is given."""
    done = subprocess.run(
        [*place, sys.executable, "-m", "tests.simulation.command", "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_no_seed_fails() -> None:
    """500 seeds of each world in the fast tier."""
    found = simulate("--seeds", "5000" if FULL else "500")
    told = [
        f"{one['world']}, seed {one['seed']}: {failure}"
        for one in found["failures"]
        for failure in one["failures"]
        if not any(re.match(pattern, failure) for pattern in KNOWN)
    ]
    assert not told


def test_one_seed_gives_one_trace() -> None:
    """Byte for byte: the digest of all lines, on two machines, after any other seed."""
    first = simulate("--seeds", "12", "--first", "7000", "--cold")["digests"]
    there = simulate("--seeds", "8", "--first", "7004", "--jobs", "1", place=elsewhere())
    alone = simulate("--seeds", "1", "--first", "7011", "--cold")
    assert first
    again = there["digests"]
    assert again == {name: first[name] for name in again}
    assert alone["digests"].items() <= again.items()


def test_a_seed_that_fails_in_a_row_is_told_as_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that ends its process; the seeds behind it are run by the next one."""

    def play(row: Sequence[tuple[str, int]], whole: bool, out: IO[str]) -> None:
        for world, seed in row:
            if seed == 1 and len(row) > 1:
                os._exit(9)
            failures = ["wrong"] if seed == 3 else ["odd"] if seed == 5 and len(row) > 1 else []
            result = runner.Result(seed, world, failures, "alone" if len(row) == 1 else "")
            print(json.dumps(asdict(result)), file=out, flush=True)
            if failures:
                return

    monkeypatch.setattr(runner, "_run_row", play)
    found = list(runner.run_forked([("felix", seed) for seed in range(8)]))
    assert [one.seed for one in found] == list(range(8))
    assert {one.seed for one in found if one.digest == "alone"} == {3}
    told = {one.seed: one.failures for one in found if one.failures}
    second = "not alone, but in a row as number 2"
    died = "the process of the simulation died"
    assert told == {1: [died, second], 3: ["wrong"], 5: ["odd", second]}


def test_a_killed_run_leaves_no_process() -> None:
    words = ["-m", "tests.simulation.command", "--seeds", "100000", "--jobs", "2", "--cold"]
    with subprocess.Popen([sys.executable, *words], cwd=ROOT) as run:
        try:
            wait_for(lambda: len(children(run.pid)) == 2, "two processes with seeds")
            parts = children(run.pid)
            seeds = wait_for(lambda: [pid for part in parts for pid in children(int(part))])
        finally:
            run.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*parts, *seeds)))


def children(pid: int) -> list[str]:
    """The processes that a process has started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_rooms_read_no_clock_that_is_not_simulated() -> None:
    """A clock of the real machine makes another trace of a seed on each."""
    simulated = {f"{name}{unit}" for name in CLOCKS for unit in ("", "_ns")}
    read = {
        name: path
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"\btime\.(\w+)", path.read_text())
        if hasattr(time, name)
    }
    assert "thread_time" in read
    assert read.keys() - simulated - NO_CLOCKS == set(), read
