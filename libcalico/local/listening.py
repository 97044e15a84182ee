"""The listening side of a node-local socket: accepts peers and exchanges hellos.

`libcalico.local.framing` has the connection and the invariants; FRM-3 is kept here.
Tested in tests/libcalico/test_framing.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from libcalico.local.attending import StreamProtocol
from libcalico.local.frames import MAX_FRAME, ProtocolError
from libcalico.local.framing import HELLO_TIMEOUT, Connection
from libcalico.local.node_api import Hello
from libcalico.process import tasks
from libcalico.process.tasks import ended

log = logging.getLogger(__name__)

OnConnection = Callable[[Connection], Awaitable[None]]


class UnixServer:
    """A listening socket; made by `serve_unix`."""

    def __init__(self, path: Path, hello: Hello, on_connection: OnConnection) -> None:
        self._path, self._hello = path, hello
        self._on_connection = on_connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Listen. The path appears in one step, with its mode set (FRM-3)."""
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        making = directory / f".{self._path.name}.{os.getpid()}"
        making.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(str(making))
            making.chmod(0o600)
            self._inode = making.stat().st_ino
            listener.setblocking(False)
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: StreamProtocol(asyncio.StreamReader(MAX_FRAME), self._accept),
                sock=listener,
                backlog=128,
            )
            making.rename(self._path)
        except BaseException:
            listener.close()
            making.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        """Stop listening, end every connection, remove the path if it is still ours."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await ended(self._tasks)
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = tasks.start(self._serve(reader, writer), "a connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            if connection.peer_uid not in (0, os.geteuid()):
                log.warning("a peer was turned away: uid %d", connection.peer_uid)
                return
            await connection.exchange_hellos(self._hello, HELLO_TIMEOUT)
            await self._on_connection(connection)
        except (ProtocolError, ConnectionError) as error:
            log.warning("connection of %s ended: %s", connection.process or "a peer", error)
        except Exception:
            log.exception("the handler of a connection failed")
        finally:
            await connection.close()

    async def __aenter__(self) -> UnixServer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def serve_unix(
    path: str | Path,
    on_connection: OnConnection,
    *,
    hello: Hello | None = None,
) -> UnixServer:
    """Listen on `path`; each connection runs `on_connection` and is closed when it returns.

    The hellos are exchanged before `on_connection` is called. A path left by a dead process
    is replaced. Raises `OSError` when the path cannot be made (a socket path holds at most
    107 bytes). Use as `async with await serve_unix(...)` or call `close()`.
    """
    server = UnixServer(Path(path), hello or Hello(process="felix"), on_connection)
    await server.start()
    return server
