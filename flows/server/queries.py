"""Flows and Statistics: questions about the hour, and the stream of what is complete.

A question is read one bucket at a time, and other calls go on between them. At most
`QUESTIONS` are worked at at once; others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import grpc
from msgspec.structs import replace

from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc, messages
from flows.aggregate.matching import matches
from flows.aggregate.span import check_interval, check_page
from flows.aggregate.store import Answer, Steps, Store
from flows.query import Filter, Listing, Seen
from flows.record import INTERVAL
from flows.server.access import Access, Context
from flows.server.streams import Streams, TooMany
from libcalico.errors import InvalidValue

QUESTIONS = 4
MOST = 100_000
"""Flows of an answer in one page."""


class Asked:
    """What both services have in common."""

    def __init__(self, store: Store, access: Access, clock: Callable[[], float]) -> None:
        self.store, self._access, self._clock = store, access, clock
        self._turns = asyncio.Semaphore(QUESTIONS)

    async def answer(self, context: Context, begin: Callable[[], Steps[Answer]]) -> Answer:
        """The answer of a question; ends the call where it is refused."""
        await self._access.asks(context)
        async with self._turns:
            self.store.roll(int(self._clock()))
            try:
                steps = begin()
            except (InvalidValue, ValueError) as error:
                await refuse(context, error)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                await asyncio.sleep(0)


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End the call with INVALID_ARGUMENT and the words of the error."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    raise AssertionError("abort raises")


class FlowsService(goldmane_pb2_grpc.FlowsServicer):  # type: ignore[misc]
    """List, Stream and FilterHints."""

    def __init__(self, asked: Asked, access: Access, streams: Streams) -> None:
        self._asked, self._access, self._streams = asked, access, streams

    async def List(self, request: pb.FlowListRequest, context: Context) -> pb.FlowListResult:
        """A page of flows."""

        def begin() -> Steps[Listing]:
            check_interval(request.aggregation_interval)
            check_page(request.page, request.page_size)
            query = messages.list_of(request)
            if not query.page_size:
                query = replace(query, page_size=MOST)
            return self._asked.store.list(query)

        page = await self._asked.answer(context, begin)
        if not request.page_size and page.pages > 1:
            text = f"page_size: {page.total} flows are too many at once: ask for pages"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        return pb.FlowListResult(
            meta=pb.ListMetadata(totalPages=page.pages, totalResults=page.total),
            flows=map(result, page.flows),
        )

    async def FilterHints(
        self, request: pb.FilterHintsRequest, context: Context
    ) -> pb.FilterHintsResult:
        """A page of values."""
        hints = await self._asked.answer(
            context, lambda: self._asked.store.hints(messages.hints_of(request))
        )
        return pb.FilterHintsResult(
            meta=pb.ListMetadata(totalPages=hints.pages, totalResults=hints.total),
            hints=[pb.FilterHint(value=value) for value in hints.values],
        )

    async def Stream(
        self, request: pb.FlowStreamRequest, context: Context
    ) -> AsyncIterator[pb.FlowResult]:
        """What is complete from the start on, then each bucket as it is complete."""
        await self._access.asks(context)
        if request.aggregation_interval not in (0, INTERVAL):
            rule = f"{INTERVAL} seconds, or 0 for the same"
            error = InvalidValue("aggregation_interval", request.aggregation_interval, rule)
            await refuse(context, error)
        chosen = messages.filter_of(request.filter)
        try:
            with self._streams.open(request.start_time_gte) as stream:
                async for bucket in stream:
                    for seen in bucket.seen():
                        if chosen == Filter() or matches(chosen, seen.flow.key):
                            yield result(seen)
        except TooMany as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))


class StatisticsService(goldmane_pb2_grpc.StatisticsServicer):  # type: ignore[misc]
    """List of the service Statistics."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def List(
        self, request: pb.StatisticsRequest, context: Context
    ) -> AsyncIterator[pb.StatisticsResult]:
        """Figures; where there are none, an empty result and NOT_FOUND, as Goldmane says it."""
        found = await self._asked.answer(
            context, lambda: self._asked.store.statistics(messages.statistics_of(request))
        )
        if not found:
            yield pb.StatisticsResult()
            await context.abort(grpc.StatusCode.NOT_FOUND, "no statistics match the request")
        for series in found:
            yield messages.series_message(series)


def result(seen: Seen) -> pb.FlowResult:
    """A flow with its number."""
    return pb.FlowResult(id=seen.id, flow=messages.flow_message(seen.flow))
