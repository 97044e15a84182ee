"""What the aggregator knows, and every question to it: the pure core of `calico-goldmane`.

Questions give their answer by steps: each `next` reads one bucket, so that a server can do other
things between them. The generator's value is the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum
from typing import Protocol, TypeVar

from flows.aggregate.buckets import Bucket
from flows.aggregate.hints import Values
from flows.aggregate.listing import Sums
from flows.aggregate.repeats import Repeats
from flows.aggregate.ring import MOST_ROWS, Ring, aligned
from flows.aggregate.span import check_page, resolved
from flows.aggregate.statistics import Statistics
from flows.query import FlowQuery, HintQuery, Hints, Listing, Series, StatisticsQuery
from flows.record import INTERVAL, Flow

LAG = 2
"""Intervals behind now of the newest bucket that is streamed: nodes send after an interval ends."""

Answer = TypeVar("Answer")
Steps = Generator[None, None, Answer]


class Outcome(Enum):
    """What became of a flow that a node sent."""

    COUNTED = "counted"
    REPEATED = "repeated"
    LEFT_OUT = "left out"


class Taking(Protocol):
    """Reads buckets."""

    def take(self, bucket: Bucket) -> None:
        """Read one more."""


class Store:
    """The flows of an hour. `now` is seconds since 1970, given by the caller in each call."""

    def __init__(self, now: int, most: int = MOST_ROWS) -> None:
        self.ring = Ring(now, most)
        self._repeats = Repeats()
        self._now = now

    def receive(self, flow: Flow, sender: str, now: int) -> Outcome:
        """Count a flow of a sender, unless it sent it before. What no bucket takes is counted by
        reason in `ring.left_out`."""
        self.roll(now)
        line = self.ring.known(flow.key)
        if line is not None and self._repeats.knows(sender, line, flow.start, flow.end):
            return Outcome.REPEATED
        line = self.ring.add(flow)
        if line is None:
            return Outcome.LEFT_OUT
        self._repeats.remember(sender, line, flow.start, flow.end, self._now)
        return Outcome.COUNTED

    @property
    def remembered(self) -> int:
        """How many flows would be known as repeated."""
        return len(self._repeats)

    def roll(self, now: int) -> None:
        """Take over the time; what is older than an hour goes."""
        if aligned(now) > aligned(self._now):
            self.ring.roll(now)
        self._now = max(now, self._now)

    def list(self, query: FlowQuery) -> Steps[Listing]:
        """A page of flows. Raises InvalidValue, at once."""
        check_page(query.page, query.page_size)
        span = self._span(query.start, query.end)
        return self._list(query, span)

    def _list(self, query: FlowQuery, span: tuple[int, int]) -> Steps[Listing]:
        sums = Sums(query.filter)
        yield from self._read(sums, span)
        return sums.page(query)

    def hints(self, query: HintQuery) -> Steps[Hints]:
        """A page of hints. Raises InvalidValue, at once."""
        check_page(query.page, query.page_size)
        span = self._span(query.start, query.end)
        return self._hints(Values(query), span)

    def _hints(self, values: Values, span: tuple[int, int]) -> Steps[Hints]:
        yield from self._read(values, span)
        return values.page()

    def statistics(self, query: StatisticsQuery) -> Steps[tuple[Series, ...]]:
        """Figures by policy or rule. Raises InvalidValue, at once."""
        span = self._span(query.start, query.end)
        return self._statistics(Statistics(query), span)

    def _statistics(
        self, statistics: Statistics, span: tuple[int, int]
    ) -> Steps[tuple[Series, ...]]:
        yield from self._read(statistics, span)
        return statistics.series()

    def _span(self, start: int, end: int) -> tuple[int, int]:
        return resolved(start, end, self._now, self.ring.beginning)

    def _read(self, taking: Taking, span: tuple[int, int]) -> Iterator[None]:
        for bucket in self.ring.between(*span):
            taking.take(bucket)
            yield

    def complete(self, since: int) -> Iterator[Bucket]:
        """The buckets from `since` on that are complete, so to be streamed, oldest first."""
        return self.ring.between(since, self.streamed_until())

    def streamed_until(self) -> int:
        """The start of the oldest bucket that is not complete."""
        return aligned(self._now) - (LAG - 1) * INTERVAL


def answer_of(steps: Steps[Answer]) -> Answer:
    """The answer, without doing anything between the steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
