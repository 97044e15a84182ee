"""The YAML that kubectl, kubeadm and installers write into kubeconfigs, and no other.

The whole reader (libcalico/yamltext.py) costs a short command a tenth of its processor time, to
read twenty lines of `key: value`. What is not of this plain form is not read here: quotes with
escapes, comments, anchors, flow, texts of several lines or with blanks,
what begins with a digit.

Invariant PLY-1: what is read here the whole reader reads as well, to the same values.
Tested in tests/libcalico/test_plain_yaml.py (hypothesis).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(r"( *)((?:- )*)([A-Za-z][A-Za-z0-9-]*):(?: (\S+))?")
_PLAIN = re.compile(r"[A-Za-z/](?:[A-Za-z0-9+/=._@-]|:(?=\S))*")
_QUOTED = re.compile(r'"[A-Za-z0-9+/=._@:-]*"')
_NO_TEXT = re.compile(r"(?i:true|false|null|yes|no|on|off|y|n)")
"""Plain words of letters that are no text."""
_VALUES = {"true": True, "false": False, "{}": {}, "[]": []}
_MOST = 100
"""Levels at most, as everywhere (yamltext.MAX_DEPTH)."""


class _Unusual(Exception):
    """Something that the whole reader must read."""


@dataclass(frozen=True, slots=True)
class _Token:
    """The beginning of an item of a list (`key` empty), or a key, with its value if it has one."""

    column: int
    key: str = ""
    value: Any = None
    given: bool = False


def read(raw: bytes) -> dict[str, Any] | None:
    """The values of a text of the plain form; None for any other, which may be good YAML."""
    try:
        lines = raw.decode("ascii").split("\n")
        tokens = [token for line in lines if line for token in _tokens(line)]
        if not tokens or tokens[0].column or not tokens[0].key:
            return None
        tree, end = _map(tokens, 0)
    except (_Unusual, UnicodeDecodeError):
        return None
    return tree if end == len(tokens) else None


def _tokens(line: str) -> list[_Token]:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise _Unusual
    blanks, dashes, key, text = parts.groups()
    column = len(blanks)
    if column + len(dashes) > _MOST or _NO_TEXT.fullmatch(key):
        raise _Unusual
    found = [_Token(column + at) for at in range(0, len(dashes), 2)]
    value = None if text is None else _value(text)
    return [*found, _Token(column + len(dashes), key, value, text is not None)]


def _value(text: str) -> Any:
    if text in _VALUES:
        value = _VALUES[text]
        return value if isinstance(value, bool) else type(value)()
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    if _PLAIN.fullmatch(text) is None or _NO_TEXT.fullmatch(text):
        raise _Unusual
    return text


def _map(tokens: list[_Token], at: int) -> tuple[dict[str, Any], int]:
    """The map that begins with a token, and where it has ended."""
    tree: dict[str, Any] = {}
    column = tokens[at].column
    while at < len(tokens) and tokens[at].column == column and tokens[at].key:
        token = tokens[at]
        if token.key in tree:
            raise _Unusual
        value, at = token.value, at + 1
        if not token.given and at < len(tokens):
            following = tokens[at]
            if not following.key and following.column >= column:
                value, at = _list(tokens, at)
            elif following.column > column:
                value, at = _map(tokens, at)
        tree[token.key] = value
    if at < len(tokens) and tokens[at].column > column:
        raise _Unusual
    return tree, at


def _list(tokens: list[_Token], at: int) -> tuple[list[Any], int]:
    """The list of maps that begins with a token, and where it has ended."""
    found: list[Any] = []
    column = tokens[at].column
    while at < len(tokens) and tokens[at].column == column and not tokens[at].key:
        # What follows a dash stands two columns behind it; a list in a list is unusual.
        if not tokens[at + 1].key:
            raise _Unusual
        value, at = _map(tokens, at + 1)
        found.append(value)
    if at < len(tokens) and tokens[at].column > column:
        raise _Unusual
    return found, at
