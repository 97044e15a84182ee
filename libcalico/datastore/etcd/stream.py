"""The watches of a process on one connection of their own, and when it is read.

Problem: gRPC hands each event through its threads, which fight the event loop for the interpreter,
also in the middle of the ADD that made the event, on a machine whose every core works at that ADD.
So the streams of one etcd member share an HTTP/2 connection that the loop itself reads (http2.py).

`gather` is for a process in no hurry: bytes that come after a quiet time wait for so many seconds,
and are then read at once with all that followed. `hold` is for a process that has urgent work, and
whose next events are only the echo of that work: nothing is read for HOLD_SECONDS, and with
repeated calls for HOLD_MOST at most. So an event is late by the seconds of `gather`, or by
HOLD_MOST, and never lost. Nothing waits while a watch is being created, nor a whole READ_BYTES.

Invariants:
  STR-1  What is not a plain message of gRPC ends its stream with `Broken`; what it had completed
         before is delivered first. Nothing is guessed, skipped or delivered twice.
  STR-2  A stream whose reader is slow stops the server by its window (RFC 9113 section 5.2), and
         no other stream; memory is bounded by one window a stream and the message being read.
  STR-3  A peer that says nothing for the seconds of the keepalive is pinged, or asked by a call
         where it bears no pings, and given up when nothing comes of it within its timeout, though
         its kernel may live.
  STR-4  No two readings are further apart than the longest hold while there is something to read.
Tested in tests/libcalico/test_etcd_stream.py and test_etcd_stream_reading.py there.
"""

from __future__ import annotations

import asyncio
import time

from libcalico.datastore.etcd import http2
from libcalico.datastore.etcd.http2 import (
    AGAIN_SECONDS,
    KEEPALIVE,
    READ_BYTES,
    Metadata,
    Peer,
    Wire,
)
from libcalico.datastore.etcd.message_stream import Broken, Stream
from libcalico.process import tasks

HOLD_SECONDS, HOLD_MOST = 0.02, 0.05
_ALIVE = b"watching"


class Line(Wire[Stream]):
    """One connection. `gather` is explained above; 0 reads at once."""

    def __init__(self, keepalive: tuple[float, float] = KEEPALIVE, gather: float = 0.0) -> None:
        super().__init__(keepalive)
        self.gather = gather
        self.beginning = 0
        """Watches that do not stand yet."""
        self.question: tuple[bytes, bytes] | None = None
        """The headers and the message of a call that asks for life instead of a ping."""
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._pinged = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._kept: list[bytes] = []
        self._since = self._until = 0.0
        self._release: asyncio.TimerHandle | None = None
        self._passing = self._more = False

    def open(self, block: bytes) -> Stream:
        """Open a new stream. Raises Broken."""
        stream = Stream(self)
        try:
            stream.number = self.begin(block, stream)
        except ValueError as problem:
            stream.end(str(problem))
            raise Broken(str(problem)) from None
        return stream

    # -- when it is read --------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether reading is paused."""
        return self._release is not None

    def hold(self) -> None:
        """Pause reading for HOLD_SECONDS from now, and for HOLD_MOST in all."""
        if self._passing or self.beginning or self._transport is None:
            return
        now = self._loop.time()
        if self._release is None:
            self._pause(now, HOLD_SECONDS)
        else:
            self._until = held_until(self._since, now)

    def _pause(self, now: float, seconds: float) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._since, self._until = now, now + seconds
        self._release = self._loop.call_at(self._until, self._released)

    def _released(self) -> None:
        if self._loop.time() < self._until:
            self._release = self._loop.call_at(self._until, self._released)
            return
        self._release = None
        if self._transport is None:
            return
        # One reading comes before the next hold: in the next turn, before what is queued in it.
        self._passing, self._more = True, False
        self._loop.call_soon(self._loop.call_soon, self._passed)
        kept, self._kept = self._kept, []
        for data in kept:
            if not self._over:
                super().data_received(data)
        if self._transport is not None:
            self._transport.resume_reading()

    def _passed(self) -> None:
        if self._more:
            # That was not all of it: a flood is read as fast as we can.
            self._more = False
            self._loop.call_soon(self._loop.call_soon, self._passed)
        else:
            self._passing = False

    def data_received(self, data: bytes) -> None:
        """Receive frames, whole or in pieces; some may be kept for later."""
        self._heard = now = self._loop.time()
        if self._kept or (self._release is not None and not self.beginning):
            self._kept.append(data)
            return
        full = len(data) >= READ_BYTES
        self._more |= full
        if self.gather and self.ready and not self.beginning and not full:
            passing = self._passing
            if self._transport is not None:
                self._pause(now, self.gather)
            if not passing:
                self._kept.append(data)
                return
        super().data_received(data)

    # -- keepalive --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and watch over the peer."""
        super().connection_made(transport)
        self._heard = self._loop.time()
        if not self._over:
            self._look = self._loop.call_later(self._keepalive[0], self._look_after)

    def _look_after(self) -> None:
        if self._heard < self._pinged:
            self.end("the server does not answer")
            return
        idle, timeout = self._keepalive
        now, due = self._loop.time(), self._heard + idle
        if now >= due and not self.streams:
            # No stream waits for it, and gRPC servers end a connection that pings without streams.
            due = now + idle
        elif now >= due:
            self._pinged, due = now, now + timeout
            self._ask()
        self._look = self._loop.call_at(due, self._look_after)

    def _ask(self) -> None:
        """Ask the peer for a sign of life: any answer is one, a refusal too."""
        if self.question is not None and self.ready:
            headers, message = self.question
            self.begin(headers, Stream.of(self, message))
        else:
            self.write(http2.frame(http2.PING, 0, 0, _ALIVE))

    # -- what comes -------------------------------------------------------------------------------

    def broke(self, stream: Stream, reason: str, *, refused: bool = False) -> None:
        """End a stream."""
        stream.end(reason)

    def took_data(self, _number: int, stream: Stream, body: bytes) -> None:
        """Receive a part of a message, or several messages."""
        try:
            stream.receive(body)
        except Broken as problem:
            stream.end(str(problem))
            stream.cancel()  # or the server would go on sending

    def took_end(self, _number: int, stream: Stream, _block: bytes) -> None:
        """End a stream that the server ended; its reason is not read."""
        stream.end("the server ended it")

    def end(self, reason: str) -> None:
        """Retire the connection and end all of its streams."""
        for timer in (self._look, self._release):
            if timer is not None:
                timer.cancel()
        self._look = self._release = None
        self._kept = []
        super().end(reason)


class Streams:
    """The direct watches of one etcd member. Their connection is made on first use, and again
    after a failure.
    """

    def __init__(self, peer: Peer, path: bytes) -> None:
        self._peer = peer
        self._headers = peer.headers(path)
        self._line: Line | None = None
        self._question: tuple[bytes, bytes] | None = None
        self._connecting: asyncio.Task[str] | None = None
        self._not_before = 0.0
        self._problem = ""
        self._closed = False

    def ask(self, path: bytes, message: bytes) -> None:
        """Ask by this call from now on whether the member lives, and ping no more."""
        self._question = self._peer.headers(path), message
        if self._line is not None:
            self._line.question = self._question

    async def open(self, metadata: Metadata, gather: float) -> Stream:
        """Open a new stream on the shared connection. Raises Broken."""
        if self._line is None or not self._line.ready:
            await self._connected()
        assert self._line is not None
        self._line.gather = gather
        return self._line.open(self._headers + http2.fields(metadata))

    async def _connected(self) -> None:
        if self._connecting is None:
            if self._closed or time.monotonic() < self._not_before:
                raise Broken(self._problem or "there is no connection")
            self._connecting = tasks.start(self._connect(), "connection to etcd")
        connecting = self._connecting
        # One waiter may be cancelled; the others go on waiting.
        await asyncio.wait([connecting])
        if problem := "closed" if connecting.cancelled() else connecting.result():
            raise Broken(problem)

    async def _connect(self) -> str:
        line = Line(self._peer.keepalive)
        try:
            self._problem = await self._peer.reach(line)
            if not self._problem:
                line.question = self._question
                self._line = line
        finally:
            self._connecting = None
            if self._line is not line:
                self._not_before = time.monotonic() + AGAIN_SECONDS
                line.end("it was not made")
        return self._problem

    def hold(self) -> None:
        """Pause reading for a moment (`Line.hold`)."""
        if self._line is not None:
            self._line.hold()

    def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._line is not None:
            self._line.end("closed")


def held_until(since: float, now: float) -> float:
    """Until when a pause lasts that began at `since` and is renewed at `now`. Pure."""
    return min(now + HOLD_SECONDS, since + HOLD_MOST)
