"""An HTTP/2 connection that the event loop reads, as a client of one etcd member needs it.

The beginning and the end of a connection, and what leaves on it within the windows that the server
grants; its frames are those of frames.py. What they mean is the matter of who builds on this: one
answer for one request (direct_call.py), many for one (stream.py). Why not a library:
docs/dependencies.md, by the figures of tests/bench/etcd_calls.py.
Tested in tests/libcalico/test_etcd_express.py and test_etcd_stream.py there.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from libcalico.datastore.etcd.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME_BYTES,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    MAX_FRAME,
    MESSAGE,
    OUR_WINDOW,
    PADDED,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RESET,
    SETTING,
    SETTINGS,
    WINDOW,
    Cutter,
    Frame,
    FrameTooLong,
    Metadata,
    call_headers,
    field,
    fields,
    frame,
    grant,
    greeting,
    message,
)
from libcalico.process import tls_space

__all__ = [
    "ACK",
    "AGAIN_SECONDS",
    "CANCEL",
    "CONNECT_SECONDS",
    "DATA",
    "END_HEADERS",
    "END_STREAM",
    "GOAWAY",
    "HEADERS",
    "KEEPALIVE",
    "MESSAGE",
    "OUR_WINDOW",
    "PADDED",
    "PING",
    "PREFACE",
    "READ_BYTES",
    "RESET",
    "SETTINGS",
    "WINDOW",
    "Cutter",
    "Frame",
    "FrameTooLong",
    "Metadata",
    "Peer",
    "Sending",
    "Wire",
    "field",
    "fields",
    "frame",
    "grant",
    "message",
]

CONNECT_SECONDS = 3.0
AGAIN_SECONDS = 5.0
"""So long nobody tries to connect anew after a failure."""
READ_BYTES = 1 << 16
KEEPALIVE = (6.0, 3.0)
"""Seconds of silence after which a peer is probed, and within which it must answer
(`DatastoreConfig`)."""

_PRIORITY = 2
_LAST_STREAM = 1 << 30
_KEEPALIVE_PROBES = 3


@dataclass(frozen=True, slots=True)
class Peer:
    """An etcd member. `context`: it speaks TLS. `keepalive`: seconds of silence after which it
    is probed, and seconds after which one that does not answer is dead.
    """

    host: str
    port: int
    context: ssl.SSLContext | None = None
    keepalive: tuple[float, float] = KEEPALIVE

    def headers(self, path: bytes) -> bytes:
        """What every call of a method begins with."""
        return call_headers(self.host, self.port, path, secure=self.context is not None)

    async def reach(self, wire: Wire[Any]) -> str:
        """Connect; returns why there is no connection, empty when it is ready."""
        name = self.host if self.context else None
        tls_space.small()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: wire, self.host, self.port, ssl=self.context, server_hostname=name
                )
                await wire.begun.wait()
        except TimeoutError:
            return f"no HTTP/2 within {CONNECT_SECONDS:g} s"
        except (OSError, ValueError) as error:
            # ssl.SSLError, and UnicodeError of a name, too.
            return str(error) or type(error).__name__
        return "" if wire.ready else wire.reason


class Sending:
    """A stream of ours: what of it must still leave, and how much of it the server takes.

    `ends`: nothing follows behind `rest`.
    """

    __slots__ = ("ends", "rest", "window")

    def __init__(self, body: bytes, *, ends: bool) -> None:
        self.rest, self.ends, self.window = memoryview(body), ends, 0


S = TypeVar("S", bound=Sending)


class Wire(asyncio.BufferedProtocol, Generic[S]):
    """One connection, from its beginning to its end.

    `ready`: streams can begin; `begun`: the server has said who it is, or it is over; `reason`:
    why it is over.
    """

    def __init__(self, keepalive: tuple[float, float] = KEEPALIVE) -> None:
        self.ready, self.reason = False, ""
        self.begun = asyncio.Event()
        self.streams: dict[int, S] = {}
        self._keepalive = keepalive
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._space = memoryview(bytearray(READ_BYTES))
        self._cut = Cutter()
        self._next = 1
        self._window = self._stream_window = FIRST_WINDOW
        self._max_frame = FRAME_BYTES
        self._granted = 0

    def begin(self, block: bytes, stream: S) -> int:
        """Send the headers of a new stream, and of its body what may leave; returns its number.

        Raises ValueError when it cannot begin.
        """
        if self._transport is None or not self.ready:
            raise ValueError("there is no connection")
        if len(block) > self._max_frame:
            raise ValueError("the metadata are too long")
        number, self._next = self._next, self._next + 2
        self.ready = self._next < _LAST_STREAM
        stream.window = self._stream_window
        self.streams[number] = stream
        head = frame(HEADERS, END_HEADERS, number, block)
        self._transport.write(head + self._due(number, stream))
        return number

    def go_on(self) -> None:
        """Send what waited for a window, or was added."""
        for number, stream in self.streams.items():
            if stream.rest and (frames := self._due(number, stream)):
                self.write(frames)

    def _due(self, number: int, stream: Sending) -> bytes:
        """What of a stream may leave now, by both windows."""
        frames = b""
        while stream.rest:
            size = min(len(stream.rest), self._max_frame, self._window, stream.window)
            if size <= 0:
                break
            part, stream.rest = stream.rest[:size], stream.rest[size:]
            self._window -= size
            stream.window -= size
            last = stream.ends and not stream.rest
            frames += frame(DATA, END_STREAM if last else 0, number, bytes(part))
        return frames

    def write(self, frames: bytes) -> None:
        """Send frames as they are, if there is still a connection."""
        if self._transport is not None:
            self._transport.write(frames)

    def end(self, reason: str) -> None:
        """Use it no more; who waits for something is told why."""
        self.ready, self._over, self.reason = False, True, self.reason or reason
        self.begun.set()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.broke(stream, reason)

    # -- what the one who builds on this makes of it ---------------------------------------------

    def broke(self, stream: S, reason: str, *, refused: bool = False) -> None:
        """A stream is over without its end; `refused`: the server has not begun with it."""
        raise NotImplementedError

    def took_data(self, number: int, stream: S, body: bytes) -> None:
        """Bytes of a stream."""
        raise NotImplementedError

    def took_end(self, number: int, stream: S, block: bytes) -> None:
        """The server ended a stream. `block`: its last headers, if they came whole."""
        raise NotImplementedError

    # -- what comes -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who we are; streams begin when the server has said so too."""
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
        transport.write(greeting(OUR_WINDOW))

    def get_buffer(self, _hint: int) -> memoryview:
        """Where the next bytes go."""
        return self._space

    def buffer_updated(self, size: int) -> None:
        """So many bytes came."""
        self.data_received(bytes(self._space[:size]))

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in pieces."""
        try:
            for one in self._cut.frames(data):
                reason = self._take(*one)
                if reason:
                    self.end(reason)
                if self._over:
                    return
        except struct.error:
            self.end("a frame is cut short")
        except FrameTooLong:
            self.end("a frame that is longer than we take")

    def connection_lost(self, _reason: Exception | None) -> None:
        """It is over."""
        self.end("the connection ended")

    def _take(self, kind: int, flags: int, number: int, body: bytes) -> str:
        """One frame; returns why the connection is of no more use, if it is not."""
        if kind == DATA:
            return self._data(flags, number, body)
        if kind == HEADERS:
            if flags & END_STREAM and (ended := self.streams.pop(number, None)) is not None:
                self.took_end(number, ended, body if flags & END_HEADERS else b"")
        elif kind == SETTINGS:
            if not flags & ACK:
                self._set(body)
        elif kind == PING:
            if not flags & ACK:
                self.write(frame(PING, ACK, 0, body))
        elif kind == WINDOW:
            self._widen(number, struct.unpack(">I", body)[0] & 0x7FFFFFFF)
        elif kind == RESET:
            refused = struct.unpack(">I", body)[0] == REFUSED_STREAM
            if (reset := self.streams.pop(number, None)) is not None:
                self.broke(reset, "the call was reset", refused=refused)
        elif kind == GOAWAY:
            last = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
            for each in [each for each in self.streams if each > last]:
                self.broke(self.streams.pop(each), "the server ends the connection", refused=True)
            return "the server ends the connection"
        elif kind < CONTINUATION and kind != _PRIORITY:
            return f"a frame of type {kind}"
        return ""

    def _data(self, flags: int, number: int, body: bytes) -> str:
        self._granted += len(body)
        if self._granted > OUR_WINDOW // 2:
            self.write(grant(0, self._granted))
            self._granted = 0
        stream = self.streams.get(number)
        if stream is None:
            return ""
        if flags & PADDED:
            return "padding"
        self.took_data(number, stream, body)
        if flags & END_STREAM and self.streams.pop(number, None) is not None:
            self.took_end(number, stream, b"")
        return ""

    def _set(self, body: bytes) -> None:
        for name, value in SETTING.iter_unpack(body):
            if name == INITIAL_WINDOW:
                for stream in self.streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
            elif name == MAX_FRAME:
                self._max_frame = min(value, 1 << 20)
        self.ready = True
        self.begun.set()
        self.write(frame(SETTINGS, ACK, 0, b""))
        self.go_on()

    def _widen(self, number: int, by: int) -> None:
        if not number:
            self._window += by
        elif number in self.streams:
            self.streams[number].window += by
        self.go_on()


def _keep_alive(plain: socket.socket, idle: float, timeout: float) -> None:
    """As gRPC's pings do: a peer that is dead or out of reach ends the connection (tcp(7))."""
    tcp = socket.IPPROTO_TCP
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(tcp, socket.TCP_KEEPIDLE, max(1, math.ceil(idle)))
    plain.setsockopt(tcp, socket.TCP_KEEPINTVL, max(1, math.ceil(timeout / _KEEPALIVE_PROBES)))
    plain.setsockopt(tcp, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    plain.setsockopt(tcp, socket.TCP_USER_TIMEOUT, max(1, int(timeout * 1000)))
