"""The simulated kernel does what the real one does: `kernel.conformance`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import randrange

ROOT = Path(__file__).parent.parent.parent
FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))


def test_the_simulated_kernel_equals_the_real_one() -> None:
    """Codes, events with their order, dumps: 1,000 sequences at full size, new ones each time."""
    first = randrange(1_000_000)
    count = 1000 if FULL else 25
    command = [sys.executable, "-m", "tests.simulation.kernel.conformance"]
    done = subprocess.run(
        [*command, str(first), str(count), "30"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"first sequence {first}\n{done.stdout[-4000:]}{done.stderr}"
