"""Parts of the controllers, run beside a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any


@contextlib.asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    """`run()` of each, until the block ends; what one raises ends the block, and is raised here."""
    block = asyncio.current_task()
    assert block is not None

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            block.cancel()

    tasks = [asyncio.create_task(part.run()) for part in parts]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        for task in tasks:
            task.remove_done_callback(ended)
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
