"""A node's felix asked through an aggregator: the question `status`, and coming and going."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from felix.questions_afar import QuestionsAfar, table
from flows.client import Aggregator, NodeAnswer
from flows.place import Place
from libcalico.process import status_file
from tests.flows.running import aggregator
from tests.support.patience import until, until_asked


async def attends(place: Place, node: str) -> None:
    """Wait until the node can be asked."""
    async with Aggregator(place) as goldmane:

        async def there() -> bool:
            return node in {one.node for one in await goldmane.nodes()}

        await until_asked(there, f"{node} attends")


async def ask(place: Place, **arguments: object) -> list[NodeAnswer]:
    async with Aggregator(place) as goldmane:
        return [one async for one in goldmane.ask("status", arguments, nodes=["n1"])]


@pytest.mark.asyncio
async def test_status_is_what_the_three_files_say(tmp_path: Path) -> None:
    conditions = [{"object": "IPPool(p)", "reason": "overlaps"}]
    status_file.write("felix", {"node": "n1", "conditions": conditions}, tmp_path)
    status_file.write("cni", {"traces": [{"command": "ADD", "total_ms": 12.5}]}, tmp_path)
    link = QuestionsAfar("n1", table(tmp_path))
    async with aggregator() as running:
        link.configure(running.place.address)
        try:
            await attends(running.place, "n1")
            answer, last = await ask(running.place)
            wrong = await ask(running.place, verbose=True)
        finally:
            link.stop()
    assert answer.answer is not None
    assert last == NodeAnswer("n1", finished=True)
    felix, cni = answer.answer["felix"], answer.answer["cni"]
    assert isinstance(felix, dict)
    assert isinstance(cni, dict)
    assert felix["conditions"] == conditions
    assert cni["traces"][0]["total_ms"] == 12.5
    assert answer.answer["bgp"] is None
    assert "verbose: True is not valid: the question takes no arguments" in wrong[0].error


@pytest.mark.asyncio
async def test_it_follows_the_parameters(tmp_path: Path) -> None:
    """To another aggregator, to none, and to one that is not there."""
    link = QuestionsAfar("n1", table(tmp_path))
    async with aggregator() as first, aggregator() as second:
        link.configure(first.place.address)
        await attends(first.place, "n1")
        link.configure(second.place.address)
        await attends(second.place, "n1")
        gone = first.process.figures.attending
        await until(lambda: gone.value() == 0, "the first has seen it go")
        link.configure("127.0.0.1:1")
        await until(link.conditions, "the condition")
        ((what, why),) = link.conditions()
        assert what == "questions from the aggregator"
        assert "127.0.0.1:1" in why
        link.configure("")
        assert link.conditions() == []
        link.stop()


def test_without_an_aggregator_grpc_is_not_imported() -> None:
    code = "import sys, felix.questions_afar; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
