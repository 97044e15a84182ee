"""Nodes asked through an aggregator: answers, errors, and silence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from calicoctl.status import live
from calicoctl.status.facts import Answer
from flows.client import Aggregator as Client
from libcalico.errors import MuslinError
from tests.calicoctl.status_world import documents
from tests.flows.running import aggregator
from tests.flows.test_attending import attending
from tests.support.patience import until_asked


@dataclass(frozen=True)
class Told:
    node: str
    answer: Mapping[str, object] | None = None
    finished: bool = False
    error: str = ""


@dataclass
class Aggregator:
    """Gives these answers, then fails if it is to."""

    answers: list[Told]
    failure: str = ""
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def ask(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        nodes: Iterable[str] = (),
        seconds: float = 1.0,
    ) -> AsyncIterator[live.Told]:
        self.asked.append((name, tuple(nodes)))
        for one in self.answers:
            yield one
        if self.failure:
            raise MuslinError(self.failure)


FELIX = {"version": "v1"}


@pytest.mark.asyncio
async def test_each_node_has_an_answer_or_the_reason() -> None:
    aggregator = Aggregator([
        Told("n1", {"felix": FELIX, "bgp": None, "cni": 7}),
        Told("n1", finished=True),
        Told("n2", finished=True, error="it does not attend"),
    ])  # fmt: skip
    found = await live.answers(aggregator, ["n1", "n2", "n3"])
    assert aggregator.asked == [("status", ("n1", "n2", "n3"))]
    assert found["n1"] == Answer({"felix": FELIX})
    assert (found["n2"].error, found["n3"].error) == ("it does not attend", "no answer came")


@pytest.mark.asyncio
async def test_an_aggregator_that_fails_half_way_keeps_what_came() -> None:
    found = await live.answers(Aggregator([Told("n1", {"felix": FELIX})], "gone"), ["n1", "n2"])
    assert (found["n1"].error, found["n2"].error) == ("", "gone")
    with pytest.raises(MuslinError, match="gone"):
        await live.answers(Aggregator([], "gone"), ["n1"])


@pytest.mark.asyncio
async def test_nodes_answer_through_a_real_aggregator() -> None:
    async def status(arguments: Mapping[str, object]) -> AsyncIterator[Mapping[str, object]]:
        yield {**documents(), "cni": None}

    async with (
        aggregator() as running,
        attending(running, "n1", {"status": status}),
        Client(running.place) as client,
    ):
        await until_asked(client.nodes, "the node attends")
        found = await live.answers(client, ["n1", "n2"], 5.0)
    assert set(found["n1"].documents) == {"felix", "bgp"}
    assert found["n2"].error
