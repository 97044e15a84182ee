"""HTTP/2 by hand, as much of it as a client of one etcd member needs (RFC 9113): the frames.

Headers that come are not read here, so there is no HPACK decoder; those that leave use no table
(RFC 7541 section 6.2). Two kinds of connection are made of this: one that the event loop reads
(http2.py), and one that its caller waits for (blocking_call.py).
Pure. Tested in tests/libcalico/test_etcd_stream.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OUR_WINDOW = 1 << 24
"""Bytes of one stream, and of all streams, until more are granted."""
FRAME_BYTES = 1 << 14
"""The longest frame that we take: peers are not told that we took longer ones."""
FIRST_WINDOW = 65535
"""What may leave on a connection or a stream until more is granted."""

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
REFUSED_STREAM, CANCEL = 7, 8
MESSAGE = struct.Struct(">BI")
"""What precedes each message of gRPC: whether it is compressed, its length."""
SETTING = struct.Struct(">HI")
INITIAL_WINDOW, MAX_FRAME = 4, 5
_NO_TABLE, _NO_PUSH = 1, 2
_HEAD = struct.Struct(">HBBBI")  # length (16 and 8 bits), type, flags, stream

Metadata = Sequence[tuple[str, str]]
Frame = tuple[int, int, int, bytes]
"""Type, flags, stream, body."""


class FrameTooLong(Exception):
    """Longer than a peer may send that was not told otherwise (RFC 9113 section 4.2)."""


class Cutter:
    """Cuts what comes into frames. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def frames(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with these bytes; all of them must be taken.

        Raises FrameTooLong.
        """
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while size - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > FRAME_BYTES:
                raise FrameTooLong
            end = at + _HEAD.size + length
            if size < end:
                break
            body = data[at + _HEAD.size : end]
            at = end
            yield kind, flags, stream & 0x7FFFFFFF, body
        self._rest = data[at:]


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """One frame (RFC 9113 section 4.1)."""
    return _HEAD.pack(len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def grant(stream: int, size: int) -> bytes:
    """That so many bytes more may come, of a stream or (0) of all."""
    return frame(WINDOW, 0, stream, struct.pack(">I", size))


def greeting(window: int) -> bytes:
    """What a client begins with: a window of this size for each stream, and for all of them."""
    pairs = (_NO_TABLE, 0), (_NO_PUSH, 0), (INITIAL_WINDOW, window)
    settings = b"".join(SETTING.pack(*pair) for pair in pairs)
    return PREFACE + frame(SETTINGS, 0, 0, settings) + grant(0, window - FIRST_WINDOW)


def call_headers(host: str, port: int, path: bytes, *, secure: bool) -> bytes:
    """What every call of a method begins with."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return (
        # :method POST, :scheme http or https (RFC 7541 appendix A)
        (b"\x83\x87" if secure else b"\x83\x86")
        + _literal(b"\x04", path)
        + _literal(b"\x01", authority.encode())
        + _literal(b"\x0f\x10", b"application/grpc")
        + field(b"te", b"trailers")
    )


def message(body: bytes) -> bytes:
    """A message of gRPC, not compressed."""
    return MESSAGE.pack(0, len(body)) + body


def fields(metadata: Metadata) -> bytes:
    """The metadata of a call as headers."""
    return b"".join(field(name.encode(), value.encode()) for name, value in metadata)


def field(name: bytes, value: bytes) -> bytes:
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
