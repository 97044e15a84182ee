"""One connection to an etcd member whose caller waits for each answer: no event loop, no gRPC.

For a command that makes a few calls and ends. What is not usual is `Unanswered` (ETX-1): a member
that does not answer soon, an error, a request that is too long for the first window. The caller
then asks by the way that knows all of it (blocking.py).
Tested in tests/libcalico/test_etcd_blocking.py.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from libcalico.datastore.etcd import frames
from libcalico.datastore.etcd.frames import OUR_WINDOW, frame
from libcalico.datastore.etcd.unary import LEADER, Unanswered, answer_of, refusal_of

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 1.5
"""After so long without a connection, or without more of an answer, the other way is tried."""
READ_BYTES = 1 << 18
_GRANT = OUR_WINDOW // 4
"""Bytes after which the server is told that as many more may come."""


class BlockingCalls:
    """The calls on one connection, one after the other. `context`: it speaks TLS."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Connect. Raises OSError, Unanswered."""
        self._host, self._port, self._secure = host, port, context is not None
        self._cut = frames.Cutter()
        self._next = 1
        self._window = frames.FIRST_WINDOW
        self._taken = 0
        self._ready, self._broken = False, ""
        # As bytes: an address of letters and digits needs no codec of international names.
        address: tuple[Any, int] = host.encode(), port
        self._socket = socket.create_connection(address, CONNECT_SECONDS)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                secured = context.wrap_socket(self._socket, server_hostname=host)
                self._socket = secured
                if secured.selected_alpn_protocol() != "h2":
                    raise Unanswered("the server does not speak HTTP/2", sent=False)
            self._socket.sendall(frames.greeting(OUR_WINDOW))
            self._begin()
        except BaseException:
            self._socket.close()
            raise

    def call(self, path: bytes, request: bytes) -> bytes:
        """The message of the answer. Raises Unanswered."""
        body = frames.message(request)
        if self._broken or len(body) > min(self._window, frames.FRAME_BYTES):
            raise Unanswered(self._broken or "a long request", sent=False)
        number, self._next = self._next, self._next + 2
        head = frames.call_headers(self._host, self._port, path, secure=self._secure)
        head += frames.field(b"grpc-timeout", b"%dm" % int(ANSWER_SECONDS * 1000))
        head += frames.fields([LEADER])
        self._window -= len(body)
        try:
            self._socket.sendall(
                frame(frames.HEADERS, frames.END_HEADERS, number, head)
                + frame(frames.DATA, frames.END_STREAM, number, body)
            )
            return self._answer(number)
        except (OSError, ValueError, struct.error, frames.FrameTooLong) as problem:
            self._broken = str(problem) or type(problem).__name__
            raise Unanswered(self._broken, sent=True) from None

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _begin(self) -> None:
        """Wait until the server says who it is, and whether its windows are the usual ones."""
        try:
            while not self._ready:
                for kind, flags, _, body in self._received(time.monotonic() + CONNECT_SECONDS):
                    self._manage(kind, flags, body)
        except (ValueError, struct.error, frames.FrameTooLong) as problem:
            raise Unanswered(str(problem) or "no HTTP/2", sent=False) from None

    def _answer(self, number: int) -> bytes:
        """The answer on a stream. Raises Unanswered; OSError and others for a broken connection."""
        answer, taken = bytearray(), 0
        while True:
            for kind, flags, stream, body in self._received(time.monotonic() + ANSWER_SECONDS):
                if not stream or kind == frames.PING:
                    self._manage(kind, flags, body)
                elif stream != number or kind not in (frames.DATA, frames.HEADERS, frames.RESET):
                    continue
                elif kind == frames.RESET:
                    refused = struct.unpack(">I", body)[0] == frames.REFUSED_STREAM
                    raise Unanswered("the call was reset", sent=not refused)
                elif kind == frames.DATA:
                    if flags & frames.PADDED:
                        raise ValueError("padding")
                    answer += body
                    taken, self._taken = taken + len(body), self._taken + len(body)
                elif flags & frames.END_STREAM:
                    return self._ended(answer, body if flags & frames.END_HEADERS else b"")
            if taken and self._taken > _GRANT:
                self._socket.sendall(frames.grant(0, self._taken) + frames.grant(number, taken))
                taken = self._taken = 0

    def _ended(self, answer: bytearray, block: bytes) -> bytes:
        message = answer_of(answer)
        if message is None:
            raise refusal_of(block, answer)
        return message

    def _received(self, deadline: float) -> list[frames.Frame]:
        """The frames of what comes next. Raises OSError, FrameTooLong."""
        self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the connection ended")
        return list(self._cut.frames(data))

    def _manage(self, kind: int, flags: int, body: bytes) -> None:
        """A frame of the connection itself. Raises ValueError when it is of no more use."""
        if kind == frames.SETTINGS and not flags & frames.ACK:
            for name, value in frames.SETTING.iter_unpack(body):
                if name == frames.INITIAL_WINDOW and value < frames.FIRST_WINDOW:
                    raise ValueError("a small window")
            self._ready = True
            self._socket.sendall(frame(frames.SETTINGS, frames.ACK, 0, b""))
        elif kind == frames.PING and not flags & frames.ACK:
            self._socket.sendall(frame(frames.PING, frames.ACK, 0, body))
        elif kind == frames.WINDOW:
            self._window += struct.unpack(">I", body)[0]
        elif kind == frames.GOAWAY:
            raise ValueError("the server ends the connection")
