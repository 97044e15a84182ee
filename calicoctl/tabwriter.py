"""Columns as Go's `text/tabwriter` aligns them: the layout that scripts around Calico parse.

Every cell is followed by a tab there, so the last column is padded too. Minimum width 5,
padding 3 spaces. Width counts characters, not bytes. Golden test:
`tests/calicoctl/test_tables.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_WIDTH = 5
PADDING = 3


def render(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as text, a newline after each line, headings first."""
    table = [headings, *rows]
    return "".join(lines(table, widths(table)))


def widths(table: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column of some lines, in characters."""
    return [max(MIN_WIDTH, max(map(len, column)) + PADDING) for column in zip(*table, strict=True)]


def lines(table: Sequence[Sequence[str]], columns: Sequence[int]) -> list[str]:
    """The lines as text, a newline at the end of each; `columns` are their widths."""
    form = "".join(f"%-{width}s" for width in columns) + "\n"
    return [form % tuple(line) for line in table]
