"""The aggregator, asked by the page: a real one, to which a node attends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from flows.attending import Attendance
from flows.place import Place
from flows.query import FlowQuery
from flows.record import Counts, Flow
from libcalico.process import tasks
from tests.flows.running import aggregator
from tests.flows.test_client import START, deliver
from tests.support.patience import HANG, until_asked
from tests.support.ports import free_ports
from tests.web import world
from tests.web.test_flows_view import flow
from web.facts import asking as module
from web.facts.asking import WITHOUT, Asking
from web.facts.facts import Facts
from web.facts.words import AGGREGATOR
from web.pages.pages import flow_content
from web.views.flows import flow_view


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need long for an answer."""
    monkeypatch.setattr(module, "SECONDS", HANG)


async def status(_arguments: Mapping[str, object]) -> AsyncIterator[Mapping[str, object]]:
    """n2's three documents, one with a secret in it."""
    yield dict(world.documents_of_n2(reason="https://root:canary@etcd:2379 is away"))


async def fails(_arguments: Mapping[str, object]) -> AsyncIterator[Mapping[str, object]]:
    """A node that cannot answer."""
    raise OSError("no status files")
    yield {}


def test_the_words_of_the_nodes_that_attend() -> None:
    async def story() -> None:
        async with aggregator() as running:
            asking = Asking(running.place)
            good = Attendance(running.place, "n2", "v1", {"status": status})
            bad = Attendance(running.place, "n3", "v1", {"status": fails})
            async with (
                tasks.beside(good.run(), name="n2"),
                tasks.beside(bad.run(), name="n3"),
            ):
                facts = Facts()

                async def words() -> bool:
                    nonlocal facts
                    facts = await asking.enrich(Facts())
                    return set(facts.words) == {"n2", "n3"}

                await until_asked(words)
                assert facts.aggregator == ""
                word = facts.words["n2"]
                assert word.source == AGGREGATOR
                assert word.bgp.objects("peers")[1]["cause"] == "refused"
                assert "canary" not in repr(word)
                assert facts.words["n3"].error
                own = replace(Facts(), words={"n2": world.word_of_n2()})
                assert (await asking.enrich(own)).words["n2"] is own.words["n2"]

    asyncio.run(story())


def test_flows_with_their_filters() -> None:
    async def story() -> None:
        async with aggregator() as running:
            await deliver(running, [Flow(flow().key, START, START + 15, Counts(started=5))])
            asking = Asking(running.place)
            listing, why = await asking.flows(FlowQuery())
            assert listing is not None
            assert why == ""
            shown = flow_view(listing)
            assert shown.rows[0].decided == "allow: tier default, NetworkPolicy data/db, rule 2"
            assert "data/db" in await flow_content(asking, {"source_namespace": "shop"})
            assert "No flow fits" in await flow_content(asking, {"source_namespace": "other"})

    asyncio.run(story())


def test_without_an_aggregator_it_says_how_to_get_one() -> None:
    async def story() -> None:
        asking = Asking(None)
        assert (await asking.enrich(Facts())).aggregator == WITHOUT
        assert await asking.flows(FlowQuery()) == (None, WITHOUT)
        assert "There is no aggregator" in await flow_content(asking, {})
        assert "is not valid" in await flow_content(asking, {"port": "x"})

    asyncio.run(story())


def test_one_that_does_not_answer_is_told_and_the_rest_stays() -> None:
    (port,) = free_ports(1)

    async def story() -> None:
        asking = Asking(Place(f"127.0.0.1:{port}"))
        own = replace(Facts(), words={"n2": world.word_of_n2()})
        facts = await asking.enrich(own)
        assert f"127.0.0.1:{port}" in facts.aggregator
        assert set(facts.words) == {"n2"}
        listing, why = await asking.flows(FlowQuery())
        assert listing is None
        assert f"127.0.0.1:{port}" in why

    asyncio.run(story())
