"""One hour of buckets: 240 that are past, the one that fills, and one for clocks that run ahead.

Source: https://github.com/projectcalico/calico goldmane/pkg/goldmane (242 buckets of 15 s).

Invariants:
  FLW-2  At most `most` rows are held. Where more come, the oldest buckets go before their hour is
         over, and are counted; what is new is never refused for want of room.
  FLW-3  What was added is in exactly one bucket, or counted as left out with the reason.
Tested in tests/flows/test_store.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeVar

from msgspec.structs import astuple

from flows.aggregate.buckets import Bucket, Labels, Line
from flows.record import INTERVAL, Flow, Hit, Key, Trace

PAST = 240
"""Buckets of history."""
MOST_ROWS = 2_000_000
OPEN = 8
"""Newest buckets in which rows are found without being indexed again."""
LARGEST_COUNT = 2**42
"""No count of 15 seconds is so large (4 TB); a flow that says more is left out."""

TOO_OLD, TOO_NEW, WITHOUT_TIME = "too old", "in the future", "no span of time"
TOO_LARGE = "a count is negative or too large"

T = TypeVar("T", bound=Hashable)


class Ring:
    """Flows by bucket and key. `now` is seconds since 1970 everywhere; it may not go back."""

    def __init__(self, now: int, most: int = MOST_ROWS) -> None:
        self._most = most
        self._now = now
        self._buckets: dict[int, Bucket] = {}
        """By start; only those that have rows."""
        self._lines: dict[Key, Line] = {}
        self._shared: dict[Hashable, Hashable] = {}
        """Equal parts of keys and labels, each kept once; begun anew each hour."""
        self._shared_since = now
        self._next_id = 1
        self.rows = 0
        self.left_out: Counter[str] = Counter()
        """Flows that no bucket took, by reason."""
        self.cut = 0
        """Rows that went before their hour was over."""

    def emptied(self, now: int) -> Ring:
        """A ring without rows at another time, with what was counted so far."""
        fresh = Ring(now, self._most)
        fresh.left_out, fresh.cut, fresh._next_id = self.left_out, self.cut, self._next_id
        return fresh

    @property
    def beginning(self) -> int:
        """The start of the oldest bucket that a flow can fall into."""
        return aligned(self._now) - PAST * INTERVAL

    @property
    def keys(self) -> int:
        """How many different keys there are."""
        return len(self._lines)

    def add(self, flow: Flow) -> Line | None:
        """Count a flow in the bucket of its start; None where none takes it (`left_out`)."""
        if reason := self._reason(flow):
            self.left_out[reason] += 1
            return None
        line = self._lines.get(flow.key)
        if line is None:
            line = self._line(flow.key)
            self._lines[line.key] = line
        start = aligned(flow.start)
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = Bucket(start)
        source, destination = (
            self._labels(flow.source_labels),
            self._labels(flow.destination_labels),
        )
        if bucket.add(line, flow.counts, source, destination):
            line.buckets += 1
            self.rows += 1
            self._hold()
        return line

    def known(self, key: Key) -> Line | None:
        """The line of a key that has rows."""
        return self._lines.get(key)

    def _reason(self, flow: Flow) -> str:
        if flow.end < flow.start:
            return WITHOUT_TIME
        if flow.start < self.beginning:
            return TOO_OLD
        if flow.start >= aligned(self._now) + 2 * INTERVAL:
            return TOO_NEW
        sound = all(0 <= one < LARGEST_COUNT for one in astuple(flow.counts))
        return "" if sound else TOO_LARGE

    def _line(self, key: Key) -> Line:
        number, self._next_id = self._next_id, self._next_id + 1
        trace = Trace(
            tuple(map(self._hit, key.trace.enforced)), tuple(map(self._hit, key.trace.pending))
        )
        parts = self._share(key.source), self._share(key.destination)
        service, shared_trace = self._share(key.service), self._share(trace)
        protocol = self._share(key.protocol)
        shared = Key(*parts, key.port, protocol, key.reporter, key.action, service, shared_trace)
        return Line(number, shared)

    def _hit(self, hit: Hit) -> Hit:
        return self._share(hit)

    def _labels(self, labels: Labels) -> Labels:
        known = self._shared.get(labels)
        if known is not None:
            return known  # type: ignore[return-value]
        return self._share(tuple(map(self._share, labels)))

    def _share(self, part: T) -> T:
        return self._shared.setdefault(part, part)  # type: ignore[return-value]

    def roll(self, now: int) -> None:
        """Take over the time, and drop what is older than an hour."""
        self._now = max(now, self._now)
        for start in sorted(start for start in self._buckets if start < self.beginning):
            self._drop(start)
        for start in sorted(self._buckets)[:-OPEN]:
            self._buckets[start].settle()
        if self._now - self._shared_since >= PAST * INTERVAL:
            self._shared, self._shared_since = {}, self._now

    def _hold(self) -> None:
        """Shorten the history where there are too many rows (FLW-2)."""
        while self.rows > self._most and len(self._buckets) > 1:
            self.cut += self._drop(min(self._buckets))

    def _drop(self, start: int) -> int:
        bucket = self._buckets.pop(start)
        self.rows -= len(bucket)
        for line in bucket.lines:
            line.buckets -= 1
            if not line.buckets:
                del self._lines[line.key]
        return len(bucket)

    def between(self, start: int, end: int) -> Iterator[Bucket]:
        """The buckets that start in this span, oldest first; those that are dropped while they
        are read keep their rows."""
        chosen = [self._buckets[one] for one in sorted(self._buckets) if start <= one < end]
        return iter(chosen)


def aligned(seconds: int) -> int:
    """The start of the bucket of a time."""
    return seconds - seconds % INTERVAL
