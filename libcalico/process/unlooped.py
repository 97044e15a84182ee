"""Coroutines without an event loop, for a command that does one thing after the other.

Problem: asyncio is a fifth of the processor time of a short command, and such a command never has
two things to wait for. Its calls on a datastore return only when they have their answer
(`libcalico.datastore.blocking`), so its coroutines run from end to end in one step. What needs a
loop after all (a watch, several calls at once) is run by `asyncio.run` as everywhere.
Tested in tests/libcalico/test_unlooped.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """The result of a coroutine that waits for nothing that a loop would have to bring."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine without an event loop waits for one")


def in_loop() -> bool:
    """Whether an event loop runs here."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def pause(seconds: float) -> None:
    """Let time pass, with a loop and without."""
    if not in_loop():
        time.sleep(seconds)  # noqa: ASYNC251 - nothing else is going on
        return
    import asyncio

    await asyncio.sleep(seconds)
