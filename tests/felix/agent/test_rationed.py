"""RAT-1: a descriptor that is always ready does not take the whole loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from felix.rationed import Rationed
from tests.support.patience import until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    yield reader, writer
    os.close(reader)
    os.close(writer)


async def turns(number: int = 20) -> None:
    """So many turns of the loop, which need no clock."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_it_rests_for_what_is_left_of_a_second_and_goes_on(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        taken, now = 0, 1000.0
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: now)

        def read() -> int:
            nonlocal taken, now
            taken, now = taken + 30, now + 0.125
            return 30

        os.write(pipe[1], b"x")
        rationed = Rationed(pipe[0], read, most=100)
        await turns()
        assert rationed.rests == 1
        assert taken == 120, "what was begun is finished"
        now = 1000.875
        await turns()
        assert taken == 120, "the second is not over"
        now = 1001.0
        await turns(3)
        assert taken > 120
        rationed.close()
        rationed.close()
        after = taken
        await turns()
        assert taken == after

    asyncio.run(story())


def test_it_may_be_closed_while_it_reads_and_while_it_rests(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        os.write(pipe[1], b"x")
        first: list[Rationed] = []

        def read() -> int:
            first[0].close()
            return 1000

        first.append(Rationed(pipe[0], read, most=100))
        await until(lambda: first[0]._closed)
        resting = Rationed(pipe[0], lambda: 1000, most=100)
        await until(lambda: resting.rests)
        resting.close()

    asyncio.run(story())
