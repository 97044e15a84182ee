"""Objects in protobuf as the API packs them: `libcalico.kubernetes.protobuf` the other way.

Only for fields that are read. A real server's bytes: tests/apiserver/test_kdd_protobuf.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from libcalico.kubernetes.protobuf import MAGIC, Field, Fields, Kind, list_fields

STATUS: Fields = {
    2: Field("status"),
    3: Field("message"),
    4: Field("reason"),
    6: Field("code", Kind.NUMBER),
}
Tree = Mapping[str, Any]


def varint(value: int) -> bytes:
    """A number of variable length."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def sized(number: int, value: bytes) -> bytes:
    """A field of known length."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def counted(number: int, value: int) -> bytes:
    """A field that is a number."""
    return varint(number << 3) + varint(value)


def message(tree: Tree, fields: Fields) -> bytes:
    """A message with those fields of a tree that it has."""
    return b"".join(
        part
        for number, field in sorted(fields.items())
        if field.name in tree
        for part in _field(number, field, tree[field.name])
    )


def packed(tree: Tree, fields: Fields) -> bytes:
    """An object as the body of an answer."""
    kind = sized(1, sized(1, b"v1") + sized(2, b"Pod"))
    return MAGIC + kind + sized(2, message(tree, fields)) + sized(3, b"") + sized(4, b"")


def packed_list(tree: Tree, fields: Fields) -> bytes:
    """A list as the body of an answer."""
    return packed(tree, list_fields(fields))


def packed_event(what: str, tree: Tree, fields: Fields) -> bytes:
    """One event of a watch, without its length."""
    content = packed(tree, STATUS if what == "ERROR" else fields)
    return sized(1, what.encode()) + sized(2, sized(1, content))


def _field(number: int, field: Field, value: Any) -> Iterator[bytes]:
    match field.kind:
        case Kind.TEXT:
            yield sized(number, (value or "").encode())
        case Kind.TEXTS:
            yield from (sized(number, text.encode()) for text in value or ())
        case Kind.PAIRS:
            for key, text in (value or {}).items():
                yield sized(number, sized(1, key.encode()) + sized(2, text.encode()))
        case Kind.MESSAGE:
            yield sized(number, message(value or {}, field.of))
        case Kind.MESSAGES:
            yield from (sized(number, message(one, field.of)) for one in value or ())
        case Kind.TIME:
            if value:
                seconds = int(datetime.fromisoformat(value).timestamp())
                yield sized(number, counted(1, seconds) + counted(2, 0))
        case Kind.NUMBER | Kind.FLAG:
            yield counted(number, int(value or 0))
