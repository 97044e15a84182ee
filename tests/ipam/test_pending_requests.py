"""The callers of one request: each waits for itself, and one that leaves disturbs no other."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from ipam.allocator.pending_requests import PendingRequest
from ipam.allocator.requests import Granted
from ipam.records.errors import NoPool
from tests.ipam.world import allocate

GRANTED = Granted((ip_address("10.0.0.1"),))


async def callers(ticket: PendingRequest, leaves: int) -> list[asyncio.Task[Granted]]:
    """Three that wait for the end of a request; `leaves` is the one that does so no longer."""
    waiting = [asyncio.create_task(ticket.settled()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[leaves].cancel()
    await asyncio.wait([waiting[leaves]])
    return waiting


@pytest.mark.asyncio
@pytest.mark.parametrize("leaves", range(3))
async def test_a_caller_that_leaves_keeps_the_answer_from_no_other(leaves: int) -> None:
    ticket = PendingRequest(allocate("web"))
    waiting = await callers(ticket, leaves)
    ticket.grant(GRANTED)
    await asyncio.sleep(0)
    answers = [task.result() for task in waiting if task.done() and not task.cancelled()]
    assert answers == [GRANTED, GRANTED]
    assert await ticket.settled() == GRANTED, "one that comes later is told at once"


@pytest.mark.asyncio
@pytest.mark.parametrize("leaves", range(3))
async def test_a_caller_that_leaves_keeps_the_refusal_from_no_other(leaves: int) -> None:
    ticket = PendingRequest(allocate("web"))
    waiting = await callers(ticket, leaves)
    ticket.fail(NoPool("none"))
    await asyncio.sleep(0)
    errors = [task.exception() for task in waiting if task.done() and not task.cancelled()]
    assert [type(one) for one in errors] == [NoPool, NoPool]
    with pytest.raises(NoPool):
        await ticket.settled()


@pytest.mark.asyncio
async def test_an_abandoned_request_ends_all_who_wait_and_is_granted_in_vain() -> None:
    ticket = PendingRequest(allocate("web"))
    waiting = [asyncio.create_task(ticket.settled()) for _ in range(2)]
    await asyncio.sleep(0)
    ticket.abandon()
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    ticket.grant(GRANTED)
    ticket.fail(NoPool("none"))
    assert ticket.done.cancelled()
    assert ticket.tentative.cancelled()
