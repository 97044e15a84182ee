"""How long a test waits for what must happen: a limit that only catches a hang."""

from __future__ import annotations

HANG = 120.0
"""Seconds. The slowest machine that still works has long done what a test waits for."""


def patient(seconds: float) -> float:
    """The limit of a wait that takes `seconds` at most where nothing else runs."""
    return max(HANG, seconds)
