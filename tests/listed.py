"""The files of this tree that are ours: tracked by git, or untracked and not ignored.

Used by `./run lint`. Tested in tests/support/test_lint.py and tests/support/test_invariants.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def files(*patterns: str) -> list[Path]:
    """Those that match one of git's patterns, such as `*.py`."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).is_file()]


def texts(*patterns: str) -> dict[str, str]:
    """The same with what is in them, by their path below the root."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in files(*patterns)}
