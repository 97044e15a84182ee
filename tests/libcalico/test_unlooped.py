"""Coroutines without an event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from libcalico.process import unlooped


async def paused() -> str:
    await unlooped.pause(0.01)
    return "done"


def test_runs_to_the_end_without_a_loop() -> None:
    before = time.monotonic()
    assert unlooped.run(paused()) == "done"
    assert time.monotonic() - before >= 0.01


def test_a_pause_in_a_loop_lets_others_work() -> None:
    async def both() -> list[str]:
        return list(await asyncio.gather(paused(), paused()))

    assert asyncio.run(both()) == ["done", "done"]


def test_what_waits_for_a_loop_is_a_defect() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for one"):
        unlooped.run(waits())


def test_an_error_passes() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        unlooped.run(fails())


def test_knows_whether_a_loop_runs() -> None:
    async def ask() -> bool:
        return unlooped.in_loop()

    assert not unlooped.in_loop()
    assert not unlooped.run(ask())
    assert asyncio.run(ask())
