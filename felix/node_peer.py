"""A peer of felix on `node.sock`: what it offered and awaits, and the messages to it.

A message waits in a map by subject, so a slow reader costs one message a subject and never stalls
the main loop. Tested in tests/felix/agent/test_node_server.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from felix.calc.endpoints import Endpoint
from libcalico.local.framing import Connection
from libcalico.local.node_api import Await, Message
from libcalico.model import ResourceKey


class Peer:
    """One connection: what it offered and awaits, and what waits to be sent to it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.offers: dict[ResourceKey, Endpoint] = {}
        self.awaits: dict[ResourceKey, Await] = {}
        self._outbox: dict[Hashable, Message] = {}
        self._wake = asyncio.Event()

    def post(self, subject: Hashable, message: Message) -> None:
        """Send as soon as the peer reads; a newer message of the same subject replaces it."""
        if not self._outbox and self.connection.send_now(message):
            return
        self._outbox.pop(subject, None)
        self._outbox[subject] = message
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        return len(self._outbox)

    async def deliver(self) -> None:
        """Send what waits, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                subject = next(iter(self._outbox))
                await self.connection.send(self._outbox.pop(subject))
