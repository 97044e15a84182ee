"""Objects of the API in protobuf, as trees of the fields that are asked for.

The API sends its own kinds in protobuf to who accepts that: a third fewer bytes than JSON. Every
other field is stepped over unread, so a reader of few fields makes few objects. A tree has what
the same fields have in JSON: a field that is empty, zero or false is left out, as there.

Pure. Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding and
https://protobuf.dev/programming-guides/encoding. Tested in tests/libcalico/test_protobuf.py, and
against the API's JSON in tests/apiserver/test_kdd_protobuf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

Tree = dict[str, Any]
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPT = f"{PROTOBUF}, application/json"
"""A server that has no protobuf of a kind answers in JSON."""
METADATA, METADATA_LIST = (
    f"{PROTOBUF};as={kind};g=meta.k8s.io;v=v1, {ACCEPT}"
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
)
"""The metadata of objects alone: of a watch, of a list."""
MAGIC = b"k8s\0"
VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5


class Unpackable(Exception):
    """The bytes are no such message."""


class Kind(Enum):
    """What a field is in a tree."""

    TEXT = "text"
    RAW = "raw"
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"
    TEXTS = "texts"
    PAIRS = "pairs"
    MESSAGE = "message"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is read. `of`: the fields of a message."""

    name: str
    kind: Kind = Kind.TEXT
    of: Mapping[int, Field] = field(default_factory=dict)


Fields = Mapping[int, Field]
"""By the number of each."""
_PAIR: Fields = {1: Field("key"), 2: Field("value")}
_UNKNOWN: Fields = {2: Field("raw", Kind.RAW)}
"""`runtime.Unknown`, in which the API puts an object."""
_EVENT: Fields = {
    1: Field("type"),
    2: Field("object", Kind.MESSAGE, {1: Field("raw", Kind.RAW)}),
}
_STATUS: Fields = {
    2: Field("status"),
    3: Field("message"),
    4: Field("reason"),
    6: Field("code", Kind.NUMBER),
}


def is_packed(answer: bytes) -> bool:
    """Whether the body of an answer is protobuf; else it is JSON."""
    return answer.startswith(MAGIC)


def read_object(answer: bytes, fields: Fields) -> Tree:
    """The object in the body of an answer. Raises Unpackable."""
    if not is_packed(answer):
        raise Unpackable("it does not begin as the API's protobuf does")
    return read(read(answer[len(MAGIC) :], _UNKNOWN).get("raw", b""), fields)


def read_status(answer: bytes) -> Tree:
    """The `Status` in the body of an answer. Raises Unpackable."""
    return read_object(answer, _STATUS)


def read_event(frame: bytes, fields: Fields) -> Tree:
    """One event of a watch: `type` and `object`; that of an error is a `Status`.

    Raises Unpackable.
    """
    event = read(frame, _EVENT)
    what = event.get("type", "")
    raw = event.get("object", {}).get("raw", b"")
    return {"type": what, "object": read_object(raw, _STATUS if what == "ERROR" else fields)}


def list_fields(items: Fields) -> Fields:
    """The fields of a list of such objects."""
    meta: Fields = {2: Field("resourceVersion"), 3: Field("continue")}
    return {1: Field("metadata", Kind.MESSAGE, meta), 2: Field("items", Kind.MESSAGES, items)}


def read(data: bytes, fields: Fields) -> Tree:
    """A message. Raises Unpackable."""
    tree: Tree = {}
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        wire = tag & 7
        if wire == SIZED:
            size = data[at] if at < end else 128
            if size < 128:
                at += 1
            else:
                size, at = _varint(data, at)
            begin, at = at, at + size
            if at > end:
                raise Unpackable(f"field {tag >> 3} is longer than what it is in")
            if known := fields.get(tag >> 3):
                _put(tree, known, data[begin:at])
        elif wire == VARINT:
            value, at = _varint(data, at)
            if known := fields.get(tag >> 3):
                _put_number(tree, known, value)
        elif wire in (EIGHT, FOUR):
            at += 8 if wire == EIGHT else 4
        else:
            raise Unpackable(f"field {tag >> 3} is of no known type ({wire})")
    if at > end:
        raise Unpackable("it ends in the middle of a field")
    return tree


def _put(tree: Tree, field: Field, value: bytes) -> None:
    """Put in a field of known length; what is empty is left out, as in JSON."""
    name, kind = field.name, field.kind
    if kind is Kind.TEXT:
        if value:
            tree[name] = _text(value)
    elif kind is Kind.PAIRS:
        pair = read(value, _PAIR)
        tree.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
    elif kind is Kind.MESSAGE:
        tree[name] = read(value, field.of)
    elif kind is Kind.MESSAGES:
        tree.setdefault(name, []).append(read(value, field.of))
    elif kind is Kind.TEXTS:
        tree.setdefault(name, []).append(_text(value))
    elif kind is Kind.TIME:
        if when := _time(value):
            tree[name] = when
    elif kind is Kind.RAW:
        tree[name] = value
    else:
        raise Unpackable(f"{name}: something of known length stands where a number belongs")


def _put_number(tree: Tree, field: Field, value: int) -> None:
    if field.kind is Kind.FLAG:
        if value:
            tree[field.name] = True
    elif field.kind is not Kind.NUMBER:
        raise Unpackable(f"{field.name}: a number stands where something of known length belongs")
    elif value:
        tree[field.name] = value - (1 << 64) if value >> 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Unpackable("a number does not end")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as problem:
        raise Unpackable(f"a text is no UTF-8: {problem}") from None


def _time(value: bytes) -> str:
    """A time as JSON has it, in whole seconds; empty for none."""
    seconds = read(value, {1: Field("seconds", Kind.NUMBER)}).get("seconds")
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError) as problem:
        raise Unpackable(f"a time is none: {problem}") from None
