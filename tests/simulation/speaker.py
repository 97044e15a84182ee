"""calico-bgp as felix hears it: a connection, a snapshot, changes; it goes and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from libcalico.errors import MuslinError
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.node_api import Hello, Path, Paths, PathsBegin, PathsEnd
from libcalico.process import paths
from tests.simulation.runner import Run


class Speaker:
    """`ways`: what it may tell, prefixes with their next hops. `told`: what it tells now."""

    def __init__(self, run: Run, ways: Mapping[str, str]) -> None:
        self._run, self._ways = run, ways
        self.told: dict[str, str] = {}
        self._connection: Connection | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether felix listens."""
        return self._connection is not None

    async def tell_all(self) -> None:
        """Connect if need be, and tell a snapshot."""
        if self._connection is None:
            try:
                self._connection = await connect_unix(paths.NODE_SOCKET, Hello("bgp"))
            except (OSError, MuslinError):
                return
            self._run.trace.story("bgp: connected")
            self._listening = asyncio.create_task(self._listen(self._connection))
        found = [Path(prefix, [hop]) for prefix, hop in self.told.items()]
        await self._send(PathsBegin(), Paths(found), PathsEnd())

    async def change(self) -> None:
        """A way comes or goes."""
        prefix, hop = self._run.chance.choice(sorted(self._ways.items()))
        gone = prefix in self.told
        self._run.trace.story(f"bgp: {'withdraws' if gone else 'tells'} {prefix}")
        if gone:
            del self.told[prefix]
        else:
            self.told[prefix] = hop
        await self._send(Paths([] if gone else [Path(prefix, [hop])], [prefix] if gone else []))

    async def leave(self) -> None:
        """It dies."""
        self._run.trace.story("bgp: gone")
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _send(self, *messages: Paths | PathsBegin | PathsEnd) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            for message in messages:
                await connection.send(message)
        except (OSError, MuslinError):
            if self._connection is connection:
                self._connection = None

    async def _listen(self, connection: Connection) -> None:
        async for _ in connection:
            pass
        if self._connection is connection:
            self._connection = None
