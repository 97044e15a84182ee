"""What a template of JSON paths finds in plain values, as text.

Tested in `tests/calicoctl/test_jsonpath.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import msgspec

from calicoctl.cells import go_text
from calicoctl.jsonpath.nodes import (
    Field,
    Filter,
    JSONPathError,
    Literal,
    Node,
    Path,
    Range,
    Recursive,
    Slice,
    Step,
    Text,
    Union,
    Wildcard,
)
from libcalico.model.codec import escaped

_COMPARE: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def text_of(nodes: Sequence[Node], data: object) -> str:
    """The text of a template; raises `JSONPathError` where it does not fit the data."""
    return "".join(_texts(nodes, data))


def _texts(nodes: Sequence[Node], data: object) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Text):
            yield node.text
        elif isinstance(node, Range):
            for value in values_at([data], node.path):
                yield from _texts(node.body, value)
        else:
            yield " ".join(_printed(value) for value in values_at([data], node.path))


def _printed(value: object) -> str:
    if isinstance(value, (dict, list)):
        return escaped(msgspec.json.encode(value, order="sorted")).decode()
    return go_text(value)


def values_at(values: Sequence[object], path: Path) -> list[object]:
    """What a path finds below some values, in order; a member that is not there is nothing."""
    current = list(values)
    for step in path:
        current = [one for value in current for one in _below(value, step)]
    return current


def _below(value: object, step: Step) -> list[object]:
    if isinstance(step, Literal):
        return [step.value]
    if value is None:
        return []
    match step:
        case Field(name):
            return [value[name]] if isinstance(value, dict) and name in value else []
        case Wildcard():
            return _members(value)
        case Recursive():
            return list(_all_below(value))
        case Union(paths):
            return [one for path in paths for one in values_at([value], path)]
        case Slice():
            return _sliced(value, step)
        case Filter():
            return [item for item in _items(value, "filtered") if _holds(item, step)]
    raise AssertionError(step)


def _members(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _all_below(value: object) -> Iterator[object]:
    members = _members(value)
    if members:
        yield value
        for member in members:
            yield from _all_below(member)


def _items(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise JSONPathError(f"jsonpath: {_named(value)} is no list and cannot be {what}")
    return value


def _named(value: object) -> str:
    text = _printed(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sliced(value: object, step: Slice) -> list[object]:
    items = _items(value, "indexed")
    if not step.single:
        return items[step.start : step.stop : step.step]
    assert step.start is not None
    if not -len(items) <= step.start < len(items):
        raise JSONPathError(
            f"jsonpath: index {step.start} is out of bounds: the list has {len(items)} items"
        )
    return [items[step.start]]


def _holds(item: object, condition: Filter) -> bool:
    left = values_at([item], condition.left)
    if not condition.operator:
        return bool(left)
    right = values_at([item], condition.right)
    if not left or not right:
        return False
    if len(left) > 1 or len(right) > 1:
        raise JSONPathError("jsonpath: a filter can only compare one value with one value")
    return _compared(left[0], condition.operator, right[0])


def _compared(left: object, sign: str, right: object) -> bool:
    for type_ in (bool, str, (int, float)):
        if isinstance(left, type_) and isinstance(right, type_):
            return _COMPARE[sign](left, right)
    raise JSONPathError(
        f"jsonpath: {_named(left)} {sign} {_named(right)}: values of different kinds cannot be"
        " compared; text is written in quotes"
    )
