"""The listening end of `cni.sock`: each connection is a `Channel` in a task of its own.

A want of descriptors or memory makes callers wait, it never ends the serving (CHAN-2). Connections
that ask nothing make no other wait: where there are too many, the oldest of them is closed
(CHAN-3). Directory 0700, socket 0600, and only root or our own user is let in (uid from
SO_PEERCRED).

Invariants:
  CHAN-2  A want of descriptors or memory delays callers; serving goes on.
  CHAN-3  Connections that ask nothing delay no call.

Tested in `tests/cni/test_protocol.py`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path

from cni.socket.channel import Channel
from libcalico.process import tasks
from libcalico.process.tasks import ended

log = logging.getLogger(__name__)

CONNECTIONS = 256
"""How many are served at a time; each may hold two descriptors, and 1024 is a usual limit."""
SILENCE_SECONDS = 0.5
"""How long a connection may say nothing while others wait for its place."""
ACCEPT_PAUSE = 0.2
WANTS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)


def listen(path: Path, backlog: int = 128) -> socket.socket:
    """Return a listening socket at `path`: directory 0700, socket 0600, a stale one replaced.

    Replacing is by rename, so there is no moment without a socket. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(fresh))
        fresh.chmod(0o600)
        sock.listen(backlog)
        sock.setblocking(False)
        fresh.rename(path)
    except BaseException:
        sock.close()
        fresh.unlink(missing_ok=True)
        raise
    return sock


async def serve(
    listener: socket.socket,
    handler: Callable[[Channel], Awaitable[None]],
    limit: int = CONNECTIONS,
) -> None:
    """Accept for ever; each connection runs `handler` in its own task and is closed after it.

    Peers that are neither root nor our own user are closed at once. At most `limit` are served
    at a time; for the next one the oldest that has not asked yet is closed, and where all have
    asked it waits in the kernel's queue. Ends when cancelled; then the listener is closed and the
    handlers are cancelled.
    """
    acceptor = _Acceptor(listener, handler, limit)
    acceptor.open()
    try:
        await acceptor.broken
    finally:
        acceptor.shut()
        listener.close()
        for task in acceptor.tasks:
            task.cancel()
        await ended(acceptor.tasks)


class _Acceptor:
    """Where connections come in: all that wait, in one turn of the loop."""

    def __init__(
        self, listener: socket.socket, handler: Callable[[Channel], Awaitable[None]], limit: int
    ) -> None:
        self._listener, self._handler, self._limit = listener, handler, limit
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.Task[None] | None = None
        self.tasks: dict[asyncio.Task[None], Channel] = {}
        self.broken: asyncio.Future[None] = self._loop.create_future()

    def open(self) -> None:
        """Accept connections from now on."""
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def shut(self) -> None:
        """Accept no more connections."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        for _ in range(self._limit):
            if len(self.tasks) >= self._limit:
                self._rest(self._until_room())
                return
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in WANTS:
                    log.error("no connection can be accepted now: %s", error.strerror)
                    self._rest(asyncio.sleep(ACCEPT_PAUSE))
                elif not self.broken.done():
                    self.broken.set_exception(error)
                return
            channel = Channel(sock)
            if channel.peer_uid not in (0, os.geteuid()):
                channel.close()
                continue
            task = tasks.start(_run(channel, self._handler), "a connection of cni.sock")
            self.tasks[task] = channel
            task.add_done_callback(self.tasks.pop)

    def _rest(self, until: Coroutine[object, object, None]) -> None:
        """Leave connections in the kernel's queue until the pause ends."""
        self._loop.remove_reader(self._listener.fileno())

        async def rest() -> None:
            await until
            self.open()

        self._pause = tasks.start(rest(), "pause of cni.sock")

    async def _until_room(self) -> None:
        while len(self.tasks) >= self._limit:
            await _room(self.tasks)


async def _room(tasks: Mapping[asyncio.Task[None], Channel]) -> None:
    """Wait until one ends; the oldest that has not asked is ended once it had its time."""
    silent = next(((task, peer) for task, peer in tasks.items() if not peer.asked), None)
    patience = None
    if silent is not None:
        task, peer = silent
        patience = peer.began + SILENCE_SECONDS - time.monotonic()
        if patience <= 0:
            task.cancel()
            patience = None
    await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)  # the ended ones leave the table


async def _run(channel: Channel, handler: Callable[[Channel], Awaitable[None]]) -> None:
    try:
        await handler(channel)
    finally:
        channel.close()
