"""Flows on their way: receipts, connections that break, an aggregator that restarts, room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flows.client import Aggregator
from flows.place import Place
from flows.query import FlowQuery
from flows.record import Flow
from flows.sending import Sender
from flows.server import process
from flows.server.process import Process
from flows.server.settings import Settings
from libcalico.process import tasks
from tests.flows.running import Clock, aggregator
from tests.flows.test_client import DB, START, WEB, WORLD, flow
from tests.support.patience import until


def many(count: int, start: int = START) -> list[Flow]:
    return [flow(WEB, DB, port=port, start=start) for port in range(1000, 1000 + count)]


@asynccontextmanager
async def sending(place: Place, **more: object) -> AsyncIterator[Sender]:
    sender = Sender(place, "n1", **more)  # type: ignore[arg-type]
    async with tasks.beside(sender.run(), name="sender"):
        yield sender


async def packets(place: Place) -> int:
    async with Aggregator(place) as goldmane:
        listing = await goldmane.list(FlowQuery())
    return sum(one.flow.counts.packets_in for one in listing.flows)


@pytest.mark.asyncio
async def test_what_is_offered_arrives_once_and_has_its_receipt() -> None:
    async with aggregator() as running, sending(running.place) as sender:
        sender.offer(WORLD.values())
        sender.offer(many(3000))
        total = 3000 + len(WORLD)
        await until(lambda: sender.counters.received == total, "every receipt")
        assert await packets(running.place) == 2 * total
        assert (sender.waiting, sender.counters.lost, sender.trouble) == (0, 0, "")


@pytest.mark.asyncio
async def test_a_new_connection_repeats_and_nothing_counts_twice() -> None:
    async with aggregator() as running:
        sender = Sender(running.place, "n1")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(many(10))
            await until(lambda: sender.counters.received == 10, "every receipt")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(many(1, START + 15))
            await until(lambda: sender.counters.received == 11, "the next receipt")
        assert await packets(running.place) == 22
        assert running.process.figures.repeated.value() == 10


@pytest.mark.asyncio
async def test_an_aggregator_that_restarts_gets_the_last_minutes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "PARTING", 0.0)  # the sender's stream does not end by itself
    async with aggregator() as running, sending(running.place) as sender:
        sender.offer(many(10))
        await until(lambda: sender.counters.received == 10, "every receipt")
        await running.process.stop()
        sender.offer(many(5, START + 15))
        again = Process(
            Settings(port=running.process.port, health=False), host="127.0.0.1", clock=Clock()
        )
        await again.start()
        try:
            await until(lambda: sender.counters.received == 15, "the receipts of the new one")
            assert await packets(running.place) == 30
            assert sender.counters.connections >= 2
        finally:
            await again.stop()


@pytest.mark.asyncio
async def test_without_an_aggregator_the_oldest_are_lost_and_counted() -> None:
    async with sending(Place("127.0.0.1:1"), most=5) as sender:
        await until(lambda: sender.trouble, "the trouble is known")
        sender.offer(many(8))
        assert (sender.counters.lost, sender.waiting) == (3, 5)
        assert "127.0.0.1:1" in sender.trouble


@pytest.mark.asyncio
async def test_what_was_received_goes_after_a_while() -> None:
    clock = Clock(0)
    async with aggregator() as running:
        sender = Sender(running.place, "n1", keep=300, clock=clock)
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(many(3))
            await until(lambda: sender.counters.received == 3, "every receipt")
            clock.now = 301
            sender.offer(many(1, START + 15))
            await until(lambda: sender.counters.received == 4, "the fourth")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(many(1, START + 30))
            await until(lambda: sender.counters.received == 5, "the fifth")
        assert running.process.figures.repeated.value() == 1
        assert sender.counters.lost == 0


@pytest.mark.asyncio
async def test_what_is_dropped_under_way_stops_nothing() -> None:
    """More than there is room for, offered at once and again: each is received or lost."""
    async with aggregator() as running, sending(running.place, most=50) as sender:
        for round_number in range(20):
            sender.offer(many(40, START - 15 * round_number))
            await until(lambda: sender.counters.connections > 0, "a connection")
        await until(lambda: sender.waiting == 0, "nothing waits")
        counters = sender.counters
        assert counters.received + counters.lost == counters.offered == 800


def test_a_process_that_only_has_records_has_no_grpc() -> None:
    """Felix without flow logs pays nothing: records and questions import no gRPC."""
    import subprocess
    import sys

    code = "import sys, flows.record, flows.query, flows.written; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
