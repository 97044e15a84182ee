"""Parts of the controllers, run beside a test."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support.patience import patient

WITHIN = 60.0


async def until(check: Callable[[], object], within: float = WITHIN, *, step: float = 0.05) -> None:
    """Until it is true, while the loop runs."""
    deadline = time.monotonic() + patient(within)
    while not check():
        assert time.monotonic() < deadline, f"not within {within} s"
        await asyncio.sleep(step)


@contextlib.asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    """`run()` of each, until the block ends; what one raises is raised here."""
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result
