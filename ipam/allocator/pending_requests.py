"""A request under way, and the two moments that its caller may wait for.

Tested in tests/ipam/test_pending_requests.py and tests/ipam/test_service.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ipam.allocator.requests import Granted, Request
from ipam.records.blocks import IPAddress


class PendingRequest:
    """One request under way.

    `tentative` is heard as soon as the address is planned, so that the pod can be wired while
    the datastore writes; only `done` says that the address is its own. After a lost race the
    two may differ. `when_planned` is called before anything is written: what others can begin
    with need not wait until the caller has its turn.
    """

    def __init__(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        self.tentative: asyncio.Future[tuple[IPAddress, ...]] = loop.create_future()
        self.done: asyncio.Future[Granted] = loop.create_future()
        self._waiting: list[asyncio.Future[Granted]] = []
        self.when_planned: Callable[[], None] = lambda: None
        self.started = False
        self.alone = False
        self.doubted = False
        """Whether what it was refused for has been read again."""

    async def settled(self) -> Granted:
        """Wait for `done`; a waiter that is cancelled does not cancel it for the others."""
        if self.done.done():
            return self.done.result()
        waiter: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter

    def abandon(self) -> None:
        """No caller waits any more: do not begin it. What has begun goes on."""
        self.done.cancel()
        self.tentative.cancel()
        for waiter in self._waiting:
            waiter.cancel()

    def propose(self, addresses: tuple[IPAddress, ...]) -> None:
        """The addresses are planned."""
        if not self.tentative.done():
            self.tentative.set_result(addresses)
            self.when_planned()

    def grant(self, answer: Granted) -> None:
        """The datastore has it."""
        self.propose(answer.addresses)
        if not self.done.done():
            self.done.set_result(answer)
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Nothing of it was done, or that is not known (`DatastoreUnavailable`)."""
        futures: list[asyncio.Future[Any]] = [self.tentative, self.done, *self._waiting]
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller may wait for one of the two only
