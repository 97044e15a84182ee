"""A lock a container: calls of one container take turns, and wait for no other container's.

Calls of one container never overlap (CNI-41). Tested in tests/cni/test_container_locks.py, and
with the daemon in tests/cni/test_daemon_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

Acquire = Callable[[str], AbstractAsyncContextManager[None]]
"""`ContainerLocks.acquire`, or another function that holds a container's lock."""


class ContainerLocks:
    """One lock a container, with the number of calls that hold it or wait for it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @property
    def busy(self) -> frozenset[str]:
        """The containers with a call in progress or waiting."""
        return frozenset(self._locks)

    def acquire(self, container_id: str) -> AbstractAsyncContextManager[None]:
        """Wait until no other call of this container runs; "" is no container."""
        return _Held(self._locks, container_id) if container_id else nullcontext()


class _Held:
    """One call's hold of its container's lock; as a generator it would cost twice as much."""

    __slots__ = ("_container_id", "_locks")

    def __init__(self, locks: dict[str, tuple[asyncio.Lock, int]], container_id: str) -> None:
        self._locks, self._container_id = locks, container_id

    async def __aenter__(self) -> None:
        lock, users = self._locks.get(self._container_id) or (asyncio.Lock(), 0)
        self._locks[self._container_id] = (lock, users + 1)
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._locks[self._container_id][0].release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks[self._container_id]
        if users == 1:
            del self._locks[self._container_id]
        else:
            self._locks[self._container_id] = (lock, users - 1)
