"""A mutant meets its tests in a box: namespaces of its own, over a tree that is never written.

The box has its own mounts, processes and network. An overlay lies over the checkout at the
checkout's own path, so daemons that a test starts run the mutant too; when the first process
ends, the kernel ends all others, takes the mounts away, and nothing is left on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import Mutant

BOX = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc")
NO_BOX = 97
SET_UP = f"""
set -e
trap 'exit {NO_BOX}' EXIT
mount -t tmpfs tmpfs /run
mkdir /run/upper /run/work /run/netns /run/lock
mount -t overlay overlay -o "lowerdir=$1,upperdir=/run/upper,workdir=/run/work" "$1"
case $1 in /tmp/*) ;; *) mount -t tmpfs tmpfs /tmp ;; esac
ip link set lo up
cd "$1"
[ -z "$2" ] || cat >"$2"
shift 2
trap - EXIT
exec "$@" </dev/null
"""
HANG = 300
"""Seconds for one run of the tests; a mutant that hangs them is killed by that."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said: `killed` or not; `tests` are the files that ran, `said` the end."""

    mutant: Mutant
    killed: bool
    tests: tuple[str, ...]
    said: str


def in_box(root: Path, tests: Sequence[str], file: str = "", text: str = "") -> tuple[int, str]:
    """Run files of tests with `file` replaced by `text`: pytest's status and its last words.

    RuntimeError where the kernel gives no such namespaces or mounts.
    """
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words += ["--hypothesis-seed=0", "--tb=line", *tests]
    environ = {name: value for name, value in os.environ.items() if name != "MUSLIN_FULL_SIZE"}
    try:
        done = subprocess.run(
            [*BOX, "sh", "-c", SET_UP, "sh", str(root), file, *words],
            input=text.encode(),
            env=environ,
            capture_output=True,
            timeout=HANG,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"nothing within {HANG} s"
    told = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    if done.returncode == NO_BOX:
        raise RuntimeError(f"no box for the tests: {told[-3:]}")
    return done.returncode, "\n".join(told[-3:])


def judge(root: Path, mutant: Mutant, tests: Sequence[str]) -> Verdict:
    """Whether one of the files of tests, the nearest first, fails on the mutant.

    Without tests it survives. RuntimeError as `in_box`.
    """
    if not tests:
        return Verdict(mutant, False, (), "no tests")
    text = (root / mutant.file).read_text()
    status, said = in_box(root, tests, mutant.file, mutant.change.applied(text))
    return Verdict(mutant, status not in (0, 5), tuple(tests), said)
