"""gRPC's channel to one etcd endpoint, as long as there are calls.

Problem: while a process has a channel gRPC's threads wake some nine times a second, though nothing
is asked. So a channel goes when there was no call for a while, gRPC's threads go with the last one
of the process, and the next call makes another.

Tested in tests/libcalico/test_etcd_channel.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc.aio

from libcalico.datastore.etcd.failures import NotSent
from libcalico.datastore.etcd.proto import etcd_pb2_grpc as services
from libcalico.process import tasks


class Stubs:
    """A channel, and etcd's services on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.kv, self.lease = services.KVStub(channel), services.LeaseStub(channel)
        self.watch, self.auth = services.WatchStub(channel), services.AuthStub(channel)


class Channel:
    """The channel that `make` makes; it goes `idle` seconds after the last call."""

    def __init__(self, make: Callable[[], grpc.aio.Channel], idle: float) -> None:
        self._make, self._idle = make, idle
        self.stubs: Stubs | None = None
        self._calls = 0
        self._last = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self) -> Stubs:
        """The stubs for a call; `give_back` follows. Raises NotSent once it is closed."""
        if self.stubs is None:
            if self._closed:
                raise NotSent("the connection has been closed", connected=False)
            self.stubs = Stubs(self._make())
        self._calls += 1
        return self.stubs

    def give_back(self) -> None:
        """Note the end of a call."""
        self._calls -= 1
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._look is None and not self._closed:
            self._look = loop.call_later(self._idle, self._look_after)

    @contextmanager
    def used(self) -> Iterator[Stubs]:
        """`take` and `give_back` around a call."""
        stubs = self.take()
        try:
            yield stubs
        finally:
            self.give_back()

    def _look_after(self) -> None:
        self._look = None
        loop = asyncio.get_running_loop()
        if self._calls or self.stubs is None:
            return
        if loop.time() < self._last + self._idle:
            self._look = loop.call_at(self._last + self._idle, self._look_after)
            return
        stubs, self.stubs = self.stubs, None
        tasks.start(stubs.channel.close(), "an idle channel to etcd")

    async def close(self) -> None:
        """End it with its calls; no other is made."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        if self.stubs is not None:
            await self.stubs.channel.close()
