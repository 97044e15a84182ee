"""What waits to be written to one TCP connection. Runs in ExaBGP's process; standard library only.

Messages leave whole and in order, as fast as the peer reads. What a session must say now (a
KEEPALIVE, a NOTIFICATION) passes what waits, at the next border between two messages. Bytes that
many sessions are told are one object in all of their boxes. Tested in tests/bgp/test_outbox.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

CHUNK = 1 << 16
"""Octets handed to the kernel at once; what is urgent waits for the end of one at most."""

_CHUNKS_A_TURN = 4


class Outbox:
    """The box of one connection. `driven`: its session empties it, every turn."""

    def __init__(self) -> None:
        self.driven = False
        self.size = 0
        """Octets that wait and can still be dropped."""
        self._begun = memoryview(b"")
        self._urgent: list[bytes] = []
        self._waiting: deque[bytes] = deque()
        self._moved = 0.0

    def __bool__(self) -> bool:
        return bool(self._begun or self._urgent or self._waiting)

    def add(self, data: bytes) -> None:
        """Whole messages, behind all that waits."""
        if not self:
            self._moved = time.monotonic()
        self._waiting.append(data)
        self.size += len(data)

    def urge(self, data: bytes) -> None:
        """One message, before all that waits; the same one does not wait twice."""
        if not self:
            self._moved = time.monotonic()
        if data not in self._urgent:
            self._urgent.append(data)

    def drop(self) -> None:
        """Only what is urgent still counts."""
        self._waiting.clear()
        self.size = 0

    def stuck(self) -> float:
        """For how many seconds something has waited and nothing moved."""
        return time.monotonic() - self._moved if self else 0.0

    def flush(self, send: Callable[[memoryview], int]) -> bool:
        """Write what the kernel takes; returns whether it might take more at once.

        Raises `OSError` when the connection is broken.
        """
        for _ in range(_CHUNKS_A_TURN):
            if not self._begun and not self._begin():
                return False
            try:
                count = send(self._begun)
            except (BlockingIOError, InterruptedError):
                return False
            self._begun = self._begun[count:]
            self._moved = time.monotonic()
        return bool(self)

    def _begin(self) -> bool:
        chunk, self._urgent = self._urgent, []
        size = 0
        while self._waiting and size < CHUNK:
            chunk.append(self._waiting.popleft())
            size += len(chunk[-1])
        self.size -= size
        self._begun = memoryview(chunk[0] if len(chunk) == 1 else b"".join(chunk))
        return bool(chunk)
