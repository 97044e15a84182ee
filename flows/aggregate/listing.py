"""Lists of flows: the rows of each key in a span added up, sorted, one page of them.

A list reads one bucket after another (`read`), so that its caller can do other things between.

Counts add up over nodes and time, except live connections: those are of the newest bucket, as the
API's text says, where Goldmane adds up the same connection once for each bucket. Labels are those
that every row has.
Tested in tests/flows/test_store.py.
"""

from __future__ import annotations

from collections.abc import Callable

from flows.aggregate.buckets import LIVE, WIDTH, Bucket, Labels, Line
from flows.aggregate.matching import matches
from flows.aggregate.span import paged
from flows.query import Filter, FlowQuery, Listing, Seen, SortBy
from flows.record import INTERVAL, Counts, Flow, common


class _Sum:
    __slots__ = ("counts", "destination", "end", "line", "source", "start")

    def __init__(self, line: Line, start: int, source: Labels, destination: Labels) -> None:
        self.line, self.start, self.end = line, start, start + INTERVAL
        self.counts = [0] * WIDTH
        self.source, self.destination = source, destination


class Chosen:
    """The keys of a filter, judged once each."""

    def __init__(self, chosen: Filter) -> None:
        self._all = chosen == Filter()
        self._filter = chosen
        self._judged: dict[Line, bool] = {}

    def __contains__(self, line: Line) -> bool:
        if self._all:
            return True
        known = self._judged.get(line)
        if known is None:
            known = self._judged[line] = matches(self._filter, line.key)
        return known


class Sums:
    """What the rows of a span add up to, by key."""

    def __init__(self, chosen: Filter) -> None:
        self._chosen = Chosen(chosen)
        self._sums: dict[Line, _Sum] = {}

    def read(self, bucket: Bucket) -> None:
        """Add a bucket, which is newer than those before."""
        counts = bucket.counts
        for row, line in enumerate(bucket.lines):
            if line not in self._chosen:
                continue
            source, destination = bucket.sources[row], bucket.destinations[row]
            one = self._sums.get(line)
            if one is None:
                one = self._sums[line] = _Sum(line, bucket.start, source, destination)
            one.end = bucket.start + INTERVAL
            one.source = common(one.source, source)
            one.destination = common(one.destination, destination)
            one.counts[LIVE] = 0
            for offset, number in enumerate(counts[row * WIDTH : (row + 1) * WIDTH]):
                one.counts[offset] += number

    def page(self, query: FlowQuery) -> Listing:
        """The page that is asked for."""
        ordered = list(self._sums.values())
        # Stable sorts, the last criterion first: what is equal stays in the order of its number.
        ordered.sort(key=lambda one: one.line.id)
        for order in reversed(query.sort or (SortBy.TIME,)):
            if order is SortBy.TIME:
                ordered.sort(key=lambda one: -one.start)
            else:
                value = ORDERS[order]
                ordered.sort(key=lambda one, value=value: value(one.line))  # type: ignore[misc]
        chosen, pages = paged(len(ordered), query.page, query.page_size)
        return Listing(tuple(map(_seen, ordered[chosen])), len(ordered), pages)


def _seen(one: _Sum) -> Seen:
    counts = Counts(*one.counts)
    flow = Flow(one.line.key, one.start, one.end, counts, one.source, one.destination)
    return Seen(one.line.id, flow)


ORDERS: dict[SortBy, Callable[[Line], str | int]] = {
    SortBy.DESTINATION_NAME: lambda line: line.key.destination.name,
    SortBy.DESTINATION_NAMESPACE: lambda line: line.key.destination.namespace,
    SortBy.DESTINATION_KIND: lambda line: line.key.destination.kind,
    SortBy.SOURCE_NAME: lambda line: line.key.source.name,
    SortBy.SOURCE_NAMESPACE: lambda line: line.key.source.namespace,
    SortBy.SOURCE_KIND: lambda line: line.key.source.kind,
}
