"""Nodes: which attend, and questions on their way to them and back.

A node that attends a second time, after a connection that broke, takes the place of the first. A
question whose asker goes is cancelled at the node; one whose node goes ends with an error.

Invariants:
  FLW-4  For each node that was asked exactly one last word comes: `finished`, with or without an
         error, at the question's limit at the latest.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc

from flows import nodes_pb2 as pb
from flows import nodes_pb2_grpc
from flows.server.access import Access, Context
from flows.server.figures import Figures
from libcalico.process import tasks

LIMIT, LONGEST = 10.0, 300.0
"""Seconds of a question that names none, and at most."""
GRACE = 2.0
"""Seconds beyond its limit in which a node may say that it has reached it."""
WAITING = 10_000
"""Answers that wait for an asker who reads slowly; then the question is cancelled."""


@dataclass
class Visitor:
    """A node that attends: what goes out to it, and who waits for which question's answers."""

    node: str
    version: str
    questions: tuple[str, ...]
    since: int
    out: asyncio.Queue[pb.ToNode | None] = field(default_factory=asyncio.Queue)
    waiting: dict[int, asyncio.Queue[pb.Answer]] = field(default_factory=dict)

    def tell(self, answer: pb.Answer, question: int) -> None:
        """Hand an answer to who waits for it, if still."""
        queue = self.waiting.get(question)
        if queue is None:
            return
        if queue.qsize() < WAITING:
            queue.put_nowait(answer)
        elif self.waiting.pop(question, None) is not None:
            self.out.put_nowait(pb.ToNode(cancel=pb.Cancel(id=question)))
            text = f"more than {WAITING} answers wait to be read"
            queue.put_nowait(pb.Answer(node=self.node, finished=True, error=text))
        if answer.finished:
            self.waiting.pop(question, None)

    def gone(self, why: str) -> None:
        """End every question to this node."""
        for number in list(self.waiting):
            self.tell(pb.Answer(node=self.node, finished=True, error=why), number)
        self.out.put_nowait(None)


class NodesService(nodes_pb2_grpc.NodesServicer):  # type: ignore[misc]
    """Attend, Ask and List."""

    def __init__(self, access: Access, figures: Figures, clock: Callable[[], float]) -> None:
        self._access, self._figures, self._clock = access, figures, clock
        self._visitors: dict[str, Visitor] = {}
        self._numbers = itertools.count(1)

    async def Attend(
        self, incoming: AsyncIterator[pb.FromNode], context: Context
    ) -> AsyncIterator[pb.ToNode]:
        """Until the node goes."""
        await self._access.delivers(context)
        first = await anext(aiter(incoming), None)
        if first is None or not first.hello.node:
            text = "hello.node: the first message names the node"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            return
        visitor = self._admit(first.hello)
        # A greeting, so that the node knows that it attends.
        yield pb.ToNode()
        try:
            async with tasks.beside(self._listen(visitor, incoming), name="answers of a node"):
                while (message := await visitor.out.get()) is not None:
                    yield message
        finally:
            if self._visitors.get(visitor.node) is visitor:
                del self._visitors[visitor.node]
            visitor.gone("the node went before it had answered")
            self._figures.attending.set(len(self._visitors))

    def _admit(self, hello: pb.Hello) -> Visitor:
        visitor = Visitor(hello.node, hello.version, tuple(hello.questions), int(self._clock()))
        before = self._visitors.pop(visitor.node, None)
        if before is not None:
            before.gone("the node attends by a new connection")
        self._visitors[visitor.node] = visitor
        self._figures.attending.set(len(self._visitors))
        return visitor

    async def _listen(self, visitor: Visitor, incoming: AsyncIterator[pb.FromNode]) -> None:
        async for message in incoming:
            kind = message.WhichOneof("content")
            if kind == "answer":
                told = pb.Answer(node=visitor.node, answer=message.answer.answer)
                visitor.tell(told, message.answer.id)
            elif kind == "finished":
                error = message.finished.error
                told = pb.Answer(node=visitor.node, finished=True, error=error)
                visitor.tell(told, message.finished.id)
        visitor.out.put_nowait(None)

    async def Ask(self, question: pb.Question, context: Context) -> AsyncIterator[pb.Answer]:
        """The answers of all nodes that are asked, as they arrive."""
        await self._access.asks(context)
        if not 0 <= question.seconds <= LONGEST:
            text = f"seconds: {question.seconds:g} is not valid: 0 to {LONGEST:g}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if not question.name:
            text = "name: a question has a name"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        asked = dict.fromkeys(question.nodes or sorted(self._visitors))
        answers: asyncio.Queue[pb.Answer] = asyncio.Queue()
        begun: dict[str, tuple[Visitor, int]] = {}
        limit = question.seconds or LIMIT
        for node in asked:
            visitor = self._visitors.get(node)
            if (error := _obstacle(visitor, question.name)) or visitor is None:
                answers.put_nowait(pb.Answer(node=node, finished=True, error=error))
            else:
                begun[node] = visitor, self._begin(visitor, question, limit, answers)
        try:
            async for answer in self._collect(set(asked), answers, limit, question.name):
                yield answer
        finally:
            for visitor, number in begun.values():
                if visitor.waiting.pop(number, None) is not None:
                    visitor.out.put_nowait(pb.ToNode(cancel=pb.Cancel(id=number)))

    def _begin(
        self,
        visitor: Visitor,
        question: pb.Question,
        limit: float,
        answers: asyncio.Queue[pb.Answer],
    ) -> int:
        number = next(self._numbers)
        visitor.waiting[number] = answers
        begin = pb.Begin(id=number, name=question.name, arguments=question.arguments, seconds=limit)
        visitor.out.put_nowait(pb.ToNode(begin=begin))
        return number

    async def _collect(
        self, missing: set[str], answers: asyncio.Queue[pb.Answer], limit: float, name: str
    ) -> AsyncIterator[pb.Answer]:
        end = asyncio.get_running_loop().time() + limit + GRACE
        while missing:
            try:
                async with asyncio.timeout_at(end):
                    answer = await answers.get()
            except TimeoutError:
                break
            if answer.finished:
                missing.discard(answer.node)
            yield answer
        for node in sorted(missing):
            error = f"{name}: the node has not finished within {limit:g} s"
            yield pb.Answer(node=node, finished=True, error=error)

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListResult:
        """The nodes that attend, by name."""
        await self._access.asks(context)
        return pb.ListResult(
            nodes=[
                pb.Attending(
                    node=one.node, version=one.version, questions=one.questions, since=one.since
                )
                for _, one in sorted(self._visitors.items())
            ]
        )


def _obstacle(visitor: Visitor | None, name: str) -> str:
    """Why a question cannot be put to a node, empty where it can."""
    if visitor is None:
        return "the node does not attend: its felix has no connection to the aggregator"
    if name not in visitor.questions:
        known = ", ".join(visitor.questions) or "none"
        return f"{name!r} is no question of this node; it knows {known}"
    return ""
