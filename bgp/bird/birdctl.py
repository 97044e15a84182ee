"""The sockets where BIRD's would be: `bird.ctl` for IPv4, `bird6.ctl` for IPv6, 0660.

For `birdc -s`, Calico's own `calicoctl node status` and other clients of BIRD. No client may delay
the agent: answers are made and written in slices, a client that does not read is disconnected, and
the number of clients and the length of their lines are limited.

  BCT-1  A socket that another process serves is left alone: a BIRD that runs is not replaced.
Tested in tests/bgp/test_birdctl.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from bgp.bird import birdlines
from bgp.bird.birdanswers import answer
from bgp.bird.world import World
from libcalico.process import paths
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import beside, ended

log = logging.getLogger(__name__)

NAMES = {4: "bird.ctl", 6: "bird6.ctl"}
CLIENTS, LINE, SLICE = 16, 1024, 64
IDLE, STALLED = 600.0, 10.0
"""Seconds: without a command, and without reading what we write."""


def directory(environ: Mapping[str, str]) -> Path | None:
    """Where the sockets are: CALICO_BIRD_CTL_DIR, /var/run/calico by default; `none`: nowhere."""
    path = environ.get("CALICO_BIRD_CTL_DIR", "").strip()
    return None if path == "none" else Path(path or paths.RUN)


class ControlServer:
    """Both sockets. `trouble` says why one is not served."""

    def __init__(self, folder: Path, worlds: Mapping[int, World]) -> None:
        self._folder, self._worlds = folder, worlds
        self._clients: set[asyncio.Task[None]] = set()
        self.trouble: dict[int, str] = {}

    def conditions(self) -> list[tuple[str, str]]:
        """For an operator."""
        return [(NAMES[family], why) for family, why in sorted(self.trouble.items())]

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with beside(*(self._serve(family) for family in self._worlds)) as servers:
                await asyncio.wait(servers)
        finally:
            for task in self._clients:
                task.cancel()
            await ended(self._clients)

    async def _serve(self, family: int) -> None:
        path, backoff = self._folder / NAMES[family], Backoff(1.0, 30.0)
        while True:
            try:
                listening = _listen(path)
                break
            except OSError as error:
                if family not in self.trouble:
                    log.warning("BIRD's control socket is not served: %s: %s", path, error)
                self.trouble[family] = f"{path} is not served: {error}"
                await backoff.wait()
        self.trouble.pop(family, None)
        mine = path.stat().st_ino

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._clients) >= CLIENTS:
                writer.transport.abort()
                return
            task = asyncio.current_task()
            assert task is not None
            self._clients.add(task)
            try:
                await _converse(reader, writer, self._worlds[family])
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                pass  # gone, or cut off
            finally:
                self._clients.discard(task)
                writer.transport.abort()

        try:
            async with await asyncio.start_unix_server(
                accept, sock=listening, limit=LINE
            ) as server:
                await server.serve_forever()
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == mine:
                    path.unlink()


def _listen(path: Path) -> socket.socket:
    """A socket at `path`, in place of one that no process serves. Raises `OSError`."""
    with socket.socket(socket.AF_UNIX) as other:
        other.setblocking(False)
        try:
            other.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        else:
            raise FileExistsError("another process answers there (is a BIRD running?)")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(fresh))
        fresh.chmod(0o660)
        listening.listen(CLIENTS)
        fresh.rename(path)
    except BaseException:
        listening.close()
        raise
    return listening


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, world: World
) -> None:
    writer.write(f"{birdlines.WELCOME:04} BIRD {world.version} ready.\n".encode())
    while True:
        try:
            async with asyncio.timeout(IDLE):
                command = await reader.readline()
        except ValueError:
            writer.write(f"{birdlines.SYNTAX:04} the line is too long\n".encode())
            await _drained(writer)
            return
        if not command.endswith(b"\n"):
            return
        text = command.decode(errors="replace").strip()
        if text in ("quit", "exit"):
            return
        lines = birdlines.encode(answer(text, world))
        while part := list(itertools.islice(lines, SLICE)):
            writer.writelines(part)
            await _drained(writer)


async def _drained(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(STALLED):
        await writer.drain()
    await asyncio.sleep(0)  # others' turn, also where the reader is fast
