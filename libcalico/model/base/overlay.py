"""Lays a fresh document over the one that it was read from, so that unknown fields survive.

Known fields come from the fresh document (a field absent there was removed on purpose);
members that the struct type does not know come, byte for byte, from the old one, behind
the known ones. Items of a list of structs keep their unknown members when they are found
again: equal in all known fields, or at the same place in a list of the same length.

An empty object where the fresh document has nothing means the same and stays: Calico up to
v3.32 stores `"source":{}` in every rule, v3.33 leaves it out.
Tested in tests/libcalico/test_codec_kinds.py.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Union, get_args, get_origin

import msgspec

from libcalico.errors import NO_DOCUMENT

_RAW_MAP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def struct_fields(type_: type[msgspec.Struct]) -> dict[str, object]:
    """The JSON names of a struct type's fields and their types."""
    hints = typing.get_type_hints(type_)
    return {
        encoded: hints[name]
        for name, encoded in zip(
            type_.__struct_fields__, type_.__struct_encode_fields__, strict=True
        )
    }


@cache
def item_struct(type_: object) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct inside a field's type and whether the field is a list of them."""
    origin = get_origin(type_)
    if origin in (Union, types.UnionType):
        members = [item_struct(part) for part in get_args(type_)]
        return next((member for member in members if member[0] is not None), (None, False))
    if origin is list:
        inner, many = item_struct(get_args(type_)[0])
        return (inner, True) if not many else (None, False)
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_, False
    return None, False


def overlay(type_: type[msgspec.Struct], fresh: bytes, base: bytes) -> bytes:
    """`fresh` with the unknown members of `base`; `fresh` itself where base is no object."""
    new = _RAW_MAP.decode(fresh)
    try:
        old = _RAW_MAP.decode(base)
    except NO_DOCUMENT:
        return fresh
    known = struct_fields(type_)
    changed = out_of_place = False
    for name, value in old.items():
        if name not in known:
            new[name] = value
            changed = True
            continue
        inner, many = item_struct(known[name])
        if inner is None:
            continue
        if name not in new:
            if bytes(value) == b"{}":
                new[name] = value
                changed = out_of_place = True
            continue
        merge = _overlay_list if many else overlay
        merged = merge(inner, bytes(new[name]), bytes(value))
        if merged != new[name]:
            new[name] = msgspec.Raw(merged)
            changed = True
    if out_of_place:
        places = {name: place for place, name in enumerate(known)}
        new = dict(sorted(new.items(), key=lambda member: places.get(member[0], len(places))))
    return msgspec.json.encode(new) if changed else fresh


def _overlay_list(type_: type[msgspec.Struct], fresh: bytes, base: bytes) -> bytes:
    new = _RAW_LIST.decode(fresh)
    try:
        old = [bytes(item) for item in _RAW_LIST.decode(base)]
    except NO_DOCUMENT:
        return fresh
    projected = [_project(type_, item) for item in old]
    if all(projection is None for projection in projected):
        return fresh
    same_length = len(new) == len(old)
    out: list[msgspec.Raw] = []
    for index, item in enumerate(new):
        plain = bytes(item)
        value = _project(type_, plain)
        match = next(
            (old[i] for i, one in enumerate(projected) if one is not None and one == value),
            old[index] if same_length else None,
        )
        out.append(msgspec.Raw(overlay(type_, plain, match)) if match is not None else item)
    return msgspec.json.encode(out)


def _project(type_: type[msgspec.Struct], raw: bytes) -> msgspec.Struct | None:
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.ValidationError:
        return None
