"""Frames: a 4-byte big-endian length, and that many bytes of JSON, at most `MAX_FRAME`.

The JSON is one message of `node_api.Message`. Pure; FRM-1 and FRM-2 are those of
`libcalico.local.framing`. Tested in tests/libcalico/test_framing.py and test_attending.py there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import get_args

import msgspec

from libcalico.errors import NO_DOCUMENT, MuslinError
from libcalico.local.node_api import Message

MAX_FRAME = 2 * 1024 * 1024
HEADER = struct.Struct("!I")


class ProtocolError(MuslinError):
    """The peer broke the framing: a frame too long, not JSON, or a known message malformed."""


class _Tagged(msgspec.Struct):
    """Only the tag, to tell a message of a later release from a malformed one."""

    type: str


_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ENCODER = msgspec.json.Encoder()
_TAG_DECODER = msgspec.json.Decoder(_Tagged)
_TAGS = frozenset(str(member.__struct_config__.tag) for member in get_args(Message))


def encode(message: Message) -> bytes:
    """The frame of a message, length included. Raises `ProtocolError` beyond `MAX_FRAME`."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise ProtocolError(
            f"{type(message).__name__} is {len(body)} bytes long: "
            f"a frame holds at most {MAX_FRAME}; send it in several"
        )
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> Message | None:
    """The message of a frame's body; None if its tag is unknown here (FRM-1)."""
    try:
        return _DECODER.decode(body)
    except NO_DOCUMENT as error:
        try:
            tag = _TAG_DECODER.decode(body).type
        except NO_DOCUMENT:
            raise ProtocolError(f"a frame is not a tagged JSON message: {error}") from error
        if tag in _TAGS:
            raise ProtocolError(f"message {tag!r} is malformed: {error}") from error
        return None


def length_of(header: bytes | bytearray) -> int:
    """The length of a frame's body. Raises `ProtocolError` beyond `MAX_FRAME` (FRM-2)."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise ProtocolError(
            f"a frame of {length} bytes was announced: at most {MAX_FRAME} are allowed"
        )
    return int(length)


class Cutter:
    """Cuts bytes into frames. Pure but for the callback."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Pass on the messages that these bytes complete. Raises `ProtocolError` (FRM-2)."""
        rest, at = self._rest, 0
        rest += data
        while len(rest) - at >= HEADER.size:
            start = at + HEADER.size
            end = start + length_of(rest[at:start])
            if len(rest) < end:
                break
            message = decode(bytes(rest[start:end]))
            at = end
            if message is not None:
                self._on_message(message)
        del rest[:at]
