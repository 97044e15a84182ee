"""Every field of a tree that its struct type does not have, and every value of a wrong type.

The decoder stops at the first wrong value, but an operator wants to see all of them at once. So
this module compares a tree that was written by hand with the struct types, which stay the only
description of the fields. `libcalico.model.validation.validate` judges the values.

Invariant SHAPE-1: a tree without problems decodes (tests/libcalico/test_shape.py).
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin, get_type_hints

import msgspec

from libcalico.errors import InvalidValue
from libcalico.model.base.numorstring import as_number

_NAMES: dict[object, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}
UNKNOWN_FIELD = "there is no such field"
_INT64 = 2**63
_INDEX = re.compile(r"\[[^]]*\]")
_AS_NUMBERS = frozenset({"asNumber", "localASNumber", "asPathPrefix", "prefix"})
"""Fields whose numbers may be text (`"65000"`, `"1.10"`): the structs refuse any other text."""


def shape_problems(
    type_: type[msgspec.Struct], tree: Mapping[str, object], subject: str = ""
) -> list[InvalidValue]:
    """Unknown fields, wrong types and missing fields of a tree. Null counts as absent."""
    return [
        InvalidValue(path, shown(value), rule, subject)
        for path, value, rule in _struct(type_, tree, "")
    ]


def fields_beside(type_: type[msgspec.Struct], path: str) -> list[str]:
    """The fields that the struct at `path` (`spec.ingress[0].acton`) has where its last one stands.

    Empty where no struct of `type_` has such a place.
    """
    *outer, _ = _INDEX.sub("", path).split(".")
    struct: object = type_
    for name in outer:
        hint, _ = _fields(struct).get(name, (None, False)) if _is_struct(struct) else (None, False)
        struct = _inner(hint)
    return list(_fields(struct)) if _is_struct(struct) else []


def _is_struct(type_: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _inner(type_: object) -> object:
    """The struct in a list, a mapping, an optional or an annotated type; else the type itself."""
    members = [one for one in get_args(type_) if one is not type(None)]
    if not members:
        return type_
    return _inner(members[0] if get_origin(type_) is Annotated else members[-1])


def without_nulls(tree: object) -> object:
    """A tree without its null members, which count as absent."""
    if isinstance(tree, Mapping):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return [without_nulls(value) for value in tree] if isinstance(tree, list) else tree


def shown(value: object) -> object:
    """A value as an error names it: long ones and whole trees are cut short."""
    if isinstance(value, str):
        return value if len(value) <= 80 else value[:77] + "..."
    return value if isinstance(value, (int, float, bool, type(None))) else "..."


Found = Iterator[tuple[str, object, str]]


@cache
def _fields(type_: type[msgspec.Struct]) -> dict[str, tuple[object, bool]]:
    hints = get_type_hints(type_, include_extras=True)
    return {
        field.encode_name: (hints[field.name], field.required)
        for field in msgspec.structs.fields(type_)
    }


def _struct(type_: type[msgspec.Struct], tree: Mapping[str, object], path: str) -> Found:
    fields = _fields(type_)
    for name, value in tree.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in fields:
            yield where, value, UNKNOWN_FIELD
        elif value is not None:
            problems = list(_value(fields[name][0], value, where))
            if name in _AS_NUMBERS and not problems:
                problems = list(_as_numbers(fields[name][0], value, where))
            yield from problems
    for name, (_, required) in fields.items():
        if required and tree.get(name) is None:
            yield f"{path}.{name}" if path else name, None, "is required"


def _value(type_: object, value: object, path: str) -> Found:
    origin = get_origin(type_)
    if origin is Annotated:
        type_ = get_args(type_)[0]
        origin = get_origin(type_)
    if type_ is Any:
        return
    if origin in (Union, types.UnionType):
        yield from _one_of(get_args(type_), value, path)
    elif origin is list:
        if not isinstance(value, list):
            yield path, value, "must be a list"
            return
        inner = get_args(type_)[0]
        for index, item in enumerate(value):
            if item is None:
                yield f"{path}[{index}]", None, "must not be null"
            else:
                yield from _value(inner, item, f"{path}[{index}]")
    elif origin is dict:
        yield from _mapping(get_args(type_)[1], value, path)
    elif isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        if isinstance(value, Mapping):
            yield from _struct(type_, value, path)
        else:
            yield path, value, "must be a mapping of fields"
    elif not _is(type_, value):
        yield path, value, _rule([type_], value)


def _as_numbers(type_: object, value: object, path: str) -> Found:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _as_numbers(get_args(type_)[0], item, f"{path}[{index}]")
    elif int in get_args(type_) and isinstance(value, (int, str)):
        try:
            as_number(value)
        except ValueError as problem:
            yield path, value, str(problem)


def _mapping(inner: object, value: object, path: str) -> Found:
    if not isinstance(value, Mapping):
        yield path, value, "must be a mapping"
        return
    for key, item in value.items():
        where = f"{path}[{key}]"
        if not isinstance(key, str):
            yield where, key, "the key must be text: put it in quotes"
        if item is None and inner is not Any:
            yield where, None, "must not be null"
        else:
            yield from _value(inner, item, where)


def _one_of(members: tuple[object, ...], value: object, path: str) -> Found:
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        yield from _value(members[0], value, path)
    elif not any(_is(member, value) for member in members):
        yield path, value, _rule(list(members), value)


def _is(type_: object, value: object) -> bool:
    if type_ is int:
        # Beyond 64 bits Go has no integer.
        return isinstance(value, int) and type(value) is not bool and -_INT64 <= value < _INT64
    if type_ is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(type_, type) and isinstance(value, type_)


def _rule(members: list[object], value: object) -> str:
    expected = " or ".join(dict.fromkeys(_NAMES.get(member, str(member)) for member in members))
    if members == [str] and isinstance(value, (int, float, bool)):
        return f"must be {expected}: put it in quotes"
    return f"must be {expected}"
