"""Tables with borders, as `calicoctl ipam show` and `node status` print them.

Headings are centred (the odd space goes right), plain numbers stand right, everything
else left. Golden test: `tests/calicoctl/test_tables.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?\d+(\.\d+)?%?")


def render(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as text, a newline after each line."""
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    head = [_centred(cell, width) for cell, width in zip(headings, widths, strict=True)]
    body = [
        [_aligned(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows
    ]
    out = [border, _line(head), border, *[_line(row) for row in body]]
    if body:
        out.append(border)
    return "".join(line + "\n" for line in out)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " for cell in cells) + "|"


def _centred(text: str, width: int) -> str:
    left = (width - len(text)) // 2
    return " " * left + text + " " * (width - len(text) - left)


def _aligned(text: str, width: int) -> str:
    return text.rjust(width) if _NUMBER.fullmatch(text) else text.ljust(width)
