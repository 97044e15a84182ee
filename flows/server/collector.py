"""FlowCollector: what nodes send is counted, and each update gets its receipt.

Tested in tests/flows/test_client.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc, messages
from flows.aggregate.store import Store
from flows.server.access import Access, Context, sender_of
from flows.server.figures import Figures

LARGEST = 64 * 1024
"""Bytes of one flow; a trace of a hundred rules has a tenth of that."""
TOO_BIG = "larger than 64 KiB"


class Collector(goldmane_pb2_grpc.FlowCollectorServicer):  # type: ignore[misc]
    """Receives flows into a store."""

    def __init__(
        self, store: Store, access: Access, figures: Figures, clock: Callable[[], float]
    ) -> None:
        self._store, self._access, self._figures, self._clock = store, access, figures, clock

    async def Connect(
        self, updates: AsyncIterator[pb.FlowUpdate], context: Context
    ) -> AsyncIterator[pb.FlowReceipt]:
        """Until the node goes: one receipt for each update, of a refused flow too."""
        await self._access.delivers(context)
        sender = sender_of(context)
        self._figures.clients.inc()
        try:
            async for update in updates:
                self._receive(update, sender)
                yield pb.FlowReceipt()
        finally:
            self._figures.clients.inc(by=-1)

    def _receive(self, update: pb.FlowUpdate, sender: str) -> None:
        if update.ByteSize() > LARGEST:
            self._store.ring.left_out[TOO_BIG] += 1
            self._figures.received.inc()
            return
        flow = messages.flow_of(update.flow)
        self._figures.count(flow, self._store.receive(flow, sender, int(self._clock())))
