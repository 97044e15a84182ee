"""The README's own commands, line by line as a newcomer types them.

Each block has a /run of its own, so the names of the README's labs meet no other lab of this host.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import proc
from lab.demo import keeping
from lab.demo.__main__ import LAST_WITH_PODS
from lab.demo.story import POD_NAMES
from tests.size import FULL
from tests.support.patience import HANG, wait_for

ROOT = Path(__file__).parents[2]
SHORT = "wiring"
"""In the fast tier a kept demo ends after this check; tests/e2e/test_demo.py has the others."""
LONGEST = 900.0
"""Seconds for one line, a whole demo at most; what hangs inside says so itself long before."""
ROUTE = re.compile(r"^10\.65\.\d+\.\d+/26 via ", re.M)
Type = Callable[[str], str]


def blocks(first: str) -> list[list[str]]:
    """The lines of the README's fenced blocks that begin with a command. Pure but for the file."""
    text = (ROOT / "README.md").read_text()
    found = [block.split("\n") for block in re.findall(r"^```\n(.*?)\n```$", text, re.M | re.S)]
    return [lines for lines in found if lines[0].partition("#")[0].strip() == first]


def of_group(group: int) -> list[str]:
    """What each process of a line that hangs is at."""
    found = []
    for pid in proc.all_pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == group:
                found.append(proc.doing(pid))
    return found


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Type]:
    """Type a line in the checkout; what it says. Fails with the line and its output."""
    said = tmp_path / "said"
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs lab /run && exec sleep 3600"]
    holder = subprocess.Popen(command)
    inside = ["nsenter", "-t", str(holder.pid), "--mount", "--", "env", "-C", str(ROOT)]
    inside += ["-u", "MUSLIN_LAB_DIR", "sh", "-c"]

    def run(line: str) -> str:
        # Into a file: what a line has begun may hold a pipe open after it.
        with said.open("wb") as output:
            running = subprocess.Popen(
                [*inside, line], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            end = f"it ended with {running.wait(LONGEST)}"
        except subprocess.TimeoutExpired:
            end = f"not within {LONGEST:g} s; {'; '.join(of_group(running.pid))}"
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        text = said.read_text(errors="replace")
        assert running.returncode == 0, f"$ {line}\n{text}\n{end}"
        return text

    proc.wait_until(lambda: proc.command_of(holder.pid).startswith("sleep"), "a /run", timeout=HANG)
    try:
        yield run
    finally:
        for name in ("demo", "lab"):
            subprocess.run([*inside, f"./run lab down --lab {name}"], check=False, timeout=HANG)
        holder.kill()
        holder.wait()


def test_the_block_about_a_lab_of_ones_own(typed: Type) -> None:
    (lines,) = blocks("./run lab up")
    said = {line: typed(line) for line in lines[:-1]}
    status = next(text for line, text in said.items() if line.endswith("calicoctl node status"))
    assert status.count("Established") == 3
    pings = [text for line, text in said.items() if " pod ping " in line]
    assert pings
    assert all(text.rstrip().endswith("answered") for text in pings)
    # Who pinged knows the ways; BGP tells the third node in its own time.
    (routes,) = (line for line in lines if line.endswith("node2 -- ip route"))
    wait_for(lambda: len(ROUTE.findall(typed(routes))) == 2, said[routes])
    typed(lines[-1])


def test_the_block_about_the_kept_demo(typed: Type) -> None:
    ((demo, *lines),) = blocks("./run demo --keep")
    said = typed(demo if FULL else f"{demo} --until {SHORT}")
    told = [line for line in said.splitlines() if line.startswith("./run lab ")]
    # The page is offered where its extra is installed.
    told = [line for line in told if not line.startswith("./run lab web ")]
    assert told == lines
    answers = {line: typed(line) for line in told}
    pods = next(text for line, text in answers.items() if " pod list " in line)
    assert {line.split("\t")[1] for line in pods.splitlines()} == set(POD_NAMES)
    assert "nothing to do" in typed(lines[-1])


def test_what_is_kept_is_told_without_pods_too() -> None:
    told = keeping.commands("x", [])
    assert all("--lab x" in line for line in told)
    assert not [line for line in told if " pod " in line]
    assert LAST_WITH_PODS == "felix-loss"
