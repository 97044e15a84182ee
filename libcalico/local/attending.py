"""A stream whose bytes somebody takes in the very turn of the event loop in which they come.

Problem: asyncio's reader wakes the task that waits for bytes, and that task runs a turn later. Who
answers within a millisecond, on a machine that is busy with the same pod elsewhere, notices.

`StreamProtocol` is asyncio's own until `attend` is called: hellos are read as usual. From then on
the reader is at its end, what it still holds comes first, and nothing is lost or given twice.
Tested in tests/libcalico/test_attending.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StreamProtocol(asyncio.StreamReaderProtocol):
    """asyncio's protocol of a stream, which can give its bytes away."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None] | None = None,
    ) -> None:
        super().__init__(reader, connected)
        self._reader = reader
        self._take: Callable[[bytes], None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._ended = False

    async def attend(self, take: Callable[[bytes], None]) -> None:
        """Give `take` all bytes from now on, until the peer ends. Raises what `take` raises; then
        nothing after it is given.
        """
        self._take = take
        self._over = asyncio.get_running_loop().create_future()
        # It has got its last bytes: what follows is not its own.
        self._reader.feed_eof()
        if data := await self._reader.read():
            self.data_received(data)
        if self._ended:
            self._end()
        await self._over

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._take is None or self._over is None:
            super().data_received(data)
        elif not self._over.done():
            try:
                self._take(data)
            except Exception as problem:  # noqa: BLE001 - handed to the attendant
                self._over.set_exception(problem)

    def eof_received(self) -> bool | None:
        """The peer says no more."""
        stays = super().eof_received()
        self._end()
        return stays

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._end()

    def _end(self) -> None:
        self._ended = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
