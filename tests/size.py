"""How many examples a property test takes: all that are asked for at full size, fewer else."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SHARE, LEAST = 3, 15


def examples(full: int) -> int:
    """`max_examples` of a test: `full` at full size, else a third, and 15 at least."""
    return full if FULL else min(full, max(LEAST, full // SHARE))
