"""A bench in a box (tests/box.py): whatever ends it, what it started and wrote goes with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import box, run_folder
from tests.bench._ending import in_order

ROOT = Path(__file__).parent.parent.parent
INSIDE = "MUSLIN_BENCH_BOXED"


def inside() -> bool:
    """Whether this process is in the box already."""
    return INSIDE in os.environ


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
            run_folder.remove(folder)
