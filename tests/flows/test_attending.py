"""Questions to nodes and back, through the aggregator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from flows.attending import Answering, Attendance
from flows.client import Aggregator, NodeAnswer
from flows.place import AggregatorError, Place
from libcalico.errors import InvalidValue
from libcalico.process import tasks
from tests.flows.running import NOW, Running, aggregator
from tests.support.patience import until, until_asked

Answers = AsyncIterator[Mapping[str, object]]


async def echo(arguments: Mapping[str, object]) -> Answers:
    yield {"you said": arguments}


async def count(arguments: Mapping[str, object]) -> Answers:
    for number in range(int(str(arguments["to"]))):
        yield {"number": number}


async def refuse(arguments: Mapping[str, object]) -> Answers:
    raise InvalidValue("port", arguments.get("port"), "1 to 65535")
    yield {}


async def break_down(_arguments: Mapping[str, object]) -> Answers:
    raise KeyError("a defect")
    yield {}


class Endless:
    """A question that never ends by itself; it tells whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def __call__(self, _arguments: Mapping[str, object]) -> Answers:
        self.begun += 1
        try:
            yield {"begun": True}
            await asyncio.Event().wait()
        finally:
            self.ended += 1


@asynccontextmanager
async def attending(
    running: Running, node: str, questions: Mapping[str, Answering]
) -> AsyncIterator[Attendance]:
    attendance = Attendance(running.place, node, "v1", questions)
    async with (
        Aggregator(running.place) as goldmane,
        tasks.beside(attendance.run(), name="attendance"),
    ):
        await versions(goldmane, {node})
        yield attendance


async def versions(goldmane: Aggregator, wanted: set[str], exactly: bool = False) -> None:
    """Wait until nodes of these names or versions attend; exactly: no others."""

    async def there() -> bool:
        found = await goldmane.nodes()
        known = {one.node for one in found} | {one.version for one in found}
        return not known if exactly else wanted <= known

    await until_asked(there, f"{wanted} attend")


async def ask(place: Place, name: str, **more: object) -> list[NodeAnswer]:
    # A limit that no busy machine reaches, where the test names none.
    asked = {"seconds": 300.0, **more}
    async with Aggregator(place) as goldmane:
        return [one async for one in goldmane.ask(name, **asked)]  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_a_question_and_its_answer() -> None:
    async with aggregator() as running, attending(running, "n1", {"echo": echo}):
        answers = await ask(running.place, "echo", arguments={"a": [1]}, nodes=["n1"])
    assert answers == [
        NodeAnswer("n1", {"you said": {"a": [1]}}),
        NodeAnswer("n1", finished=True),
    ]


@pytest.mark.asyncio
async def test_all_nodes_at_once_and_many_answers_of_each() -> None:
    async with (
        aggregator() as running,
        attending(running, "n1", {"count": count}),
        attending(running, "n2", {"count": count}),
    ):
        answers = await ask(running.place, "count", arguments={"to": 500})
    for node in ("n1", "n2"):
        of_node = [one for one in answers if one.node == node]
        assert [one.answer for one in of_node[:-1]] == [{"number": n} for n in range(500)]
        assert of_node[-1] == NodeAnswer(node, finished=True)


@pytest.mark.asyncio
async def test_the_nodes_that_can_be_asked_are_listed() -> None:
    questions = {"echo": echo, "count": count}
    async with (
        aggregator() as running,
        attending(running, "n1", questions),
        Aggregator(running.place) as goldmane,
    ):
        (one,) = await goldmane.nodes()
    assert (one.node, one.version, one.questions, one.since) == ("n1", "v1", ("count", "echo"), NOW)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("node", "name", "error"),
    [
        ("n9", "echo", "the node does not attend"),
        ("n1", "sing", "'sing' is no question of this node; it knows break, echo, refuse"),
        ("n1", "refuse", "port: 0 is not valid: 1 to 65535"),
        ("n1", "break", "break has failed on the node: KeyError('a defect')"),
    ],
)
async def test_why_there_is_no_answer_is_said(node: str, name: str, error: str) -> None:
    questions = {"echo": echo, "refuse": refuse, "break": break_down}
    async with aggregator() as running, attending(running, "n1", questions):
        (answer,) = await ask(running.place, name, arguments={"port": 0}, nodes=[node])
        after = await ask(running.place, "echo", nodes=["n1"])
    assert (answer.node, answer.finished) == (node, True)
    assert error in answer.error
    assert len(after) == 2, "the node goes on answering"


@pytest.mark.asyncio
async def test_a_question_ends_at_its_limit_and_the_function_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The node's word is waited for, however busy this machine is.
    monkeypatch.setattr("flows.server.nodes.GRACE", 60.0)
    endless = Endless()
    async with aggregator() as running, attending(running, "n1", {"endless": endless}):
        answers = await ask(running.place, "endless", seconds=0.2)
        await until(lambda: endless.ended == 1, "the function has ended")
    assert answers[0].answer == {"begun": True}
    assert answers[1].error == "endless: no complete answer within 0.2 s"


@pytest.mark.asyncio
async def test_an_asker_who_goes_cancels_at_the_node() -> None:
    endless = Endless()
    async with aggregator() as running, attending(running, "n1", {"endless": endless}):
        async with Aggregator(running.place) as goldmane:
            answers = goldmane.ask("endless", seconds=300)
            assert (await anext(answers)).answer == {"begun": True}
            await answers.aclose()
        await until(lambda: endless.ended == 1, "the function has ended")


@pytest.mark.asyncio
async def test_a_node_that_goes_ends_its_questions() -> None:
    endless = Endless()
    async with aggregator() as running, Aggregator(running.place) as goldmane:
        async with attending(running, "n1", {"endless": endless}):
            answers = goldmane.ask("endless", seconds=300)
            await anext(answers)
        last = await anext(answers)
        assert (last.finished, last.error) == (True, "the node went before it had answered")
        assert endless.ended == 1
        await versions(goldmane, set(), exactly=True)


@pytest.mark.asyncio
async def test_a_node_that_comes_again_takes_its_own_place() -> None:
    async with (
        aggregator() as running,
        Aggregator(running.place) as goldmane,
        attending(running, "n1", {"echo": echo}),
    ):
        second = Attendance(running.place, "n1", "v2", {"echo": echo})
        async with tasks.beside(second.run(), name="second"):
            await versions(goldmane, {"v2"})
            assert len(await ask(running.place, "echo")) == 2


@pytest.mark.asyncio
async def test_a_node_attends_again_after_the_aggregator_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.server import process
    from flows.server.process import Process
    from flows.server.settings import Settings
    from tests.flows.running import Clock

    monkeypatch.setattr(process, "PARTING", 0.0)  # the node's stream does not end by itself
    async with aggregator() as running, attending(running, "n1", {"echo": echo}) as attendance:
        await running.process.stop()
        await until(lambda: attendance.trouble, "the node has noticed")
        port = running.process.port
        again = Process(Settings(port=port, health=False), host="127.0.0.1", clock=Clock())
        await again.start()
        try:
            await until(lambda: not attendance.trouble, "it attends again")
            assert len(await ask(running.place, "echo", nodes=["n1"])) == 2
        finally:
            await again.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("more", "field"), [({"seconds": 301.0}, "seconds"), ({"seconds": -1.0}, "seconds")]
)
async def test_a_question_without_end_is_refused(more: dict[str, float], field: str) -> None:
    async with aggregator() as running:
        with pytest.raises(AggregatorError, match=f"{field}: .* is not valid"):
            await ask(running.place, "echo", **more)
