"""The functions of a template; `and` and `or` stop early, so they live in the evaluation.

Tested in tests/calicoctl/test_gotemplate.py.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from calicoctl.gotemplate.nodes import TemplateError
from calicoctl.gotemplate.values import NO_VALUE, text, truth

EXTRA = frozenset({"config"})
"""Functions that the caller supplies."""

_VERB = re.compile(r"%(?P<flags>[-+ 0#]*)(?P<width>\d+)?(?:\.(?P<precision>\d*))?(?P<verb>.)", re.S)


def _eq(first: object, *others: object) -> bool:
    if not others:
        raise TemplateError("template: eq: missing argument for comparison")
    return any(_comparable(first, other) and first == other for other in others)


def _comparable(first: object, other: object) -> bool:
    if first is None or other is None or first is NO_VALUE or other is NO_VALUE:
        return True
    numbers = (int, float)
    for kind in (bool, str):
        if isinstance(first, kind) != isinstance(other, kind):
            raise TemplateError(
                f"template: incompatible types for comparison: {text(first)!r} and {text(other)!r}"
            )
    if not isinstance(first, (bool, str, *numbers)):
        raise TemplateError("template: only strings, numbers and booleans can be compared")
    return True


def _order(name: str, compare: Callable[..., bool]) -> Callable[[object, object], bool]:
    def function(first: object, other: object) -> bool:
        if first is None or other is None or isinstance(first, bool):
            raise TemplateError(f"template: {name}: a value has no order")
        _comparable(first, other)
        return compare(first, other)

    return function


def _len(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (Sequence, Mapping)):
        return len(value)
    raise TemplateError(f"template: len of {text(value)}, which has no length")


def _index(value: object, *steps: object) -> object:
    for step in steps:
        if isinstance(value, Mapping):
            # Go answers the zero value of the map's type: our maps hold text.
            value = value.get(step, "")
            continue
        if not isinstance(value, (list, tuple, str)) or not isinstance(step, int):
            raise TemplateError(f"template: cannot index {text(value)} with {text(step)}")
        if not 0 <= step < len(value):
            raise TemplateError(f"template: index out of range: {step}")
        value = ord(value[step]) if isinstance(value, str) else value[step]
    return value


def _slice(value: object, *bounds: int) -> object:
    if not isinstance(value, (list, tuple, str)) or len(bounds) > 2:
        raise TemplateError(f"template: cannot slice {text(value)}")
    start, end = (*bounds, len(value))[:2] if bounds else (0, len(value))
    if not 0 <= start <= end <= len(value):
        raise TemplateError(f"template: slice out of range: {start}:{end}")
    return value[start:end]


def _print(*values: object) -> str:
    out = ""
    for index, value in enumerate(values):
        # Go puts a space between two operands unless one of them is a string.
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out += " "
        out += text(value)
    return out


def _printf(form: object, *values: object) -> str:
    if not isinstance(form, str):
        raise TemplateError("template: printf: the format must be a string")
    left = list(values)

    def one(match: re.Match[str]) -> str:
        verb = match["verb"]
        if verb == "%":
            return "%"
        if not left:
            return f"%!{verb}(MISSING)"
        body = _verb(verb, match, left.pop(0))
        width = int(match["width"] or 0)
        if "-" in match["flags"]:
            return body.ljust(width)
        if "0" in match["flags"] and verb in "dxXfge":
            return body.zfill(width)
        return body.rjust(width)

    out = _VERB.sub(one, form)
    if left:
        out += "%!(EXTRA " + ", ".join(f"{type(v).__name__}={text(v)}" for v in left) + ")"
    return out


def _verb(verb: str, match: re.Match[str], value: object) -> str:
    precision = match["precision"]
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    sign = "+" if "+" in match["flags"] else ""
    if verb in "vs":
        shown = text(value)
        return shown[: int(precision or 0)] if precision is not None and verb == "s" else shown
    if verb == "q":
        return json.dumps(text(value), ensure_ascii=False)
    if verb == "t" and isinstance(value, bool):
        return text(value)
    if verb in "dxXob" and isinstance(number, int):
        return format(number, sign + verb)
    if verb in "xX" and isinstance(value, str):
        return format(int.from_bytes(value.encode()), verb) if value else ""
    if verb in "feEgG" and number is not None:
        places = "" if precision is None and verb in "gG" else f".{precision or 6}"
        return format(float(number), f"{sign}{places}{verb}")
    if verb in "tdxXobfeEgG":
        return f"%!{verb}({type(value).__name__}={text(value)})"
    raise TemplateError(f"template: printf: the verb %{verb} is not served by calicoctl")


def join(items: object, separator: str) -> str:
    """Calico's `join`: items as text with a separator between them."""
    return join_and_truncate(items, separator, 0)


def join_and_truncate(items: object, separator: str, limit: int) -> str:
    """Calico's `joinAndTruncate`: `join`, cut to `limit` characters with `...` at the end."""
    if not isinstance(items, (list, tuple)):
        return text(items)
    joined = separator.join(text(item) for item in items)
    return joined if limit <= 0 or len(joined) <= limit else joined[: limit - 3] + "..."


BUILT_IN: dict[str, Callable[..., object]] = {
    "not": lambda value: not truth(value),
    "eq": _eq,
    "ne": lambda first, other: not _eq(first, other),
    "lt": _order("lt", operator.lt),
    "le": _order("le", operator.le),
    "gt": _order("gt", operator.gt),
    "ge": _order("ge", operator.ge),
    "len": _len,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "println": lambda *values: " ".join(text(value) for value in values) + "\n",
    "printf": _printf,
    "join": join,
    "joinAndTruncate": join_and_truncate,
}
