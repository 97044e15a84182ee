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


def test_it_rests_for_what_is_left_of_a_second_and_goes_on(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        taken = 0
        loop = asyncio.get_running_loop()
        rested: list[float] = []

        def read() -> int:
            nonlocal taken
            taken += 30
            if taken > 100 and not rested:
                rested.append(loop.time())
            return 30

        os.write(pipe[1], b"x")
        began = loop.time()
        rationed = Rationed(pipe[0], read, most=100)
        await until(lambda: rationed.rests)
        assert taken == 120, "what was begun is finished"
        await until(lambda: taken > 120)
        assert loop.time() - began >= 1.0
        rationed.close()
        rationed.close()
        after = taken
        await asyncio.sleep(0.05)
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
