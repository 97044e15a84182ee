"""Control groups of version 1: no box holds them, so who names them takes them away."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def remove(pattern: str) -> bool:
    """Remove the groups of a name, or of all that a pattern fits, and what is below them.

    False while a process is in one of them, also one that ended and was not yet seen off.
    """
    for folder in (path for path in ROOT.glob(f"*/{pattern}") if path.is_dir()):
        inner = [path for path in folder.rglob("*") if path.is_dir()]
        for path in [*sorted(inner, reverse=True), folder]:
            try:
                path.rmdir()
            except OSError:
                return False
    return True
