"""The rows of a watch as text, each shape of `get -o` in its way.

A table has its headings once; its columns grow with what comes. JSON is an object a line, YAML a
document each, the other shapes are those of one resource.
Tested in `tests/calicoctl/test_watch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from calicoctl import cells, output, tabwriter
from calicoctl.listing.changes import Row
from calicoctl.listing.result import Result, in_order
from libcalico.datastore.interface import Entry


class Stream:
    """Writes rows of one kind; remembers how wide the columns have become."""

    def __init__(
        self, kind: str, shape: output.Shape, context: cells.Context, events: bool
    ) -> None:
        self._kind, self._shape, self._context, self._events = kind, shape, context, events
        self._widths: list[int] = []

    def text(self, rows: Sequence[Row]) -> str:
        """The text of some rows, the first time with headings where there are any."""
        if not self._widths:
            rows = self._sorted(rows)
        style = self._shape.style
        if style in output.TABLES or style.startswith("custom-columns="):
            return self._table(rows)
        self._widths = self._widths or [0]
        return "".join(self._single(row) for row in rows)

    def _sorted(self, rows: Sequence[Row]) -> list[Row]:
        events = {row.entry.key: row for row in rows}
        return [events[entry.key] for entry in in_order(self._kind, [row.entry for row in rows])]

    def _table(self, rows: Sequence[Row]) -> str:
        entries = [row.entry for row in rows]
        headings, values = output.table_of(self._kind, entries, self._shape, self._context)
        if self._events:
            headings = ("EVENT", *headings)
            values = [[row.event, *cells] for row, cells in zip(rows, values, strict=True)]
        lines = [list(headings), *values]
        first = not self._widths
        new = tabwriter.widths(lines)
        self._widths = new if first else [max(pair) for pair in zip(self._widths, new, strict=True)]
        text = tabwriter.lines(lines if first and self._shape.headers else values, self._widths)
        return "".join(text)

    def _single(self, row: Row) -> str:
        style = self._shape.style
        if style in ("json", "yaml"):
            shown: object = output.tree(row.entry)
            if self._events:
                shown = {"type": row.event, "object": shown}
            return _json_line(shown) if style == "json" else _yaml_document(shown)
        from calicoctl.listing import styles

        return styles.text_of([_result(self._kind, row.entry)], style, self._context)


def _result(kind: str, entry: Entry) -> Result:
    return Result(kind, [entry])


def _json_line(value: object) -> str:
    from libcalico.model.codec import escaped

    return escaped(msgspec.json.encode(value)).decode() + "\n"


def _yaml_document(value: object) -> str:
    from calicoctl import yamltext

    return f"---\n{yamltext.dump(value)}"
