"""A bench in a box (tests/box.py): whatever ends it, what it started and wrote goes with it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from lab import proc
from lab.errors import LabError
from tests import box, run_folder
from tests.bench._ending import in_order
from tests.k8s.node import remove_groups

ROOT = Path(__file__).parent.parent.parent
INSIDE = "MUSLIN_BENCH_BOXED"
NAME = "control-groups"
"""A file of the run's folder: how the names of its control groups begin, which no box holds."""
PATIENCE = 60.0


def inside() -> bool:
    """Whether this process is in the box already."""
    return INSIDE in os.environ


def name_groups(beginning: str) -> None:
    """Said inside, before the first control group: how their names begin."""
    (Path(tempfile.gettempdir()) / NAME).write_text(beginning)


def run(module: str) -> int:
    """This command once more, in a box; its exit code. It does not outlive this process."""
    in_order()
    with run_folder.made() as folder:
        environ = {**os.environ, INSIDE: "1", "TMPDIR": str(folder)}
        words = box.command([sys.executable, "-m", module, *sys.argv[1:]])
        process = box.start(words, cwd=ROOT, env=environ)
        try:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    continue  # the terminal told the bench too: it cleans up and ends
        finally:
            process.kill()
            process.wait()
            _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove what a box leaves when it is killed."""
    named = folder / NAME
    if named.exists():
        with contextlib.suppress(LabError):
            beginning = named.read_text()
            what = "the box's control groups are empty"
            proc.wait_until(lambda: remove_groups(f"{beginning}*"), what, timeout=PATIENCE)
    run_folder.remove(folder)
