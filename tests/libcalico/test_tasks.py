"""TSK-1 to TSK-3: the failure of a task is heard of, whatever its owner does."""

from __future__ import annotations

import asyncio

import pytest

from libcalico.process import tasks
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import Background, beside
from tests.support.patience import patient, until


async def fails() -> None:
    raise OSError(11, "no process can be started")


async def until_cancelled() -> None:
    await asyncio.Event().wait()


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_what_nobody_takes_is_logged_while_the_task_is_still_referenced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "UNTAKEN", 0.0)

    async def story() -> None:
        task = tasks.start(fails(), "the read-back of rules")
        await until(lambda: caplog.records)
        assert task.done()

    asyncio.run(asyncio.wait_for(story(), patient(60)))
    assert "the read-back of rules has failed" in caplog.text
    assert "no process can be started" in caplog.text


def test_what_is_taken_or_cancelled_is_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "UNTAKEN", 0.01)

    async def story() -> None:
        with pytest.raises(OSError, match="no process"):
            await tasks.start(fails(), "awaited")
        failed = tasks.start(fails(), "waited for")
        await asyncio.wait([failed])
        assert isinstance(failed.exception(), OSError)
        tasks.start(until_cancelled(), "cancelled").cancel()
        await asyncio.sleep(0.05)

    asyncio.run(story())
    assert not caplog.records


def test_background_work_is_done_again_until_it_works_and_is_a_condition_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        told: list[list[tuple[str, str]]] = []
        background = Background(lambda: Backoff(0.001, 0.001))

        async def work() -> None:
            told.append(background.conditions())
            if len(told) < 4:
                await fails()

        background.keep("read-back", work)
        background.keep("read-back", fails)  # under way: not begun twice
        await until(lambda: not background.busy("read-back"))
        assert len(told) == 4
        assert told[0] == []
        assert all("no process can be started" in one[0][1] for one in told[1:])
        assert background.conditions() == []

    asyncio.run(asyncio.wait_for(story(), patient(60)))
    assert len([one for one in caplog.records if "read-back" in one.message]) == 1


def test_work_that_lasts_is_no_condition_any_more_and_ends_when_it_is_cancelled() -> None:
    async def story() -> None:
        background = Background(lambda: Backoff(0.001, 0.001), lasted=0.01)
        begun: list[list[tuple[str, str]]] = []

        async def work() -> None:
            begun.append(background.conditions())
            if len(begun) == 1:
                await fails()
            await until_cancelled()

        background.keep("watch", work)
        await until(lambda: len(begun) == 2 and not background.conditions())
        assert begun[1], "when it began again"
        assert background.busy("watch")
        task = background._tasks["watch"]
        background.stop()
        assert not background.busy("watch")
        await until(task.done)

    asyncio.run(asyncio.wait_for(story(), patient(60)))


def test_work_beside_a_body_ends_with_it() -> None:
    async def story() -> None:
        async with beside(until_cancelled()) as (work,):
            await asyncio.sleep(0)
        assert work.cancelled()
        with pytest.raises(KeyError):
            async with beside(until_cancelled()) as (work,):
                raise KeyError("the body's own")
        assert work.cancelled()

    asyncio.run(asyncio.wait_for(story(), patient(60)))


def test_work_that_fails_ends_the_body_with_its_own_exception() -> None:
    async def story() -> None:
        with pytest.raises(OSError, match="no process"):
            async with beside(until_cancelled(), fails()):
                await until_cancelled()
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    asyncio.run(asyncio.wait_for(story(), patient(60)))


def test_a_body_that_is_cancelled_from_outside_stays_cancelled() -> None:
    async def body() -> None:
        async with beside(until_cancelled()):
            await until_cancelled()

    async def story() -> None:
        task = tasks.start(body(), "body")
        await turns()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(asyncio.wait_for(story(), patient(60)))
