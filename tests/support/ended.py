"""A program that a test starts ends with it, however the test ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A started program, killed at the end of the block if it still runs."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
