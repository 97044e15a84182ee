"""A TCP forwarder that a test can cut: the network between a client and a real server."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Forwards 127.0.0.1:`port` to a target until `cut()`; `mend()` lets new connections pass."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._open = True
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._marker = b""
        self._held = asyncio.Event()
        self.port = 0

    async def start(self) -> Proxy:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self) -> None:
        """Drop all connections and accept none that lives."""
        self._open = False
        for task in self._tasks:
            task.cancel()

    def mend(self) -> None:
        """Forward again."""
        self._open, self._marker = True, b""
        self._flowing.set()

    def hold(self, marker: bytes) -> asyncio.Event:
        """Hang before the first piece that has these bytes in it; the event tells that it came."""
        self._marker, self._held = marker, asyncio.Event()
        return self._held

    def hang(self) -> None:
        """Keep every connection, accept more, and let nothing through."""
        self._flowing.clear()

    def forget(self) -> None:
        """What stands lets nothing through any more, and nobody is told; what is made anew does."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def stop(self) -> None:
        """Stop listening; what was forwarded has ended."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not self._open:
            writer.close()
            return
        self._tasks.add(task)
        other: asyncio.StreamWriter | None = None
        try:
            back, other = await asyncio.open_connection("127.0.0.1", self._target)
            flowing = self._flowing
            ways = (reader, other), (back, writer)
            await asyncio.gather(*(self._pump(*way, flowing) for way in ways))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, other):
                if end is not None:
                    with contextlib.suppress(OSError):
                        end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        tail = b""
        while data := await reader.read(65536):
            tail = self._looked_through(tail + data)
            await flowing.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

    def _looked_through(self, data: bytes) -> bytes:
        """Hang where the marker is in it; the end of it that may begin a marker."""
        if not self._marker:
            return b""
        if self._marker in data:
            self.hang()
            self._held.set()
        return data[max(0, len(data) - len(self._marker) + 1) :]
