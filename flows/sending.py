"""Flows on their way from a node to the aggregator (`FlowCollector.Connect`).

Each flow gets a receipt. What was sent stays in memory for a while: after a new connection it is
sent once more, because the aggregator may have lost its memory; one that has not knows it again.
So an aggregator that restarts loses nothing of the last `KEEP` seconds.

Invariants:
  FLW-1  At most `most` flows are held. What must go before it was received counts as lost, oldest
         first; nothing waits.
Tested in tests/flows/test_sending.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import grpc.aio

from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc
from flows.messages import flow_message
from flows.place import NODE, AggregatorError, Place, channel, failure
from flows.record import Flow
from libcalico.process.backoff import Backoff

KEEP = 300.0
"""Seconds for which Calico's Felix and Goldmane remember what was sent."""
MOST = 50_000
WINDOW = 1_000
"""Flows that are under way without a receipt."""


@dataclass(slots=True)
class Sent:
    """What became of the flows that were offered, in numbers since the start."""

    offered: int = 0
    received: int = 0
    lost: int = 0
    connections: int = 0


class Sender:
    """Keeps a connection to the aggregator and sends what is offered.

    `node` tells the aggregator which sender repeats itself. `counters` says what became of all
    flows, `trouble` why there is no connection now, "" while there is one or none was tried yet.
    One flow of a key in an interval: a second one with equal key, start and end counts as repeated.
    """

    def __init__(
        self,
        place: Place,
        node: str,
        *,
        most: int = MOST,
        keep: float = KEEP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._node = place, node
        self._most, self._keep, self._clock = most, keep, clock
        self._held: dict[int, tuple[float, Flow]] = {}
        """By number, in order; those below `_received` had a receipt once."""
        self._next_number = 0
        self._position = 0
        """The number that is sent next on this connection."""
        self._received = 0
        self._acknowledged = 0
        """Of this connection: the number below which all have receipts."""
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self.counters = Sent()
        self.trouble = ""

    @property
    def waiting(self) -> int:
        """Flows that were never received so far."""
        return self._next_number - max(self._received, self._oldest())

    def offer(self, flows: Iterable[Flow]) -> None:
        """Take flows to send; returns at once. What there is no room for is lost, oldest first."""
        now = self._clock()
        for flow in flows:
            self._held[self._next_number] = (now, flow)
            self._next_number += 1
            self.counters.offered += 1
        self._forget(now)
        self._more.set()

    def _oldest(self) -> int:
        return next(iter(self._held), self._next_number)

    def _forget(self, now: float) -> None:
        """Drop what was received and is old, and what there is no room for (FLW-1)."""
        while self._held:
            number = self._oldest()
            received = number < self._received
            old = now - self._held[number][0] > self._keep
            if len(self._held) <= self._most and not (received and old):
                return
            del self._held[number]
            if not received:
                self.counters.lost += 1
                self._received = number + 1

    async def run(self) -> None:
        """Send until cancelled; a connection that fails is made again, later each time."""
        pause = Backoff(initial=0.5, maximum=10.0)
        while True:
            received = self.counters.received
            try:
                await self._connected()
            except AggregatorError as problem:
                self.trouble = str(problem)
            if self.counters.received > received:
                pause.reset()
            await pause.wait()

    async def _connected(self) -> None:
        """One connection, to its end. Raises AggregatorError."""
        self._position = self._acknowledged = self._oldest()
        async with channel(self._place) as link:
            stub = goldmane_pb2_grpc.FlowCollectorStub(link)
            call = stub.Connect(self._updates(), metadata=((NODE, self._node),))
            self.counters.connections += 1
            try:
                async for _receipt in call:
                    self._receipt()
            except grpc.aio.AioRpcError as problem:
                raise failure(problem, self._place, "sending flows") from None
            finally:
                call.cancel()
        raise AggregatorError(f"aggregator {self._place.address}: it has closed the connection")

    def _receipt(self) -> None:
        self.trouble = ""
        self._acknowledged += 1
        if self._acknowledged > self._received:
            self._received = self._acknowledged
            self.counters.received += 1
        self._room.set()

    async def _updates(self) -> AsyncIterator[pb.FlowUpdate]:
        """The messages of a connection, as they are offered; ends with the call that reads it."""
        while True:
            while self._position - self._acknowledged >= WINDOW:
                self._room.clear()
                await self._room.wait()
            # What was dropped meanwhile is passed over; it needs no receipt.
            if self._position < self._oldest():
                self._acknowledged += self._oldest() - self._position
                self._position = self._oldest()
            if self._position == self._next_number:
                self._more.clear()
                await self._more.wait()
                continue
            flow = self._held[self._position][1]
            self._position += 1
            yield pb.FlowUpdate(flow=flow_message(flow))
