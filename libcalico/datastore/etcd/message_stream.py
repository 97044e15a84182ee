"""One call with many answers, cut out of what a connection brings (stream.py has the connection).

STR-1 and STR-2 of that file. Tested in tests/libcalico/test_etcd_stream.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from libcalico.datastore.etcd import http2
from libcalico.datastore.etcd.http2 import MESSAGE, OUR_WINDOW

LONGEST = 1 << 30
"""Bytes of one message; etcd sends fragments far smaller."""


class Broken(Exception):
    """A stream has ended or could not begin; the text says why."""


class Messages:
    """Cuts the bytes of a stream into messages. Pure."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete with these bytes. Raises Broken."""
        if not self._rest and len(data) >= MESSAGE.size:
            # Mostly a frame is a message.
            compressed, length = MESSAGE.unpack_from(data)
            if not compressed and len(data) == MESSAGE.size + length:
                return [data[MESSAGE.size :]]
        self._rest += data
        messages, at = [], 0
        while len(self._rest) - at >= MESSAGE.size:
            compressed, length = MESSAGE.unpack_from(self._rest, at)
            if compressed or length > LONGEST:
                raise Broken("a compressed message" if compressed else "a message without end")
            end = at + MESSAGE.size + length
            if len(self._rest) < end:
                break
            messages.append(bytes(self._rest[at + MESSAGE.size : end]))
            at = end
        del self._rest[:at]
        return messages


class Carrier(Protocol):
    """The connection under a stream. `beginning` counts the watches that are not established."""

    beginning: int
    streams: dict[int, Stream]

    def write(self, frames: bytes) -> None:
        """Send frames."""

    def go_on(self) -> None:
        """Send what was added to a stream."""


class Stream(http2.Sending):
    """One call with any number of requests and answers."""

    __slots__ = ("_begins", "_came", "_cut", "_line", "_reason", "_unread", "_waiting", "number")

    def __init__(self, line: Carrier) -> None:
        super().__init__(b"", ends=False)
        self._line = line
        self.number = 0
        self._begins = True
        line.beginning += 1
        self._cut = Messages()
        self._came: deque[bytes] = deque()
        self._unread = 0  # bytes for which the server has no leave yet
        self._reason = ""
        self._waiting: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, line: Carrier, body: bytes) -> Stream:
        """A call of one request whose answer is not read: that one comes is what counts."""
        made = cls(line)
        made.stands()
        made.rest, made.ends = memoryview(http2.message(body)), True
        return made

    def write(self, body: bytes) -> None:
        """Send a message, as soon as the server takes it."""
        self.rest = memoryview(bytes(self.rest) + http2.message(body))
        self._line.go_on()

    async def read(self) -> bytes:
        """The next message. Raises Broken when there will be none."""
        while not self._came:
            if self._reason:
                raise Broken(self._reason)
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        body = self._came.popleft()
        if not self._came:
            self._grant()
        return body

    def stands(self) -> None:
        """Note that its watches are established: later events may be held back."""
        if self._begins:
            self._begins = False
            self._line.beginning -= 1

    def cancel(self) -> None:
        """Cancel the call; nothing more is read of it."""
        if self._line.streams.pop(self.number, None) is not None:
            code = http2.CANCEL.to_bytes(4, "big")
            self._line.write(http2.frame(http2.RESET, 0, self.number, code))
        self.end("cancelled")

    def receive(self, data: bytes) -> None:
        """Add bytes that came from the server. Raises Broken."""
        self._unread += len(data)
        self._came.extend(self._cut.feed(data))
        if self._came:
            self._wake()
        else:
            self._grant()

    def end(self, reason: str) -> None:
        """End it: nothing more comes."""
        self._reason = self._reason or reason
        self.stands()
        self._wake()

    def _grant(self) -> None:
        # Nothing waits for the reader: what came may come again.
        if self._unread > OUR_WINDOW // 2 and not self._reason:
            self._line.write(http2.grant(self.number, self._unread))
            self._unread = 0

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
