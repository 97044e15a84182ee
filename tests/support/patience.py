"""How long a test waits for what must happen: a limit that only catches a hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

HANG = 120.0
"""Seconds. The slowest machine that still works has long done what a test waits for."""


def patient(seconds: float) -> float:
    """The limit of a wait that takes `seconds` at most where nothing else runs."""
    return max(HANG, seconds)


def wait_for(
    check: Callable[[], T], what: object = "", pause: float = 0.02, limit: float = HANG
) -> T:
    """Poll until `check` gives something true, and give it; `what` stands in the failure.

    `limit`: seconds, where the machine may take longer than `HANG`.
    """
    until = time.monotonic() + patient(limit)
    while not (found := check()):
        assert time.monotonic() < until, f"never: {told(what)}; last: {found!r}"
        time.sleep(pause)
    return found


async def until(
    check: Callable[[], object], what: object = "", pause: float = 0.01, limit: float = HANG
) -> None:
    """The same while the event loop runs."""
    end = time.monotonic() + patient(limit)
    while not (found := check()):
        assert time.monotonic() < end, f"never: {told(what)}; last: {found!r}"
        await asyncio.sleep(pause)


async def until_asked(ask: Callable[[], Awaitable[object]], what: object = "") -> None:
    """The same where the answer must be awaited."""
    end = time.monotonic() + HANG
    while not (found := await ask()):
        assert time.monotonic() < end, f"never: {told(what)}; last: {found!r}"
        await asyncio.sleep(0.02)


def told(what: object) -> object:
    """Words for a failure, or what makes them when it is one."""
    return what() if callable(what) else what
