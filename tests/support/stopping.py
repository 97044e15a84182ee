"""A process of a test that stands still: its connections stay open and nothing answers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.patience import wait_for


def pause(pid: int) -> None:
    """SIGSTOP; returns when every thread stands, which a busy machine may need a while for."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _stands(pid), f"process {pid} does not stop", 0.002)


def _stands(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
    except OSError:  # a thread ended meanwhile
        return False
