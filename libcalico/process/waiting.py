"""Waiting for an event that may not come. Tested in tests/libcalico/test_waiting.py."""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most `seconds` (None: without limit); returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
