"""From template text to pieces: plain text, and the tokens of each action.

Tested in tests/calicoctl/test_gotemplate.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calicoctl.gotemplate.nodes import (
    TemplateError,
)

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<raw>`[^`]*`)
    |(?P<char>'(?:[^'\\\n]|\\.)+')
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)(?![\w.]))
    |(?P<variable>\$\w*)
    |(?P<field>\.\w+)
    |(?P<dot>\.)
    |(?P<word>\w+)
    |(?P<sign>:=|=|\||,|\(|\))""",
    re.VERBOSE,
)
Token = tuple[str, str]


def pieces(text: str) -> Iterator[str | list[Token]]:
    """Text as `str`, actions as their tokens; trimming and comments done."""
    at, trim = 0, False
    while True:
        start = text.find("{{", at)
        plain = text[at:] if start < 0 else text[at:start]
        if trim:
            plain = plain.lstrip(" \t\r\n")
        if start < 0:
            yield plain
            return
        begin = start + 2
        if text[begin : begin + 1] == "-" and text[begin + 1 : begin + 2].isspace():
            plain = plain.rstrip(" \t\r\n")
            begin += 2
        yield plain
        if text[begin:].lstrip().startswith("/*"):
            end = text.find("*/", begin)
            closing = re.compile(r"\s*(-?)}}").match(text, end + 2) if end >= 0 else None
            if closing is None:
                raise TemplateError("template: a comment is not closed by */}}")
            at, trim = closing.end(), bool(closing[1])
            continue
        tokens, at, trim = _action(text, begin)
        yield tokens


def _action(text: str, at: int) -> tuple[list[Token], int, bool]:
    tokens: list[Token] = []
    spaced = True
    while True:
        closing = re.compile(r"(?:(?<=\s)-)?}}").match(text, at)
        if closing:
            return tokens, closing.end(), closing[0] != "}}"
        match = _TOKEN.match(text, at)
        if match is None or not match.lastgroup:
            raise TemplateError(f"template: cannot read {text[at : at + 20]!r} inside {{{{ }}}}")
        kind, value, at = match.lastgroup, match[0], match.end()
        if kind == "space":
            spaced = True
            continue
        # `.A .B` are two operands, `.A.B` is one: a field glued to its left joins it.
        if kind == "field" and not spaced:
            kind = "join"
        tokens.append((kind, value))
        spaced = False
