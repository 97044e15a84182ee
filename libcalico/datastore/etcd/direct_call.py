"""The one call that every pod's start waits for, without the way through gRPC's threads.

Problem: gRPC hands a request to one thread and its answer through two more before the event loop
has it. That is a millisecond of CPU for one transaction, of six or seven that a pod's start takes
in all. Here a guarded transaction is written to a connection of its own in the caller's turn, and
its answer wakes the caller: HTTP/2 (http2.py) and gRPC's framing, as much of them as one unary
call needs. What is no answer (unary.py) is `Unanswered`. Then the caller asks again through gRPC
(connection.py), which knows errors, logins and other endpoints.

Invariants:
  ETX-1  What is not a whole, plain answer to this very call is `Unanswered`, and says whether the
         request may have been carried out; nothing is guessed and nothing is sent twice from here.
  ETX-2  A connection that broke a rule of HTTP/2 that we read, is being ended by the server, or
         gave no answer in time, is not used again. A call that failed by itself (refused, reset,
         an error) ends alone: the others on its connection go on, and so does the connection.
  ETX-3  No connection stays open that is not the one in use: not one whose server says nothing
         within CONNECT_SECONDS, nor one that was replaced. A dead peer ends it (keepalive).
Tested in tests/libcalico/test_etcd_express.py.
"""

from __future__ import annotations

import asyncio
import time

from libcalico.datastore.etcd import http2
from libcalico.datastore.etcd.http2 import AGAIN_SECONDS, Metadata, Peer, Wire
from libcalico.datastore.etcd.unary import TXN, Unanswered, answer_of, refusal_of
from libcalico.process import tasks


class _Call(http2.Sending):
    """One request, and the part of its answer that has come so far."""

    __slots__ = ("answer", "future", "timer")

    def __init__(self, future: asyncio.Future[bytes], body: bytes) -> None:
        super().__init__(body, ends=True)
        self.future = future
        self.answer = bytearray()
        self.timer: asyncio.TimerHandle | None = None


class DirectCall:
    """The direct way to one etcd member.

    Its connection is made on first use, and again after a failure.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._headers = peer.headers(TXN)
        self._problem = ""
        self._line: _Line | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether a call can be made now. If not, a connection is being made."""
        if self._line is not None and self._line.ready:
            return True
        if self._connecting is None and not self._closed and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + AGAIN_SECONDS
            self._connecting = tasks.start(self._connect(), "connection to etcd")
        return False

    async def _connect(self) -> None:
        line = _Line(self._peer.keepalive)
        try:
            self._problem = await self._peer.reach(line)
            if not self._problem:
                before, self._line = self._line, line
                if before is not None:
                    before.end("another took its place")
        finally:
            self._connecting = None
            if self._line is not line:
                line.end("it was not made")

    def take_problem(self) -> str:
        """Why the last attempt to connect failed, told once for each attempt; else empty."""
        problem, self._problem = self._problem, ""
        return problem

    async def call(self, message: bytes, metadata: Metadata, timeout: float) -> bytes:
        """The message of the answer, within `timeout` seconds. Raises `Unanswered`."""
        if self._line is None or not self._line.ready:
            raise Unanswered("there is no connection", sent=False)
        deadline = http2.field(b"grpc-timeout", b"%dm" % max(1, int(timeout * 1000)))
        block = self._headers + deadline + http2.fields(metadata)
        return await self._line.call(block, http2.message(message), timeout)

    def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._line is not None:
            self._line.end("closed")


class _Line(Wire[_Call]):
    """One connection."""

    async def call(self, block: bytes, body: bytes, timeout: float) -> bytes:
        """One call: its headers, its body. Raises `Unanswered`."""
        loop = asyncio.get_running_loop()
        call = _Call(loop.create_future(), body)
        try:
            self.begin(block, call)
        except ValueError as problem:
            raise Unanswered(str(problem), sent=False) from None
        call.timer = loop.call_later(timeout, self.end, "no answer in time")
        return await call.future

    def broke(self, call: _Call, reason: str, *, refused: bool = False) -> None:
        """Fail the call: it has no answer."""
        _settle(call, Unanswered(reason, sent=not refused))

    def took_data(self, number: int, call: _Call, body: bytes) -> None:
        """Add a part of an answer, or all of it."""
        call.answer += body
        try:
            answer = answer_of(call.answer)
        except Unanswered as problem:
            del self.streams[number]
            _settle(call, problem)
            return
        if answer is not None and not call.rest:
            del self.streams[number]
            _settle(call, answer)

    def took_end(self, _number: int, call: _Call, block: bytes) -> None:
        """Handle the headers that end a call without an answer: an error, or a plain refusal."""
        _settle(call, refusal_of(block, call.answer))


def _settle(call: _Call, answer: bytes | Unanswered) -> None:
    if call.timer is not None:
        call.timer.cancel()
    if call.future.done():
        return
    if isinstance(answer, bytes):
        call.future.set_result(answer)
    else:
        call.future.set_exception(answer)
