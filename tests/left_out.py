"""What a run of the fast tier did not test: cases of full size, and rooms that lacked programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.junit import Case

COMMAND = re.compile(
    r"`?(\./run (?:\w+ binaries(?: [\d.]+)?|build image|install)|apt-get install [\w.+-]+)`?"
)


def as_case(nodeid: str) -> tuple[str, str]:
    """How JUnit's report names a test: its module (and class), its name. Pure.

    `tests/felix/dataplane/test_sets.py::test_a[x::y]` is `("tests.felix.dataplane.test_sets",
    "test_a[x::y]")`.
    """
    file, _, rest = nodeid.partition("::")
    plain, bracket, words = rest.partition("[")
    *classes, name = plain.split("::")
    module = file.removesuffix(".py").replace("/", ".")
    return ".".join([module, *classes]), f"{name}{bracket}{words}"


def full_size(root: Path) -> set[tuple[str, str]]:
    """Every test of a run at full size, collected by a process of its own.

    RuntimeError with what pytest said when it cannot collect them.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=root,
        env={**os.environ, "MUSLIN_FULL_SIZE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"collecting the tests of full size failed: {done.stdout}{done.stderr}")
    return {as_case(line) for line in done.stdout.splitlines() if "::" in line}


def as_text(full: Iterable[tuple[str, str]], told: Iterable[Case]) -> str:
    """How many cases of each room only full size runs. Pure.

    A case of the fast tier alone (its name holds a smaller count) is no case of full size, so
    the two are compared by name, never by their numbers.
    """
    ran = {(case.file, case.name) for case in told}
    every = set(full)
    left = Counter(file.split(".")[1] for file, name in every if (file, name) not in ran)
    rooms = ", ".join(f"{room} {count}" for room, count in left.most_common())
    return (
        f"left to full size (./run test tests/ROOM): {left.total()} of {len(every)} cases: {rooms}"
    )


def untested(told: Iterable[Case]) -> str:
    """The last line: rooms with tests skipped for want of programs, and the cure. Pure."""
    lacking: dict[str, set[str]] = {}
    for case in told:
        found = COMMAND.search(case.reason) if case.outcome == "skipped" else None
        if found:
            lacking.setdefault(found.group(1), set()).add(case.room)
    if not lacking:
        return "every room had the programs that it needs"
    cures = [f"{', '.join(sorted(rooms))}: {cure}" for cure, rooms in sorted(lacking.items())]
    return f"not tested for want of programs: {'; '.join(cures)}"
