"""A mutant meets its tests in a box: namespaces of its own, over a tree that is never written.

The box has its own mounts, processes and network. An overlay lies over the checkout at the
checkout's own path, so daemons that a test starts run the mutant too; when the first process
ends, the kernel ends all others, takes the mounts away, and nothing is left on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import box
from tests.mutants import order, warm
from tests.mutants.drawing import Mutant

BOX = (*box.BOX, "--net")
NO_BOX = 97
SET_UP = f"""
set -e
trap 'exit {NO_BOX}' EXIT
mount -t tmpfs tmpfs /run
mkdir /run/upper /run/work /run/netns /run/lock
mount -t overlay overlay -o "lowerdir=$1,upperdir=/run/upper,workdir=/run/work" "$1"
case $1 in /tmp/*) ;; *) mount -t tmpfs tmpfs /tmp ;; esac
unset TMPDIR
ip link set lo up
cd "$1"
[ -z "$2" ] || cat >"$2"
shift 2
trap - EXIT
exec "$@" </dev/null
"""
PIPES: dict[str, int] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
HANG = 1800
"""Seconds for one run of the tests."""
HUNG = 124
SAID = 40_000
"""Characters of the end of what pytest says: a line for each test that failed is among them."""
FAILED = re.compile(
    r"^(?:FAILED|ERROR) (tests?[/_]\S+?(?:::[^ \[]+(?:\[.*?\])?)?)(?: - .*)?$", re.M
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said: `killed` or not; `tests` are the files that ran, `said` the end.

    `by` are the tests that failed; none where the tests could not even be read, or hung.
    """

    mutant: Mutant
    killed: bool
    tests: tuple[str, ...]
    said: str
    by: tuple[str, ...] = ()


def in_box(
    root: Path, tests: Sequence[str], file: str = "", text: str = "", words: Sequence[str] = ("-x",)
) -> tuple[int, str]:
    """Run tests with `file` replaced by `text`: pytest's status and its last words.

    The status is HUNG after HANG seconds. RuntimeError where the kernel gives no such box.
    """
    try:
        with box.start(_boxed(root, file, [*words, *tests]), env=_environ(), **PIPES) as inside:
            try:
                said = inside.communicate(text.encode(), HANG)
            finally:
                inside.kill()
    except subprocess.TimeoutExpired:
        return HUNG, f"nothing within {HANG} s"
    told = b"".join(said).decode(errors="replace").strip()
    if inside.returncode == NO_BOX:
        raise RuntimeError(f"no box for the tests: {told.splitlines()[-3:]}")
    return inside.returncode, told[-SAID:]


def at_once(
    root: Path, mutants: Sequence[Mutant], tests: Mapping[Mutant, Sequence[str]]
) -> Iterator[tuple[Mutant, str | None]]:
    """Which test notices each mutant, out of one process (tests.mutants.warm).

    An empty text: none. None: such a mutant needs a process of its own. RuntimeError as `in_box`.
    """
    jobs = [
        {"file": one.file, "tests": tests[one], "start": c.start, "end": c.end, "new": c.new}
        for one in mutants
        for c in (one.change,)
    ]
    words = ["-s", "-p", "tests.mutants.warm"]
    words += sorted({file for one in mutants for file in tests[one]})
    quiet = PIPES | {"stderr": subprocess.DEVNULL}
    with box.start(_boxed(root, warm.JOBS, words), env=_environ(), **quiet) as inside:
        assert inside.stdin is not None
        assert inside.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            inside.stdin.write(json.dumps(jobs).encode())
            inside.stdin.close()
        for line in inside.stdout:
            if line.startswith(b"["):
                with contextlib.suppress(ValueError):
                    number, by = json.loads(line)
                    yield mutants[number], by
    if inside.returncode == NO_BOX:
        raise RuntimeError("no box for the tests")


def _boxed(root: Path, file: str, words: Sequence[str]) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=line",
        "--assert=plain",
    ]
    command += ["--hypothesis-seed=0", *profile(root), *words]
    return [*BOX, "sh", "-c", SET_UP, "sh", str(root), file, *command]


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MUSLIN_FULL_SIZE"}


def profile(root: Path) -> list[str]:
    """The way the property tests of this tree are run, where the tree has one for mutants."""
    common = root / "tests" / "conftest.py"
    known = common.exists() and '"mutants"' in common.read_text()
    return ["--hypothesis-profile=mutants"] if known else []


def judge(
    root: Path,
    mutant: Mutant,
    tests: Sequence[str],
    not_by: Sequence[str] = (),
    *,
    later: Sequence[str] = (),
    quick_later: bool = False,
) -> Verdict:
    """Whether one of the files of tests fails on the mutant, tests of `not_by` apart.

    `later`, `quick_later`: what runs after the other tests, as `order.words` says. Without tests
    it survives. Where nothing ends, it is killed only if the same tests end without it.
    RuntimeError as `in_box`.
    """
    if not tests:
        return Verdict(mutant, False, (), "no tests")
    text = mutant.change.applied((root / mutant.file).read_text())
    words = ["-x", *order.words(later, quick_later), *(f"--deselect={one}" for one in not_by)]
    status, said = in_box(root, tests, mutant.file, text, words)
    if status == HUNG:
        ends = in_box(root, tests, words=words)[0] != HUNG
        return Verdict(mutant, ends, tuple(tests), said)
    killed = status not in (0, 5)
    return Verdict(mutant, killed, tuple(tests), said, tuple(FAILED.findall(said)) * killed)
