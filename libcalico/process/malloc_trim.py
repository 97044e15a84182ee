"""Free memory of the C library, given back to the kernel.

Sessions that come and go leave the allocator with free pieces in several arenas, one for each
thread that ever allocated, and it keeps them: some KiB with each flap. Here there is one arena,
free memory at its end goes back at once (`man 3 mallopt`), and what lies between is given back now
and then (`man 3 malloc_trim`), where the C library knows the words: glibc.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time

log = logging.getLogger(__name__)

PAUSE = 30.0
"""Seconds between two looks."""
WORTH_CPU = 0.1
"""Processor seconds since the last time without which there is nothing to give back."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_OCTETS = 128 << 10

_libc = ctypes.CDLL(None)


def one_arena() -> None:
    """For the whole process; before it starts threads."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _OCTETS)
        mallopt(_MMAP_THRESHOLD, _OCTETS)


async def give_back() -> None:
    """For ever: after work, what is free."""
    trim, spent = getattr(_libc, "malloc_trim", None), time.process_time()
    while trim is not None:
        await asyncio.sleep(PAUSE)
        begun = time.process_time()
        if begun - spent >= WORTH_CPU:
            await asyncio.to_thread(trim, 0)  # tens of milliseconds of hundreds of MiB
            spent = time.process_time()
            log.debug("free memory is given back", extra={"ms": round((spent - begun) * 1000)})
