"""Work in threads of the event loop.

Tested in tests/linux/test_iptables_packed.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def to_its_end(work: Awaitable[None]) -> None:
    """Wait for it even when cancelled meanwhile: a thread cannot be taken back."""
    running, cancelled = asyncio.ensure_future(work), False
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised below
            break
    if cancelled:
        running.exception()
        raise asyncio.CancelledError
    running.result()
