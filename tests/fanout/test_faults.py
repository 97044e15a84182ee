"""Proxies that fail, a backup behind them: felix believes what a fresh one does."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fanout.story import NAMED
from tests.size import FULL
from tests.support.netns import network_namespace
from tests.support.patience import HANG

STEPS = 40 if FULL else 12


def play(folder: Path, *words: str) -> None:
    """In a process of its own: gRPC's threads go on for a while to look for what was cut off."""
    with network_namespace("fanout") as space:
        command = space.command(sys.executable, "-m", "tests.fanout.story", str(folder), *words)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=12 * HANG
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-8000:]


@pytest.mark.promise("F-113")
@pytest.mark.parametrize("fault", NAMED)
def test_felix_believes_what_a_fresh_one_calculates_after(fault: str, tmp_path: Path) -> None:
    play(tmp_path, fault)


@pytest.mark.promise("F-113")
def test_felix_believes_the_same_after_any_faults(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")
    play(tmp_path, str(seed), str(STEPS))
