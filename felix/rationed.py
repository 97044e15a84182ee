"""A descriptor that the loop reads, for a bounded share of its time.

What comes by NFLOG or from conntrack may be a flood that another machine sends. A reader that
reads all of it would be all that felix does.

Invariant:
  RAT-1  After `MOST_A_SECOND` items in a second the descriptor is left alone until that second is
         over, and read again then.
Tested in tests/felix/agent/test_rationed.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MOST_A_SECOND = 10_000
"""At 20 microseconds each a fifth of a core."""


class Rationed:
    """`read` is called while there is something to read; it returns how many items it took."""

    def __init__(self, fd: int, read: Callable[[], int], most: int = MOST_A_SECOND) -> None:
        self._fd, self._read, self._most = fd, read, most
        self._left, self._second = most, 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._closed = False
        self.rests = 0
        """How often it was left alone so far."""
        asyncio.get_running_loop().add_reader(fd, self._ready)

    def close(self) -> None:
        """Read no more; twice is fine. To be called before the descriptor is closed."""
        if self._closed:
            return
        self._closed = True
        if self._resting is not None:
            self._resting.cancel()
        else:
            asyncio.get_running_loop().remove_reader(self._fd)

    def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._second >= 1.0:
            self._second, self._left = now, self._most
        self._left -= self._read()
        if self._left <= 0 and not self._closed:
            loop.remove_reader(self._fd)
            self._resting = loop.call_at(self._second + 1.0, self._rested)
            self.rests += 1

    def _rested(self) -> None:
        self._resting = None
        asyncio.get_running_loop().add_reader(self._fd, self._ready)
