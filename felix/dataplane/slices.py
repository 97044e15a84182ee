"""Work in steps, with the loop's other work between.

Tested in tests/felix/test_rulebook_slices.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

SLICE = 0.01
"""Seconds after which others have their turn."""


async def in_slices(steps: Iterator[None], seconds: float = SLICE) -> None:
    """Go through all steps; whenever they took so many seconds the loop does its other work.

    Cancelled between two steps, the rest is given up, and a generator is closed at once.
    """
    with closing(steps):  # type: ignore[type-var]
        began = time.perf_counter()
        for _ in steps:
            if time.perf_counter() - began >= seconds:
                await asyncio.sleep(0)
                began = time.perf_counter()
