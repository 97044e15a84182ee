"""The messages of etcd's that a short command sends and reads, without protobuf's library.

Importing that library and the generated stubs (proto/etcd.proto) costs more than the whole of a
command that asks etcd twice. These are the same messages by hand: what is asked for, and of an
answer what is read. Fields that are not read are passed over, as protobuf does.
Pure. Tested in tests/libcalico/test_etcd_messages.py against the stubs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_VERSION, _MOD = 0, 2
"""Targets of a comparison."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A key with its value (mvccpb.KeyValue)."""

    key: bytes
    value: bytes
    revision: int


class Range(msgspec.Struct, frozen=True, gc=False):
    """What a range holds (RangeResponse). `total`: also of keys beyond the limit."""

    stored: list[Stored]
    more: bool
    total: int
    revision: int


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What came of a transaction (TxnResponse): a range for each operation that was one."""

    succeeded: bool
    ranges: list[Range]
    revision: int


# -- what is sent ------------------------------------------------------------------------------


def range_request(key: bytes, end: bytes = b"", limit: int = 0, revision: int = 0) -> bytes:
    """RangeRequest: one key, or those from `key` to before `end`."""
    return _bytes(1, key) + _bytes(2, end) + _number(3, limit) + _number(4, revision)


def reading(key: bytes, revision: int = 0) -> bytes:
    """RequestOp: read a key."""
    return _bytes(1, range_request(key, revision=revision))


def putting(key: bytes, value: bytes) -> bytes:
    """RequestOp: write a key."""
    return _bytes(2, _bytes(1, key) + _bytes(2, value))


def deleting(key: bytes) -> bytes:
    """RequestOp: delete a key."""
    return _bytes(3, _bytes(1, key))


def comparing(key: bytes, revision: int) -> bytes:
    """Compare: a key has this modification revision; 0: there is no such key."""
    if not revision:
        # The one of its fields whose presence counts, so it is written although it is 0.
        return _number(2, _VERSION) + _bytes(3, key) + b"\x20\x00"
    return _number(2, _MOD) + _bytes(3, key) + _number(6, revision)


def transaction(
    compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()
) -> bytes:
    """TxnRequest: the operations of `success` where all comparisons hold, else of `failure`."""
    return b"".join(
        _tag(number, _LENGTH) + _varint(len(one)) + one
        for number, parts in ((1, compares), (2, success), (3, failure))
        for one in parts
    )


def _bytes(number: int, value: bytes) -> bytes:
    return _tag(number, _LENGTH) + _varint(len(value)) + value if value else b""


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value) if value else b""


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


# -- what is read; each raises ValueError or IndexError for what is no such message ----------------


def range_of(message: bytes) -> Range:
    """RangeResponse."""
    stored, more, count, revision = list[Stored](), 0, 0, 0
    for number, value in _fields(message):
        if number == 1:
            revision = _revision(value)
        elif number == 2:
            stored.append(_stored(value))
        elif number == 3:
            more = _int(value)
        elif number == 4:
            count = _int(value)
    return Range(stored, bool(more), count, revision)


def outcome_of(message: bytes) -> Outcome:
    """TxnResponse."""
    succeeded, revision, ranges = 0, 0, list[Range]()
    for number, value in _fields(message):
        if number == 1:
            revision = _revision(value)
        elif number == 2:
            succeeded = _int(value)
        elif number == 3:
            ranges += [range_of(_raw(one)) for inner, one in _fields(_raw(value)) if inner == 1]
    return Outcome(bool(succeeded), ranges, revision)


def _revision(header: int | bytes) -> int:
    return next((_int(value) for number, value in _fields(_raw(header)) if number == 3), 0)


def _stored(message: int | bytes) -> Stored:
    key, value, revision = b"", b"", 0
    for number, one in _fields(_raw(message)):
        # Their types without calls of `_raw` and `_int`: there may be thousands of these.
        if number == 1 and isinstance(one, bytes):
            key = one
        elif number == 3 and isinstance(one, int):
            revision = one
        elif number == 5 and isinstance(one, bytes):
            value = one
    return Stored(key, value, revision)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers, and bytes that may be a message."""
    at, end = 0, len(message)
    while at < end:
        # Nearly all tags and many numbers are one byte long: no call for those.
        tag, at = message[at], at + 1
        if tag >= 0x80:
            tag, at = _long(message, tag, at)
        kind = tag & 7
        if kind not in (_VARINT, _LENGTH):
            at += {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind, end)
            continue
        value, at = message[at], at + 1
        if value >= 0x80:
            value, at = _long(message, value, at)
        if kind == _VARINT:
            yield tag >> 3, value
        else:
            start, at = at, at + value
            yield tag >> 3, message[start:at]
    if at != end:
        raise ValueError("a message is cut short")


def _long(message: bytes, first: int, at: int) -> tuple[int, int]:
    """A number of several bytes, whose first was read, and where it ends."""
    value, shift = first & 0x7F, 7
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes instead of a number")
    return value


def _raw(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number instead of bytes")
    return value
