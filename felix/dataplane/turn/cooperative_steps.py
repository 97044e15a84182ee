"""Work in steps, with the loop's other work between; work beside which something is heard.

Tested in tests/felix/dataplane/test_chain_store_steps.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from libcalico.process import tasks

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


async def happens_before(event: asyncio.Event, end: asyncio.Task[Any]) -> bool:
    """Whether an event is set by the time a task has ended."""
    if end.done():
        return event.is_set()
    heard = tasks.start(event.wait(), "event")
    try:
        await asyncio.wait({end, heard}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()
    return event.is_set()
