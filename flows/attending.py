"""A node that can be asked: one stream to the aggregator, over which questions come.

The table of questions belongs to the process that attends: a name, and a function that takes the
arguments of a question and yields answers, each a JSON object. A question ends with its function,
at its limit of seconds, or when nothing waits for the answer any more; then the function is
cancelled where it stands.

Tested in tests/flows/test_attending.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping

import grpc.aio
import msgspec

from flows import nodes_pb2 as pb
from flows import nodes_pb2_grpc
from flows.place import AggregatorError, Place, channel, failure
from libcalico.errors import NO_DOCUMENT, MuslinError
from libcalico.process import tasks
from libcalico.process.backoff import Backoff

Answering = Callable[[Mapping[str, object]], AsyncIterator[Mapping[str, object]]]
"""Answers a question; MuslinError with what the asker may read where it cannot."""

MOST = 16
"""Questions that a node works at at once; one more is refused by name."""
WAITING = 256
"""Answers that wait to be sent, of all questions; a function that yields more waits."""
LONGEST = 300.0
"""Seconds of a question at most."""

log = logging.getLogger(__name__)


class Attendance:
    """Keeps the stream and answers by the table; `trouble` says why there is no stream now."""

    def __init__(
        self, place: Place, node: str, version: str, questions: Mapping[str, Answering]
    ) -> None:
        self._place, self._node, self._version = place, node, version
        self._questions = questions
        self.trouble = ""

    async def run(self) -> None:
        """Attend until cancelled; a stream that fails is made again, later each time."""
        pause = Backoff(initial=0.5, maximum=10.0)
        while True:
            try:
                await self._attend(pause)
            except AggregatorError as problem:
                self.trouble = str(problem)
            await pause.wait()

    async def _attend(self, pause: Backoff) -> None:
        async with channel(self._place) as link:
            call = nodes_pb2_grpc.NodesStub(link).Attend()
            hello = pb.Hello(
                node=self._node, version=self._version, questions=sorted(self._questions)
            )
            visit = _Visit(call, self._questions)
            try:
                await call.write(pb.FromNode(hello=hello))
                async with tasks.beside(visit.send(), name="answers to questions"):
                    async for message in call:
                        # The first word is the aggregator's greeting: it has taken the node in.
                        self.trouble = ""
                        pause.reset()
                        visit.accept(message)
            except grpc.aio.AioRpcError as problem:
                raise failure(problem, self._place, "attending to questions") from None
            except asyncio.InvalidStateError:
                # An answer was to be written when the stream had ended already.
                raise AggregatorError(
                    f"aggregator {self._place.address}: the stream ended"
                ) from None
            finally:
                call.cancel()
                await visit.leave()
        raise AggregatorError(f"aggregator {self._place.address}: it has closed the stream")


class _Visit:
    """The questions of one stream that are being answered."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[pb.FromNode, pb.ToNode],
        questions: Mapping[str, Answering],
    ) -> None:
        self._call, self._questions = call, questions
        self._work: dict[int, asyncio.Task[None]] = {}
        self._out: asyncio.Queue[pb.FromNode] = asyncio.Queue(WAITING)

    async def send(self) -> None:
        """Send answers as they come, until cancelled."""
        while True:
            await self._call.write(await self._out.get())

    def accept(self, message: pb.ToNode) -> None:
        """Begin or cancel a question."""
        kind = message.WhichOneof("content")
        if kind == "begin":
            begin = message.begin
            self._work[begin.id] = tasks.start(self._answer(begin), f"question {begin.name}")
        elif kind == "cancel" and (work := self._work.get(message.cancel.id)) is not None:
            work.cancel()

    async def leave(self) -> None:
        """Cancel every question, and wait until each function has ended."""
        work = list(self._work.values())
        for one in work:
            one.cancel()
        await tasks.ended(work)

    async def _answer(self, begin: pb.Begin) -> None:
        error, limit = "", min(begin.seconds or LONGEST, LONGEST)
        try:
            async with asyncio.timeout(limit):
                await self._run(begin)
        except TimeoutError:
            error = f"{begin.name}: no complete answer within {limit:g} s"
        except MuslinError as problem:
            error = str(problem)
        except Exception as problem:
            log.exception("question %s has failed", begin.name)
            error = f"{begin.name} has failed on the node: {problem!r}"
        finally:
            del self._work[begin.id]
        await self._out.put(pb.FromNode(finished=pb.Finished(id=begin.id, error=error)))

    async def _run(self, begin: pb.Begin) -> None:
        if len(self._work) > MOST:
            raise AggregatorError(f"{begin.name}: the node already works at {MOST} questions")
        answering = self._questions.get(begin.name)
        if answering is None:
            known = ", ".join(sorted(self._questions)) or "none"
            raise AggregatorError(f"{begin.name!r} is no question of this node; it knows {known}")
        try:
            arguments = msgspec.json.decode(begin.arguments or b"{}", type=dict[str, object])
        except NO_DOCUMENT as problem:
            raise AggregatorError(
                f"{begin.name}: arguments are no JSON object: {problem}"
            ) from None
        async for answer in answering(arguments):
            partial = pb.Partial(id=begin.id, answer=msgspec.json.encode(answer))
            await self._out.put(pb.FromNode(answer=partial))
