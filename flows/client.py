"""The aggregator, asked: flows, hints, statistics, and questions to nodes.

    async with Aggregator(Place("goldmane.calico-system:7443", ca, certificate, key)) as goldmane:
        page = await goldmane.list(FlowQuery(start=-900))
        async for answer in goldmane.ask("status", nodes=["n1"]):
            ...

What nodes deliver goes through `flows/sending.py`, what they answer through `flows/attending.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from types import TracebackType

import grpc.aio
import msgspec

from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc, messages, nodes_pb2, nodes_pb2_grpc
from flows.place import AggregatorError, Place, channel, failure
from flows.query import (
    Filter,
    FlowQuery,
    HintQuery,
    Hints,
    Listing,
    Seen,
    Series,
    StatisticsQuery,
)
from libcalico.errors import NO_DOCUMENT

PATIENCE = 30.0
"""Seconds that a list, hints or statistics may take."""
EVERYTHING = Filter()
ENDLESS = 2**33
"""The end of a list that has none: seconds since 1970, beyond every interval."""


class Attendant(msgspec.Struct, frozen=True):
    """A node that can be asked, and what; `since` in seconds since 1970."""

    node: str
    version: str
    questions: tuple[str, ...]
    since: int


class NodeAnswer(msgspec.Struct, frozen=True):
    """An answer of a node; `finished` is its last word, with `error` where it could not answer."""

    node: str
    answer: Mapping[str, object] | None = None
    finished: bool = False
    error: str = ""


class Aggregator:
    """A channel to the aggregator, to be used in `async with`.

    Every method raises AggregatorUnavailable where it does not answer, and AggregatorError with
    its words where it refuses.
    """

    def __init__(self, place: Place, patience: float = PATIENCE) -> None:
        self._place, self._patience = place, patience
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Aggregator:
        self._channel = channel(self._place)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeError("an Aggregator is used in `async with`")
        return self._channel

    async def list(self, query: FlowQuery) -> Listing:
        """A page of flows of the whole cluster, sorted; without an end also of the interval that
        runs."""
        stub = goldmane_pb2_grpc.FlowsStub(self._opened())
        request = messages.list_message(query)
        # Goldmane lists an interval that the end cuts, but without its time and counts.
        request.start_time_lt = request.start_time_lt or ENDLESS
        try:
            result: pb.FlowListResult = await stub.List(request, timeout=self._patience)
        except grpc.aio.AioRpcError as problem:
            raise failure(problem, self._place, "listing flows") from None
        flows = tuple(Seen(one.id, messages.flow_of(one.flow)) for one in result.flows)
        return Listing(flows, result.meta.totalResults, result.meta.totalPages)

    async def stream(
        self, chosen: Filter = EVERYTHING, start: int = 0
    ) -> AsyncGenerator[Seen, None]:
        """Flows as their 15 seconds are complete, until the caller stops; `start` 0 is now, and
        anything else also gives what was before."""
        stub = goldmane_pb2_grpc.FlowsStub(self._opened())
        request = pb.FlowStreamRequest(
            start_time_gte=start, filter=messages.filter_message(chosen), aggregation_interval=15
        )
        call = stub.Stream(request)
        try:
            async for one in call:
                yield Seen(one.id, messages.flow_of(one.flow))
        except grpc.aio.AioRpcError as problem:
            raise failure(problem, self._place, "following flows") from None
        finally:
            call.cancel()

    async def hints(self, query: HintQuery) -> Hints:
        """The values that a filter could name."""
        stub = goldmane_pb2_grpc.FlowsStub(self._opened())
        request = messages.hints_message(query)
        try:
            result: pb.FilterHintsResult = await stub.FilterHints(request, timeout=self._patience)
        except grpc.aio.AioRpcError as problem:
            raise failure(problem, self._place, "asking for hints") from None
        values = tuple(one.value for one in result.hints)
        return Hints(values, result.meta.totalResults, result.meta.totalPages)

    async def statistics(self, query: StatisticsQuery) -> tuple[Series, ...]:
        """Figures by policy or rule; none where nothing matches."""
        stub = goldmane_pb2_grpc.StatisticsStub(self._opened())
        series: list[Series] = []
        try:
            call = stub.List(messages.statistics_message(query), timeout=self._patience)
            async for one in call:
                series.append(messages.series_of(one))
        except grpc.aio.AioRpcError as problem:
            # Goldmane's way of saying that there is nothing, after one empty result.
            if problem.code() is grpc.StatusCode.NOT_FOUND:
                return ()
            raise failure(problem, self._place, "asking for statistics") from None
        return tuple(series)

    async def nodes(self) -> tuple[Attendant, ...]:
        """The nodes that can be asked now, by name. A Goldmane of Calico's raises AggregatorError:
        it carries no questions."""
        stub = nodes_pb2_grpc.NodesStub(self._opened())
        try:
            result: nodes_pb2.ListResult = await stub.List(
                nodes_pb2.ListRequest(), timeout=self._patience
            )
        except grpc.aio.AioRpcError as problem:
            raise failure(problem, self._place, "listing nodes") from None
        return tuple(
            Attendant(one.node, one.version, tuple(one.questions), one.since)
            for one in result.nodes
        )

    async def ask(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        nodes: Iterable[str] = (),
        seconds: float = 10.0,
    ) -> AsyncGenerator[NodeAnswer, None]:
        """Ask these nodes (without any: all that attend); each answers as often as it wants within
        `seconds`, and once with `finished`. Leaving the loop cancels the question at the nodes.

        A node that does not attend, does not know the question or fails is an answer with `error`.
        """
        stub = nodes_pb2_grpc.NodesStub(self._opened())
        question = nodes_pb2.Question(
            nodes=nodes, name=name, arguments=msgspec.json.encode(arguments or {}), seconds=seconds
        )
        call = stub.Ask(question)
        try:
            async for one in call:
                yield _answer(one)
        except grpc.aio.AioRpcError as problem:
            raise failure(problem, self._place, f"asking nodes for {name}") from None
        finally:
            call.cancel()


def _answer(message: nodes_pb2.Answer) -> NodeAnswer:
    if message.finished:
        return NodeAnswer(message.node, None, True, message.error)
    try:
        answer = msgspec.json.decode(message.answer, type=dict[str, object])
    except NO_DOCUMENT as problem:
        raise AggregatorError(f"node {message.node}: its answer is no JSON: {problem}") from None
    return NodeAnswer(message.node, answer)
