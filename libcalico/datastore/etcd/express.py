"""The one call that every pod's start waits for, without the way through gRPC's threads.

Problem: gRPC hands a request to one thread and its answer through two more before the event loop
has it. That is a millisecond of CPU for one transaction, of six or seven that a pod's start takes
in all. Here a guarded transaction is written to a connection of its own in the caller's turn, and
its answer wakes the caller: HTTP/2 (RFC 9113) and gRPC's framing, as much of them as one unary
call needs. Headers of an answer are not read, so there is no HPACK decoder: etcd's server sends a
message only when the call succeeded, and whatever else comes is `Unanswered`. Then the caller asks
again through gRPC (connection.py), which knows errors, logins and other endpoints. One field alone
is looked for in the headers that end a call without an answer: whether etcd refused to begin it.

Invariants:
  EXP-1  What is not a whole, plain answer to this very call is `Unanswered`, and says whether the
         request may have been carried out; nothing is guessed and nothing is sent twice from here.
  EXP-2  A connection that broke a rule of HTTP/2 that we read, is being ended by the server, or
         gave no answer in time, is not used again. A call that failed by itself (refused, reset,
         an error) ends alone: the others on its connection go on, and so does the connection.
  EXP-3  No connection stays open that is not the one in use: not one whose server says nothing
         within CONNECT_SECONDS, nor one that was replaced. A dead peer ends it (keepalive).
Tested in tests/libcalico/test_etcd_express.py.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import ssl
import struct
import time
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONNECT_SECONDS = 3.0
AGAIN_SECONDS = 5.0
"""So long nobody tries to connect anew after a failure."""
OUR_WINDOW = 1 << 24
"""Bytes of one answer, and of all answers until more are granted."""

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_CONTINUATION = 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_HEAD = struct.Struct(">HBBBI")  # length (16 and 8 bits), type, flags, stream
_SETTING = struct.Struct(">HI")
_NO_TABLE, _NO_PUSH, _INITIAL_WINDOW, _MAX_FRAME = 1, 2, 4, 5
_MESSAGE = struct.Struct(">BI")  # compressed, length
_LAST_STREAM = 1 << 30
_REFUSED_STREAM = 7
_KEEPALIVE_PROBES = 3
_STATUS = re.compile(
    rb"(?:\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f|\x0bgrpc-status)(?:\x01([37])|\x02(16))"
)
"""The field `grpc-status` with a code of which etcd says it before it carries anything out: invalid
argument, permission denied, unauthenticated. Its name is as a literal of HPACK, packed (RFC 7541
section 5.2) or plain; we ask for no table, so it is never anything else."""
_LOGIN = (b"3", b"16")
"""A token that ended is one or the other, by what etcd has restarted or edited."""
_PATH = b"/etcdserverpb.KV/Txn"


class Unanswered(Exception):
    """There is no answer. `sent`: the request had left, and may have been carried out; `login`: it
    was not, perhaps for want of a login that is still good.
    """

    def __init__(self, reason: str, *, sent: bool, login: bool = False) -> None:
        self.sent, self.login = sent, login
        super().__init__(reason)


class _Call:
    """One request on its way: what of it must still leave, and what of the answer has come."""

    __slots__ = ("answer", "future", "rest", "timer", "window")

    def __init__(self, future: asyncio.Future[bytes], rest: memoryview, window: int) -> None:
        self.future, self.rest, self.window = future, rest, window
        self.answer = bytearray()
        self.timer: asyncio.TimerHandle | None = None


class Express:
    """The way to one etcd member: a connection, made when first wanted and again when it broke.

    `context`: for a member that speaks TLS. `keepalive`: seconds of silence after which the peer
    is probed, and seconds after which one that does not answer is dead.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        keepalive: tuple[float, float] = (30.0, 10.0),
    ) -> None:
        self._host, self._port, self._context = host, port, context
        self._keepalive = keepalive
        self._problem = ""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._headers = (
            # :method POST, :scheme http or https (RFC 7541 appendix A)
            (b"\x83\x87" if context else b"\x83\x86")
            + _literal(b"\x04", _PATH)
            + _literal(b"\x01", authority.encode())
            + _literal(b"\x0f\x10", b"application/grpc")
            + _field(b"te", b"trailers")
        )
        self._line: _Line | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether a call can be made now; if not, a connection is being made."""
        if self._line is not None and self._line.ready:
            return True
        if self._connecting is None and not self._closed and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + AGAIN_SECONDS
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return False

    async def _connect(self) -> None:
        line = _Line(self._keepalive)
        name = self._host if self._context else None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: line, self._host, self._port, ssl=self._context, server_hostname=name
                )
                await line.begun.wait()
            if line.ready:
                before, self._line = self._line, line
                if before is not None:
                    before.end("another took its place")
            else:
                self._problem = line.reason
        except TimeoutError:
            self._problem = f"no HTTP/2 within {CONNECT_SECONDS:g} s"
        except (OSError, ValueError) as error:
            # ssl.SSLError, and UnicodeError of a name, too.
            self._problem = str(error) or type(error).__name__
        finally:
            self._connecting = None
            if self._line is not line:
                line.end("it was not made")

    def take_problem(self) -> str:
        """Why no connection could be made, once for each attempt that failed; else empty."""
        problem, self._problem = self._problem, ""
        return problem

    async def call(
        self, message: bytes, metadata: Sequence[tuple[str, str]], timeout: float
    ) -> bytes:
        """The message of the answer, within `timeout` seconds. Raises `Unanswered`."""
        if self._line is None or not self._line.ready:
            raise Unanswered("there is no connection", sent=False)
        block = self._headers + _field(b"grpc-timeout", b"%dm" % max(1, int(timeout * 1000)))
        for name, value in metadata:
            block += _field(name.encode(), value.encode())
        return await self._line.call(block, _MESSAGE.pack(0, len(message)) + message, timeout)

    def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._line is not None:
            self._line.end("closed")


class _Line(asyncio.Protocol):
    """One connection, from its beginning to its end."""

    def __init__(self, keepalive: tuple[float, float] = (30.0, 10.0)) -> None:
        self.ready, self.reason = False, ""
        self.begun = asyncio.Event()
        """The server has said who it is, or it is over."""
        self._keepalive = keepalive
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._buffer = bytearray()
        self._calls: dict[int, _Call] = {}
        self._next = 1
        self._window = self._stream_window = 65535
        self._max_frame = 16384
        self._granted = 0

    async def call(self, block: bytes, body: bytes, timeout: float) -> bytes:
        """One call: its headers, its body. Raises `Unanswered`."""
        if self._transport is None or len(block) > self._max_frame:
            raise Unanswered("the metadata are too long", sent=False)
        loop = asyncio.get_running_loop()
        number, self._next = self._next, self._next + 2
        self.ready = self._next < _LAST_STREAM
        future: asyncio.Future[bytes] = loop.create_future()
        call = self._calls[number] = _Call(future, memoryview(body), self._stream_window)
        call.timer = loop.call_later(timeout, self.end, "no answer in time")
        head = _frame(_HEADERS, _END_HEADERS, number, block)
        self._transport.write(head + self._due(number, call))
        return await future

    def _due(self, number: int, call: _Call) -> bytes:
        """What of a request may leave now, by both windows."""
        frames = b""
        while call.rest:
            size = min(len(call.rest), self._max_frame, self._window, call.window)
            if size <= 0:
                break
            part, call.rest = call.rest[:size], call.rest[size:]
            self._window -= size
            call.window -= size
            frames += _frame(_DATA, 0 if call.rest else _END_STREAM, number, bytes(part))
        return frames

    # -- what comes -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who we are; calls begin when the server has said so too."""
        assert isinstance(transport, asyncio.Transport)
        secured = transport.get_extra_info("ssl_object")
        if self._over or (secured is not None and secured.selected_alpn_protocol() != "h2"):
            transport.abort()
            self.end("the server does not speak HTTP/2")
            return
        self._transport = transport
        plain = transport.get_extra_info("socket")
        if plain is not None:
            _keep_alive(plain, *self._keepalive)
        pairs = (_NO_TABLE, 0), (_NO_PUSH, 0), (_INITIAL_WINDOW, OUR_WINDOW)
        settings = b"".join(_SETTING.pack(*pair) for pair in pairs)
        window = struct.pack(">I", OUR_WINDOW - 65535)
        transport.write(PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, window))

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in pieces."""
        self._buffer += data
        buffer, at = self._buffer, 0
        while len(buffer) - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(buffer, at)
            end = at + _HEAD.size + (high << 8 | low)
            if len(buffer) < end:
                break
            body = bytes(buffer[at + _HEAD.size : end])
            at = end
            try:
                reason = self._take(kind, flags, stream & 0x7FFFFFFF, body)
            except struct.error:
                reason = "a frame is cut short"
            if reason:
                self.end(reason)
                return
        del buffer[:at]

    def connection_lost(self, _reason: Exception | None) -> None:
        """It is over."""
        self.end("the connection ended")

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> str:
        """One frame; returns why the connection is of no more use, if it is not."""
        if kind == _DATA:
            return self._took_data(flags, stream, body)
        if kind == _HEADERS:
            if flags & _END_STREAM and stream in self._calls:
                self._refused(stream, body if flags & _END_HEADERS else b"")
        elif kind == _SETTINGS:
            if not flags & _ACK:
                self._set(body)
        elif kind == _PING:
            if not flags & _ACK:
                self._write(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW:
            self._widen(stream, struct.unpack(">I", body)[0] & 0x7FFFFFFF)
        elif kind == _RESET:
            refused = struct.unpack(">I", body)[0] == _REFUSED_STREAM
            if stream in self._calls:
                self._fail(stream, "the call was reset", sent=not refused)
        elif kind == _GOAWAY:
            last = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
            for number in [each for each in self._calls if each > last]:
                self._fail(number, "the server ends the connection", sent=False)
            return "the server ends the connection"
        elif kind < _CONTINUATION and kind != 2:  # PRIORITY means nothing to us
            return f"a frame of type {kind}"
        return ""

    def _took_data(self, flags: int, stream: int, body: bytes) -> str:
        self._granted += len(body)
        if self._granted > OUR_WINDOW // 2:
            self._write(_frame(_WINDOW, 0, 0, struct.pack(">I", self._granted)))
            self._granted = 0
        call = self._calls.get(stream)
        if call is None:
            return ""
        if flags & _PADDED:
            return "padding"
        call.answer += body
        if len(call.answer) >= _MESSAGE.size:
            compressed, length = _MESSAGE.unpack_from(call.answer)
            if compressed:
                self._fail(stream, "a compressed answer")
            elif len(call.answer) == _MESSAGE.size + length and not call.rest:
                del self._calls[stream]
                _settle(call, bytes(call.answer[_MESSAGE.size :]))
            elif len(call.answer) > _MESSAGE.size + length:
                self._fail(stream, "more than one answer")
        return ""

    def _set(self, body: bytes) -> None:
        for name, value in _SETTING.iter_unpack(body):
            if name == _INITIAL_WINDOW:
                for call in self._calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
            elif name == _MAX_FRAME:
                self._max_frame = min(value, 1 << 20)
        self.ready = True
        self.begun.set()
        self._write(_frame(_SETTINGS, _ACK, 0, b""))
        self._go_on()

    def _widen(self, stream: int, by: int) -> None:
        if not stream:
            self._window += by
        elif stream in self._calls:
            self._calls[stream].window += by
        self._go_on()

    def _go_on(self) -> None:
        """Send what waited for a window."""
        for number, call in self._calls.items():
            if call.rest and (frames := self._due(number, call)):
                self._write(frames)

    def _write(self, frames: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frames)

    def _fail(self, stream: int, reason: str, *, sent: bool = True, login: bool = False) -> None:
        _settle(self._calls.pop(stream), Unanswered(reason, sent=sent, login=login))

    def _refused(self, stream: int, block: bytes) -> None:
        """The headers that end a call without an answer: an error, perhaps a plain refusal."""
        code = _STATUS.search(block)
        if code is None or self._calls[stream].answer:
            self._fail(stream, "an error instead of an answer")
        else:
            login = code[code.lastindex or 0] in _LOGIN
            self._fail(stream, "etcd refused the call", sent=False, login=login)

    def end(self, reason: str) -> None:
        """Use it no more; who waits for an answer is told that there is none."""
        self.ready, self._over, self.reason = False, True, self.reason or reason
        self.begun.set()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            _settle(call, Unanswered(reason, sent=True))


def _keep_alive(plain: socket.socket, idle: float, timeout: float) -> None:
    """As gRPC's pings do: a peer that is dead or out of reach ends the connection (tcp(7))."""
    tcp = socket.IPPROTO_TCP
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(tcp, socket.TCP_KEEPIDLE, max(1, math.ceil(idle)))
    plain.setsockopt(tcp, socket.TCP_KEEPINTVL, max(1, math.ceil(timeout / _KEEPALIVE_PROBES)))
    plain.setsockopt(tcp, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    plain.setsockopt(tcp, socket.TCP_USER_TIMEOUT, max(1, int(timeout * 1000)))


def _settle(call: _Call, answer: bytes | Unanswered) -> None:
    if call.timer is not None:
        call.timer.cancel()
    if call.future.done():
        return
    if isinstance(answer, bytes):
        call.future.set_result(answer)
    else:
        call.future.set_exception(answer)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def _field(name: bytes, value: bytes) -> bytes:
    """A header that no table remembers (RFC 7541 section 6.2.3)."""
    return b"\x10" + _text(name) + _text(value)


def _literal(index: bytes, value: bytes) -> bytes:
    """A header of the static table with another value (RFC 7541 section 6.2.2)."""
    return index + _text(value)


def _text(value: bytes) -> bytes:
    """A string as it is, its length in seven bits or more (RFC 7541 section 5.1)."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    size, rest = b"\x7f", len(value) - 127
    while rest >= 128:
        size += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return size + bytes([rest]) + value
