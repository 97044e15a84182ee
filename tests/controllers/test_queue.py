"""The queue: once each, one worker a name, later after a failure (QUE-1 to QUE-3)."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.queue import WorkQueue
from tests.support.patience import HANG, until


@pytest.mark.asyncio
async def test_what_waits_is_given_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for name in ("a", "b", "a"):
        queue.add(name)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    queue.done("a")
    queue.done("b")
    assert len(queue) == 0


@pytest.mark.asyncio
async def test_what_is_told_while_it_is_looked_at_is_looked_at_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    name = await queue.get()
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    assert not waiting.done(), "QUE-2: it is with a worker"
    queue.done(name)
    assert await asyncio.wait_for(waiting, HANG) == "a", "QUE-1"


@pytest.mark.asyncio
async def test_a_failure_delays_its_own_name_only_and_news_do_not_hurry_it() -> None:
    queue: WorkQueue[str] = WorkQueue(first=600.0, longest=600.0)
    queue.add("bad")
    name = await queue.get()
    queue.add("bad")
    queue.done(name, failed=True)
    queue.add("good")
    assert await queue.get() == "good"
    queue.done("good")
    assert (len(queue), queue.failing) == (1, 1)
    queue.close()


@pytest.mark.asyncio
async def test_what_failed_comes_again_by_itself() -> None:
    queue: WorkQueue[str] = WorkQueue(first=0.01, longest=0.01)
    queue.add("bad")
    queue.done(await queue.get(), failed=True)
    assert await asyncio.wait_for(queue.get(), HANG) == "bad"
    queue.done("bad")
    assert (len(queue), queue.failing) == (0, 0)


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 1000))
def test_nothing_is_lost_and_no_name_is_with_two_workers(names: list[int], seed: int) -> None:
    asyncio.run(_churn(names, random.Random(seed)))


async def _churn(names: list[int], chance: random.Random) -> None:
    queue: WorkQueue[int] = WorkQueue(first=0.0001, longest=0.0002)
    seen: dict[int, int] = {}
    version: dict[int, int] = {}
    working: set[int] = set()

    async def act(name: int) -> bool:
        assert name not in working, "QUE-2"
        working.add(name)
        at = version[name]
        await asyncio.sleep(0)
        working.discard(name)
        if chance.random() < 0.3:
            return False
        seen[name] = at
        return True

    workers = [asyncio.create_task(queue.work(act)) for _ in range(3)]
    for number, name in enumerate(names):
        version[name] = number
        queue.add(name)
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    await until(lambda: not len(queue), pause=0.001)
    for worker in workers:
        worker.cancel()
    assert seen == version, "QUE-1, QUE-3: the last state of each was looked at"
