"""Protobuf of the API, well made and badly."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.kubernetes.fields import NODE, POD
from libcalico.kubernetes.protobuf import (
    Field,
    Fields,
    Kind,
    Unpackable,
    list_fields,
    read,
    read_event,
    read_object,
    read_status,
)
from tests.support.packing import (
    STATUS,
    counted,
    message,
    packed,
    packed_event,
    packed_list,
    sized,
    varint,
)

FLAT: Fields = {
    1: Field("text"),
    2: Field("number", Kind.NUMBER),
    3: Field("flag", Kind.FLAG),
    4: Field("when", Kind.TIME),
    5: Field("texts", Kind.TEXTS),
    6: Field("pairs", Kind.PAIRS),
    40: Field("inner", Kind.MESSAGE, {1: Field("text")}),
}


def trees(fields: Fields) -> st.SearchStrategy[dict[str, Any]]:
    """Trees of such fields, as JSON has them: nothing in them is empty."""
    kinds: dict[Kind, st.SearchStrategy[Any]] = {
        Kind.TEXT: st.text(min_size=1),
        Kind.NUMBER: st.integers(-(2**63), 2**63 - 1).filter(bool),
        Kind.FLAG: st.just(True),
        Kind.TIME: st.datetimes(datetime(1971, 1, 1)).map("{:%Y-%m-%dT%H:%M:%SZ}".format),
        Kind.TEXTS: st.lists(st.text(), min_size=1, max_size=3),
        Kind.PAIRS: st.dictionaries(st.text(), st.text(), min_size=1, max_size=3),
    }
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields.values():
        if field.kind is Kind.MESSAGE:
            parts[field.name] = trees(field.of)
        elif field.kind is Kind.MESSAGES:
            parts[field.name] = st.lists(trees(field.of), min_size=1, max_size=2)
        else:
            parts[field.name] = kinds[field.kind]
    return st.fixed_dictionaries({}, optional=parts)


@given(trees(FLAT), trees(POD), trees(NODE))
def test_what_was_packed_is_read(flat: Any, pod: Any, node: Any) -> None:
    assert read(message(flat, FLAT), FLAT) == flat
    assert read_object(packed(pod, POD), POD) == pod
    assert read_event(packed_event("ADDED", node, NODE), NODE) == {"type": "ADDED", "object": node}


def test_a_list_has_its_revision_and_where_it_goes_on() -> None:
    tree = {"metadata": {"resourceVersion": "9", "continue": "x"}, "items": [{}, {"spec": {}}]}
    assert read_object(packed_list(tree, POD), list_fields(POD)) == tree


def test_what_is_empty_is_left_out_but_for_texts_of_a_map_and_a_list() -> None:
    empty = {"text": "", "number": 0, "flag": False, "pairs": {"a": ""}, "texts": [""]}
    assert read(message(empty, FLAT), FLAT) == {"pairs": {"a": ""}, "texts": [""]}
    assert read(sized(4, b"") + sized(6, b""), FLAT) == {"pairs": {"": ""}}


def test_other_fields_are_stepped_over() -> None:
    others = [
        counted(9, 2**64 - 1),
        varint(9 << 3 | 1) + b"8 bytes!",
        varint(9 << 3 | 5) + b"four",
        sized(2**28, b"x" * 300),
    ]
    data = b"".join(other + sized(1, b"a") for other in others)
    assert read(data, FLAT) == {"text": "a"}


def test_an_error_of_a_watch_is_a_status() -> None:
    status = {"status": "Failure", "message": "too old", "reason": "Expired", "code": 410}
    assert read_event(packed_event("ERROR", status, POD), POD)["object"] == status
    assert read_status(packed(status, STATUS)) == status


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "a number does not end"),
        (b"\x0a\x05abc", "field 1 is longer than what it is in"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number does not end"),
        (b"\x12\x01a", "number: something of known length stands where a number belongs"),
        (b"\x08\x01", "text: a number stands where something of known length belongs"),
        (b"\x0b", "field 1 is of no known type"),
        (b"\x49abc", "it ends in the middle of a field"),
        (b"\x0a\x01\xff", "a text is no UTF-8"),
        (sized(4, counted(1, 2**60)), "a time is none"),
    ],
)
def test_what_is_none_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(Unpackable, match=reason):
        read(data, FLAT)


def test_json_is_no_object_in_protobuf() -> None:
    with pytest.raises(Unpackable, match="does not begin"):
        read_object(b'{"kind":"Pod"}', POD)


@given(st.binary(max_size=200), trees(POD), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_raise_anything_else(noise: bytes, pod: Any, at: int, byte: int) -> None:
    whole = bytearray(packed_event("ADDED", pod, POD))
    if at < len(whole):
        whole[at] = byte
    for data in (noise, bytes(whole), bytes(whole[:at])):
        with contextlib.suppress(Unpackable):
            read_event(data, POD)
