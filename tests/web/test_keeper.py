"""Facts are read while pages are open, kept over failures, and each view is made once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from libcalico.errors import DatastoreUnavailable
from tests.support.patience import until
from web.facts import keeper as module
from web.facts.facts import Facts
from web.facts.keeper import Keeper


def test_a_failure_is_told_beside_what_was_known() -> None:
    answers: list[Facts | Exception] = [
        Facts(aggregator="first"),
        DatastoreUnavailable("https://u:canary@etcd:2379 does not answer"),
    ]

    def read(_before: Facts | None) -> Facts:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def story() -> None:
        keeper = Keeper(read)
        await keeper.once()
        await keeper.once()
        assert keeper.facts is not None
        assert keeper.facts.aggregator == "first"
        assert "does not answer" in keeper.error
        assert "canary" not in keeper.error
        assert keeper.version == 2

    asyncio.run(story())


def test_a_view_is_made_once_for_many_and_anew_for_newer_facts() -> None:
    made: list[str] = []

    def make(facts: Facts) -> str:
        made.append(facts.aggregator)
        return facts.aggregator

    async def enrich(facts: Facts) -> Facts:
        return replace(facts, aggregator=f"reading {len(made)}")

    async def story() -> None:
        keeper = Keeper(lambda _: Facts(), enrich)
        await keeper.once()
        same = await asyncio.gather(*(keeper.view("k", make) for _ in range(5)))
        assert set(same) == {"reading 0"}
        await keeper.once()
        assert await keeper.view("k", make) == "reading 1"
        assert len(made) == 2

    asyncio.run(story())


def test_nothing_is_read_while_no_page_is_open() -> None:
    now = [0.0]
    readings: list[float] = []

    def read(_before: Facts | None) -> Facts:
        readings.append(now[0])
        return Facts()

    async def story() -> None:
        keeper = Keeper(read, clock=lambda: now[0])
        task = asyncio.create_task(keeper.run())
        try:
            await until(lambda: readings)
            now[0] += 10 * module.OPEN
            await until(lambda: keeper.waits)
            assert len(readings) == 1
            keeper.touch()
            await until(lambda: len(readings) > 1)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    every, module.EVERY = module.EVERY, 0.0
    try:
        asyncio.run(story())
    finally:
        module.EVERY = every
