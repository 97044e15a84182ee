"""Building and reading netlink messages with struct, no objects per attribute.

A message is `bytes` with its header: length, type, flags, sequence 0, port 0. The socket fills
the sequence when it sends. Layout: RFC 3549, linux/netlink.h (all native byte order).

Why not pyroute2: docs/dependencies.md, by the figures of tests/bench/netlink.py.
Tested in tests/linux/test_netlink.py.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence

HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_FLAGS, _SEQUENCE = struct.Struct("=H"), struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_DATAGRAM = 1 << 20
_PAD = (b"", b"\0\0\0", b"\0\0", b"\0")

NLM_F_REQUEST, NLM_F_MULTI, NLM_F_ACK, NLM_F_ECHO = 0x1, 0x2, 0x4, 0x8
NLM_F_DUMP_INTR = 0x10
NLM_F_DUMP = 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_APPEND = 0x100, 0x200, 0x400, 0x800
NLA_F_NESTED, NLA_F_NET_BYTEORDER = 0x8000, 0x4000
NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN = 2, 3, 4

_NUMBER = struct.Struct("=HHI")

Attributes = dict[int, bytes]


def message(kind: int, flags: int, body: bytes) -> bytes:
    """A whole request of this type; `flags` come on top of NLM_F_REQUEST."""
    return HEADER.pack(HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 0, 0) + body


def pack_batch(requests: Sequence[bytes], base: int, acknowledged: int) -> bytearray:
    """Requests as one datagram, numbered from `base` on; one of them asks to be acknowledged."""
    batch = bytearray()
    for place, request in enumerate(requests):
        start = len(batch)
        batch += request
        if len(batch) & 3:
            batch += bytes(-len(batch) & 3)
        _SEQUENCE.pack_into(batch, start + 8, (base + place) & 0xFFFFFFFF)
        if place == acknowledged:
            _FLAGS.pack_into(batch, start + 6, _FLAGS.unpack_from(request, 6)[0] | NLM_F_ACK)
    return batch


def in_batches(messages: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """The messages in parts that fit one datagram, each with the index of its first."""
    first = size = 0
    for index, message in enumerate(messages):
        if size and size + len(message) > _DATAGRAM:
            yield first, messages[first:index]
            first, size = index, 0
        size += (len(message) + 3) & ~3
    if size:
        yield first, messages[first:]


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    size = len(value) + 4
    if size > 0xFFFF:
        raise ValueError(f"netlink attribute {kind}: {len(value)} bytes, at most 65531 fit")
    return _ATTRIBUTE.pack(size, kind) + value + _PAD[size & 3]


def nest(kind: int, *parts: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(parts))


def u8(kind: int, value: int) -> bytes:
    """An attribute with one byte."""
    return attribute(kind, struct.pack("=B", value))


def u32(kind: int, value: int) -> bytes:
    """An attribute with an unsigned 32-bit number in native byte order."""
    return _NUMBER.pack(8, kind, value)


def u64(kind: int, value: int) -> bytes:
    """An attribute with an unsigned 64-bit number in native byte order."""
    return attribute(kind, struct.pack("=Q", value))


def text(kind: int, value: str) -> bytes:
    """An attribute with a zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def iterate_attributes(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(type without flag bits, value) of each attribute from `offset` on."""
    end = len(data)
    while offset + 4 <= end:
        size, kind = _ATTRIBUTE.unpack_from(data, offset)
        if size < 4 or offset + size > end:
            return
        yield kind & 0x3FFF, data[offset + 4 : offset + size]
        offset += (size + 3) & ~3


def parse_attributes(data: bytes, offset: int = 0) -> Attributes:
    """Attributes by type; of a repeated type the last one stays."""
    # As `iterate_attributes`, which as a generator takes twice as long.
    attributes: Attributes = {}
    end = len(data)
    unpack = _ATTRIBUTE.unpack_from
    while offset + 4 <= end:
        size, kind = unpack(data, offset)
        if size < 4 or offset + size > end:
            break
        attributes[kind & 0x3FFF] = data[offset + 4 : offset + size]
        offset += (size + 3) & ~3
    return attributes


def first_attribute(data: bytes, kind: int, offset: int = 0) -> bytes | None:
    """The value of the first attribute of a type; what lies behind it is not looked at."""
    for number, value in iterate_attributes(data, offset):
        if number == kind:
            return value
    return None


def as_text(value: bytes) -> str:
    """A string attribute's value without its zero byte."""
    return value.split(b"\0", 1)[0].decode(errors="replace")


def as_uint(value: bytes) -> int:
    """A 1, 2, 4 or 8-byte unsigned number in native byte order."""
    return int.from_bytes(value, sys.byteorder)
