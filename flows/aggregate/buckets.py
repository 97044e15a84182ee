"""A bucket: what happened in 15 seconds, a row for each key.

Rows lie in columns, for an hour may hold a million of them: 56 bytes of counts in one array, and
three references. Keys and label sets are shared between rows (`flows/aggregate/ring.py`).
Tested in tests/flows/test_store.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from msgspec.structs import astuple

from flows.query import Seen
from flows.record import INTERVAL, Counts, Flow, Key, common

Labels = tuple[str, ...]

WIDTH = len(Counts.__struct_fields__)
LIVE = Counts.__struct_fields__.index("live")

FULL = 2**53
"""Where a count of a row stops, far beyond what a network carries, so that sums stay numbers of
64 bits."""


class Line:
    """A key with its number, and in how many buckets it has a row."""

    __slots__ = ("buckets", "id", "key")

    def __init__(self, number: int, key: Key) -> None:
        self.id, self.key, self.buckets = number, key, 0


class Bucket:
    """The rows of the interval from `start` on."""

    __slots__ = ("_rows", "counts", "destinations", "lines", "sources", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.lines: list[Line] = []
        self.counts = array("q")
        self.sources: list[Labels] = []
        self.destinations: list[Labels] = []
        self._rows: dict[Line, int] | None = {}

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, line: Line, counts: Counts, source: Labels, destination: Labels) -> bool:
        """Add to the row of the line; whether it is a new row. Labels that not all have go."""
        row = self._indexed().setdefault(line, len(self.lines))
        new = row == len(self.lines)
        if new:
            self.lines.append(line)
            self.counts.extend(astuple(counts))
            self.sources.append(source)
            self.destinations.append(destination)
            return True
        place = row * WIDTH
        for offset, number in enumerate(astuple(counts)):
            self.counts[place + offset] = min(self.counts[place + offset] + number, FULL)
        self.sources[row] = common(self.sources[row], source)
        self.destinations[row] = common(self.destinations[row], destination)
        return False

    def _indexed(self) -> dict[Line, int]:
        if self._rows is None:
            self._rows = {line: row for row, line in enumerate(self.lines)}
        return self._rows

    def settle(self) -> None:
        """Give back the memory by which rows are found; a late flow builds it again."""
        self._rows = None

    def seen(self) -> Iterator[Seen]:
        """The rows as flows."""
        for row, line in enumerate(self.lines):
            place = row * WIDTH
            yield Seen(
                line.id,
                Flow(
                    line.key,
                    self.start,
                    self.start + INTERVAL,
                    Counts(*self.counts[place : place + WIDTH]),
                    self.sources[row],
                    self.destinations[row],
                ),
            )
