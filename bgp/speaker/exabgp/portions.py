"""Lines for the event loop, some in each of its turns: what they become is worked off in between.

A large table is read far faster than it is decided on, and the events of its paths take ten times
the memory of its lines. Tested in tests/bgp/test_backlog.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PORTION = 1 << 18
"""Octets: some 25,000 paths with equal attributes."""


class Portions:
    """Hands lines to `take`, in order, in the loop that made it."""

    def __init__(self, take: Callable[[list[bytes]], None]) -> None:
        self._take, self._loop = take, asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._due = False

    def add(self, lines: list[bytes]) -> None:
        """These after all others, from the next turn on."""
        self._waiting.extend(lines)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._due:
            self._due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._due = False
        portion, size = list[bytes](), 0
        while self._waiting and size < PORTION:
            portion.append(self._waiting.popleft())
            size += len(portion[-1])
        try:
            self._take(portion)
        finally:
            self._schedule()  # behind the waiters for what was taken

    def finish(self) -> None:
        """All that waits, now."""
        rest = list(self._waiting)
        self._waiting.clear()
        self._take(rest)
