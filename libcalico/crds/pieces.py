"""Pieces of schemas, of which the tables of this package are made.

Patterns are RE2, which API servers use. Values may be empty where Go's `omitempty` makes empty
and absent the same, unless they are `filled`.
Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from libcalico.model.base.numorstring import MAX_AS_NUMBER
from libcalico.model.validation.checks import MAX_SELECTOR
from libcalico.model.validation.kubernetes_names import MAX_NAME, NAME

Piece = Mapping[str, object]
MAX_INT64 = 2**63 - 1

_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_ZERO = r"(0+\.?0*|\.0+)"
_UNIT = r"(ns|us|µs|μs|ms|s|m|h)"
DURATION: Piece = {"pattern": rf"^[-+]?(0|({_NUMBER}{_UNIT})+)$"}
NOT_NEGATIVE: Piece = {"pattern": rf"^(-(0|({_ZERO}{_UNIT})+)|\+?(0|({_NUMBER}{_UNIT})+))$"}
"""A duration of Go's that is not below zero."""

SELECTOR: Piece = {"maxLength": MAX_SELECTOR}
AS_NUMBER: Piece = {
    "minimum": 0,
    "maximum": MAX_AS_NUMBER,
    "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*$",
    "x-kubernetes-int-or-string": True,
}
PORT_NUMBERS = r"[0-9]+(:[0-9]+)?"


def words(allowed: Iterable[str], *, empty: bool = True) -> Piece:
    """One of a few words."""
    return {"enum": [*allowed, *([""] if empty else [])]}


def any_case(allowed: Iterable[str]) -> Piece:
    """One of a few words in any letter case, or empty."""
    return {"pattern": f"^(?i)(|{'|'.join(allowed)})$"}


def limits(low: int, high: int) -> Piece:
    """A whole number in a range; the bounds of Go's integers need no rule."""
    bounds = {"minimum": low} if low > -MAX_INT64 else {}
    return {**bounds, "maximum": high} if high < MAX_INT64 else bounds


def pattern(expression: re.Pattern[str], *, empty: bool = True) -> Piece:
    """The whole value matches, or is empty."""
    return {"pattern": f"^({expression.pattern}{'|' if empty else ''})$"}


def name(*, empty: bool = True) -> Piece:
    """A DNS subdomain."""
    return {**pattern(NAME, empty=empty), "maxLength": MAX_NAME}


def network(version: int = 0, *, bare: bool = True, empty: bool = False) -> Piece:
    """A CIDR of a family (0: of either); `bare`: an address is one, too.

    Bits behind the mask are left to the validators.
    """
    kinds: list[dict[str, object]] = [{"format": "cidr"}]
    if bare:
        kinds += [{"format": f"ipv{number}"} for number in (4, 6) if version in (0, number)]
    if empty:
        kinds.append({"maxLength": 0})
    family = {4: {"pattern": "^[^:]*$"}, 6: {"pattern": "^(.*:.*)?$"}}.get(version, {})
    return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), **family}


def address(version: int = 0, *, empty: bool = True) -> Piece:
    """An address of a family (0: of either)."""
    kinds: list[dict[str, object]] = [{"format": f"ipv{o}"} for o in (4, 6) if version in (0, o)]
    if empty:
        kinds.append({"maxLength": 0})
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def each(piece: Piece, most: int = 0, least: int = 0, *, once: bool = False) -> Piece:
    """A list of such values, at most so many, each of them once."""
    schema: dict[str, object] = {"items": piece}
    if most:
        schema["maxItems"] = most
    if least:
        schema["minItems"] = least
    if once:
        schema["x-kubernetes-list-type"] = "set"
    return schema


def filled(piece: Piece | None = None) -> Piece:
    """A field that must be there; text must not be empty."""
    return {**(piece or {}), "required": True}
