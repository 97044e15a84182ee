"""CNI-41: calls of one container take turns, whatever becomes of those that wait."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.socket.container_locks import ContainerLocks
from tests.support.patience import patient

CALL = st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 3), st.sampled_from([None, 0, 1]))


@given(st.lists(CALL, max_size=12))
def test_calls_of_one_container_never_overlap(calls: list[tuple[str, int, int | None]]) -> None:
    """Each call takes some turns of the loop; some are cancelled, early or late."""

    async def main() -> None:
        locks, inside, worked = ContainerLocks(), set[str](), 0

        async def call(container: str, steps: int) -> None:
            nonlocal worked
            async with locks.acquire(container):
                assert container not in inside
                assert not container or container in locks.busy
                if container:
                    inside.add(container)
                try:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    worked += 1
                finally:
                    inside.discard(container)

        tasks = [asyncio.create_task(call(container, steps)) for container, steps, _ in calls]
        for late in (0, 1):
            await asyncio.sleep(0)
            for task, (_, _, when) in zip(tasks, calls, strict=True):
                if when == late:
                    task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in done)
        assert worked == sum(each is None for each in done)
        assert worked >= sum(when is None for _, _, when in calls), "none was forgotten"
        assert locks.busy == frozenset()

    asyncio.run(asyncio.wait_for(main(), patient(20)))


@pytest.mark.asyncio
async def test_a_failure_ends_the_turn() -> None:
    locks = ContainerLocks()
    with pytest.raises(ValueError, match="for a test"):
        async with locks.acquire("a"):
            raise ValueError("for a test")
    async with asyncio.timeout(patient(20)), locks.acquire("a"):
        assert locks.busy == {"a"}
