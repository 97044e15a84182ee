"""Best paths -> felix, over `node.sock`: a snapshot, its end mark, then what changes.

felix may not run yet, die and come back; so may we. Each connection starts with a snapshot
of what is known. The end mark goes out only once the start gate has passed (all peers
have sent End-of-RIB): until it, felix keeps what the kernel has.

Changes wait in a table keyed by prefix: a burst of changes to one prefix costs one message,
and a felix that does not read costs memory for each prefix once.

  PUB-1  After `PathsEnd`, and whenever the queue is empty, felix holds exactly `current`.
Tested in tests/bgp/test_publish.py against the real framing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from bgp.decide.routing import Best, BestPath
from bgp.speaker.interface import IPNetwork
from libcalico.local import framing, node_api
from libcalico.local.frames import ProtocolError
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import beside

log = logging.getLogger(__name__)

BATCH = 16_000
"""Prefixes and next hops in one frame: below 2 MiB also where all are of IPv6."""


class Publisher:
    """Keeps felix told. `on_message` gets what felix says (`Fact`, `RefusedPath`)."""

    def __init__(
        self, socket_path: Path, on_message: Callable[[node_api.Message], None] | None = None
    ) -> None:
        self._path, self.on_message = socket_path, on_message
        self.current: dict[IPNetwork, BestPath] = {}
        self._pending: dict[IPNetwork, None] = {}
        self._complete = False
        self._told_complete = False
        self._wake = asyncio.Event()
        self.connected = False
        self.on_connected: Callable[[], None] = lambda: None

    def publish(self, changes: Iterable[Best]) -> None:
        """New best paths; None: the prefix has none any more."""
        for prefix, path in changes:
            if path is None:
                self.current.pop(prefix, None)
            else:
                self.current[prefix] = path
            if self.connected:  # else a snapshot comes first: what came and went costs nothing
                self._pending[prefix] = None
        self._wake.set()

    def complete(self) -> None:
        """The start gate has passed: snapshots may be ended."""
        self._complete = True
        self._wake.set()

    async def run(self) -> None:
        """Connect, tell, reconnect; until cancelled."""
        backoff = Backoff(initial=0.05, maximum=1.0)
        while True:
            try:
                connection = await framing.connect_unix(self._path, node_api.Hello(process="bgp"))
            except (OSError, ProtocolError) as error:
                log.debug("felix is not there: %s", error)
                await backoff.wait()
                continue
            backoff.reset()
            self.connected = True
            log.info("connected to felix")
            self.on_connected()
            try:
                async with connection:
                    await self._converse(connection)
            except (OSError, ProtocolError) as error:
                log.warning("the connection to felix ended: %s", error)
            finally:
                self.connected = False
            await backoff.wait()

    async def _converse(self, connection: framing.Connection) -> None:
        async with beside(self._tell(connection)):
            await self._listen(connection)

    async def _listen(self, connection: framing.Connection) -> None:
        async for message in connection:
            if self.on_message is not None:
                self.on_message(message)

    async def _tell(self, connection: framing.Connection) -> None:
        self._pending = dict.fromkeys(self.current)
        self._told_complete = False
        await connection.send(node_api.PathsBegin())
        while True:
            self._wake.clear()  # before what is said: more may come while felix does not read
            while self._pending:
                await connection.send(self._batch())
            self._pending.clear()  # an emptied table keeps the room of all that it ever had
            if self._complete and not self._told_complete:
                await connection.send(node_api.PathsEnd())
                self._told_complete = True
            await self._wake.wait()

    def _batch(self) -> node_api.Paths:
        prefixes: list[IPNetwork] = []
        room = BATCH
        for prefix in self._pending:
            path = self.current.get(prefix)
            room -= 3 + (len(path.next_hops) if path else 0)
            if room < 0 and prefixes:
                break
            prefixes.append(prefix)
        for prefix in prefixes:
            del self._pending[prefix]
        return node_api.Paths(
            updated=[
                _told(prefix, path) for prefix in prefixes if (path := self.current.get(prefix))
            ],
            withdrawn=[str(prefix) for prefix in prefixes if prefix not in self.current],
        )


def _told(prefix: IPNetwork, path: BestPath) -> node_api.Path:
    return node_api.Path(str(prefix), list(path.next_hops), path.origin, path.peer)
