"""JSON for the twin: a strict checker with the executable's words, a reader, a writer.

The checker takes exactly RFC 8259: one value, UTF-8 without BOM, no lone surrogates, nothing
behind it, at most `DEPTH` objects and lists inside one another; what is wrong and at which
byte is said as `cni/executable/json.h` says it (TWIN-1).
Tested in tests/cni/test_vectors.py.
"""

from __future__ import annotations

import re
from typing import NoReturn, TypeGuard

DEPTH = 512

# No possessive quantifiers: Python before 3.11.5 loses its place in them.
SPACE = re.compile(rb"[ \t\n\r]*")
NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
BAD_NUMBER = re.compile(
    rb"-?(?:0|[1-9][0-9]*)(?:(?:\.[0-9]+)?[eE](?:[+-](?![0-9])|(?![0-9+-]))|\.(?![0-9]))|-(?![0-9])"
)
PLAIN = re.compile(rb"[\x20\x21\x23-\x5b\x5d-\x7f]*")
# Characters of several bytes, and escapes; bounded, because each repetition takes memory.
OTHERS = re.compile(
    rb"(?:[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb'|\xf4[\x80-\x8f][\x80-\xbf]{2}|\\["\\/bfnrt]'
    rb"|\\u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})){1,500}"
)
ESCAPED_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")


class NotJSON(Exception):
    """What is wrong, and at which byte the checker stopped."""


def wrong(why: str, at: int) -> NoReturn:
    """Stop checking."""
    raise NotJSON(why, at)


def string_end(data: bytes, at: int) -> int:
    """The place behind the string that begins at `at`."""
    if data[at : at + 1] != b'"':
        wrong("expected a string", at)
    at += 1
    while True:
        at = PLAIN.match(data, at).end()  # type: ignore[union-attr]
        others = OTHERS.match(data, at)
        if others is None:
            break
        at = others.end()
    after = data[at : at + 2]
    if after[:1] == b'"':
        return at + 1
    if not after or after == b"\\":
        wrong("unexpected end", at + len(after))
    if after[:1] != b"\\":
        wrong("control character in a string" if after[0] < 0x20 else "not UTF-8", at)
    if after != b"\\u":
        wrong("invalid escape", at + 2)
    if ESCAPED_HALF.match(data, at):
        wrong("lone surrogate", at + 6)
    wrong("invalid \\u escape", at + 2)


def scalar_end(data: bytes, at: int) -> int:
    """The place behind the string, number or word that begins at `at`."""
    first = data[at : at + 1]
    if first == b'"':
        return string_end(data, at)
    if first and first in b"-0123456789":
        bad = BAD_NUMBER.match(data, at)
        if bad:
            wrong("invalid number", bad.end())
        return NUMBER.match(data, at).end()  # type: ignore[union-attr]
    for word in (b"true", b"false", b"null"):
        if data.startswith(word, at):
            return at + len(word)
    wrong("invalid character" if first else "unexpected end", at)


def checked(data: bytes) -> tuple[int, int]:
    """The span of the one JSON value that `data` is, without the space around it."""

    def space(at: int) -> int:
        return SPACE.match(data, at).end()  # type: ignore[union-attr]

    def member(at: int) -> int:
        """To the value of the next member of the container on top."""
        at = space(at)
        if closers[-1] == b"}":
            at = space(string_end(data, at))
            if data[at : at + 1] != b":":
                wrong("expected a colon", at)
            at = space(at + 1)
        return at

    closers: list[bytes] = []
    try:
        start = at = space(0)
        while True:
            bracket = data[at : at + 1]
            if bracket in (b"{", b"["):
                at += 1
                closers.append(b"}" if bracket == b"{" else b"]")
                if len(closers) > DEPTH:
                    wrong("nested too deeply", at)
                at = space(at)
                if data[at : at + 1] != closers[-1]:
                    at = member(at)
                    continue
            else:
                at = scalar_end(data, at)
            while closers:
                # An empty container is left without looking for a comma.
                at = space(at)
                character = data[at : at + 1]
                if character == closers[-1]:
                    closers.pop()
                    at += 1
                elif character == b",":
                    at = member(at + 1)
                    break
                else:
                    wrong("invalid character" if character else "unexpected end", at)
            if not closers:
                end = at
                at = space(at)
                if at < len(data):
                    wrong("data after the end", at)
                return start, end
    except NotJSON as error:
        why, at = error.args
        raise NotJSON(why, space(at)) from None


class Number(str):
    """The text of a JSON number."""


def loads(data: bytes) -> object:
    """The value of checked JSON, numbers as text."""
    import json

    return json.loads(data, parse_int=Number, parse_float=Number)


SPECIAL = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def quote(data: bytes) -> bytes:
    """`data` as a JSON string; bytes that are not UTF-8 become U+FFFD."""

    def escape(match: re.Match[str]) -> str:
        char = match[0]
        if char >= "\ud800":
            return "\ufffd"
        return SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"

    return b'"' + SPECIAL.sub(escape, data.decode("utf-8", "surrogateescape")).encode() + b'"'


def shortened(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes, not cut inside a character."""
    if len(data) <= limit:
        return data
    while limit > 0 and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return data[:limit]


def as_object(data: bytes) -> dict[str, object]:
    """The object that `data` is. Raises NotJSON."""
    start, end = checked(data)
    if data[start : start + 1] != b"{":
        wrong("not a JSON object", -1)
    value = loads(data[start:end])
    assert isinstance(value, dict)
    return value


def is_text(value: object) -> TypeGuard[str]:
    """Whether a JSON value is a string."""
    return isinstance(value, str) and not isinstance(value, Number)


def text_of(message: dict[str, object], key: str) -> bytes:
    """A member that is a string, else nothing."""
    value = message.get(key)
    return value.encode() if is_text(value) else b""


def number_of(message: dict[str, object], key: str, otherwise: float) -> float:
    """A member that is a number, else `otherwise`."""
    value = message.get(key)
    if not isinstance(value, Number) or len(value) >= 32:
        return otherwise
    number = float(value)
    return number if -1e9 <= number <= 1e9 else otherwise
