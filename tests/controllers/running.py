"""Parts of the controllers, run beside a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any


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
