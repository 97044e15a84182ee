"""Waiting for an event that may not come (libcalico.process.waiting)."""

from __future__ import annotations

import asyncio

import pytest

from libcalico.process.waiting import set_within


@pytest.mark.asyncio
async def test_it_says_whether_the_event_came() -> None:
    event = asyncio.Event()
    assert not await set_within(event, 0.01)
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await set_within(event, None)
    assert await set_within(event, 0)
