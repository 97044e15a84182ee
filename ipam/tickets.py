"""A request under way, and the two moments that its caller may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ipam.blocks import IPAddress
from ipam.requests import Granted, Request


class Ticket:
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
        self.when_planned: Callable[[], None] = lambda: None
        self.started = False
        self.alone = False

    def abandon(self) -> None:
        """Nobody waits any more: do not begin it. What has begun goes on."""
        self.done.cancel()
        self.tentative.cancel()

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

    def fail(self, error: BaseException) -> None:
        """Nothing of it was done, or nobody knows (`DatastoreUnavailable`)."""
        for future in (self.tentative, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller may wait for one of the two only
