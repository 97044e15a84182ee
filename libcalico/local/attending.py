"""A stream whose bytes are handled in the very turn of the event loop in which they come.

Problem: asyncio's reader wakes the task that waits for bytes, and that task runs a turn later. A
process that answers within a millisecond, on a machine busy with the same pod elsewhere, notices.

`StreamProtocol` is asyncio's own until `attend` is called: hellos are read as usual. From then on
the reader is at its end, what it still holds comes first, and nothing is lost or given twice.
Tested in tests/libcalico/test_attending.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StreamProtocol(asyncio.StreamReaderProtocol):
    """asyncio's protocol of a stream, which can hand its bytes to a callback."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None] | None = None,
    ) -> None:
        super().__init__(reader, connected)
        self._reader = reader
        self._on_bytes: Callable[[bytes], None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._ended = False

    async def attend(self, on_bytes: Callable[[bytes], None]) -> None:
        """Call `on_bytes` with all bytes from now on, until the peer ends.

        Raises what `on_bytes` raises, and calls it no more after that.
        """
        self._on_bytes = on_bytes
        self._over = asyncio.get_running_loop().create_future()
        # The reader has its last bytes: what follows goes to `on_bytes`.
        self._reader.feed_eof()
        if data := await self._reader.read():
            self.data_received(data)
        if self._ended:
            self._end()
        await self._over

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the callback, or to the reader before `attend` is called."""
        if self._on_bytes is None or self._over is None:
            super().data_received(data)
        elif not self._over.done():
            try:
                self._on_bytes(data)
            except Exception as problem:  # noqa: BLE001 - raised by `attend`
                self._over.set_exception(problem)

    def eof_received(self) -> bool | None:
        """Note that the peer sends nothing more."""
        stays = super().eof_received()
        self._end()
        return stays

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is over."""
        super().connection_lost(exc)
        self._end()

    def _end(self) -> None:
        self._ended = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
