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
    lines = [tuple(headings), *map(tuple, rows)]
    widths = [
        max(MIN_WIDTH, max(map(len, column)) + PADDING) for column in zip(*lines, strict=True)
    ]
    form = "".join(f"%-{width}s" for width in widths) + "\n"
    return "".join([form % line for line in lines])
