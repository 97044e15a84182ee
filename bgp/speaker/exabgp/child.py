"""One running ExaBGP: started, heard, killed. Nothing is decided here.

The kernel kills ExaBGP when the agent dies, and the agent hears of ExaBGP's end by its pipes, so
there is never a half-alive pair (BGP-1).

ExaBGP writes to its pipe with blocking writes: a reader that waits stops its keepalives,
and the peers drop our routes when the hold time ends. So a thread reads, and only reads:
lines go to the event loop in batches, and the thread does not wait for the loop (BGP-2).

Invariants (tests/bgp/test_exabgp.py):
  BGP-1  Agent and ExaBGP end together: neither lives on without the other.
  BGP-2  The thread that reads ExaBGP's pipe never waits for the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import select
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

from bgp.speaker.exabgp import child_command
from bgp.speaker.exabgp.child_command import START_TIMEOUT, readable
from bgp.speaker.exabgp.portions import Portions
from libcalico.errors import MuslinError
from libcalico.process.waiting import set_within

log = logging.getLogger(__name__)

_PIPE_SIZE = 1 << 20

OnLines = Callable[[list[bytes], list[bytes]], None]
OnEnd = Callable[[], None]
Admit = Callable[[list[bytes]], list[bytes]]
"""Called by the reader's thread: which lines of the API are handed over (`backlog`)."""


class ChildFailed(MuslinError):
    """ExaBGP did not start, or refused its configuration."""


class Child:
    """A started ExaBGP. Make it with `Child.start`."""

    def __init__(
        self, process: asyncio.subprocess.Process, on_lines: OnLines, on_end: OnEnd, admit: Admit
    ):
        self._process, self._on_lines, self._on_end = process, on_lines, on_end
        self._said = Portions(lambda lines: on_lines(lines, []))
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._to_exabgp = self._from_exabgp = self._log_fd = -1
        self._ended = asyncio.Event()
        self.heard = 0

    @property
    def pid(self) -> int:
        """ExaBGP's process id."""
        return self._process.pid

    @classmethod
    async def start(
        cls,
        configuration: Path,
        uid: int,
        on_lines: OnLines,
        on_end: OnEnd,
        admit: Admit = list,
    ) -> Child:
        """Start ExaBGP, and wait until it listens.

        `on_lines(api lines, log lines)` is called on the loop; `on_end` once, when ExaBGP ended.
        Raises `ChildFailed` with ExaBGP's last words.
        """
        commands, to_exabgp = os.pipe()
        from_exabgp, lines = os.pipe()
        log_read, log_write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *child_command.command("server", configuration, uid, (commands, lines)),
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                pass_fds=(commands, lines),
                env=child_command.environment(),
            )
        except BaseException as error:
            _close(to_exabgp, from_exabgp, log_read)
            if isinstance(error, OSError):
                raise ChildFailed(f"exabgp cannot be started: {error}") from error
            raise
        finally:
            _close(commands, lines, log_write)
        child = cls(process, on_lines, on_end, admit)
        child._to_exabgp, child._from_exabgp, child._log_fd = to_exabgp, from_exabgp, log_read
        try:
            await child._listens()
        except BaseException as error:
            await child._abort()
            words = _drain(log_read)
            _close(to_exabgp, from_exabgp, log_read)
            if isinstance(error, TimeoutError):
                raise ChildFailed(f"exabgp did not start: {words or error}") from error
            raise
        child._watch()
        return child

    async def _listens(self) -> None:
        """Until it says its first line. Raises `TimeoutError`."""
        with contextlib.suppress(OSError):  # a smaller pipe is only slower
            fcntl.fcntl(self._from_exabgp, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        spoke = asyncio.Event()
        self._loop.add_reader(self._from_exabgp, spoke.set)
        try:
            await set_within(spoke, START_TIMEOUT)
        finally:
            self._loop.remove_reader(self._from_exabgp)
        if not spoke.is_set():
            raise TimeoutError(f"it said nothing within {START_TIMEOUT:g} s")
        if not _holds(self._from_exabgp):
            raise TimeoutError(f"exit {await self._process.wait()}")

    def _watch(self) -> None:
        threading.Thread(target=self._read, name="exabgp-reader", daemon=True).start()

    def _read(self) -> None:
        """The reader thread: lines to the loop, until ExaBGP ends (BGP-2)."""
        rest = {self._from_exabgp: b"", self._log_fd: b""}
        poller = select.poll()
        for descriptor in rest:
            poller.register(descriptor, select.POLLIN)
        try:
            alive = True
            while alive:
                lines: dict[int, list[bytes]] = {descriptor: [] for descriptor in rest}
                for descriptor, _ in poller.poll():
                    try:
                        data = os.read(descriptor, 1 << 18)
                    except OSError:
                        data = b""
                    if not data:
                        alive = False
                        continue
                    self.heard += descriptor == self._from_exabgp
                    *whole, rest[descriptor] = (rest[descriptor] + data).split(b"\n")
                    lines[descriptor] = whole
                api, logged = self._admit(lines[self._from_exabgp]), lines[self._log_fd]
                if api or logged:
                    self._loop.call_soon_threadsafe(self._hand_over, api, logged)
        except RuntimeError:
            return  # the loop is closed: the agent is going
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            pass

    def _hand_over(self, api: list[bytes], logged: list[bytes]) -> None:
        if logged:
            self._on_lines([], logged)
        self._said.add(api)

    def _finish(self) -> None:
        self._kill()
        self._said.finish()
        _close(self._from_exabgp, self._to_exabgp, self._log_fd)
        self._to_exabgp = -1
        self._ended.set()
        self._on_end()

    def send(self, line: str) -> None:
        """Write one command. The caller keeps one in flight, so this does not block."""
        if self._to_exabgp < 0:
            return
        try:
            os.write(self._to_exabgp, line.encode("ascii") + b"\n")
        except OSError as error:
            log.debug("exabgp does not read: %s", error)

    def signal(self, number: int) -> None:
        """Send a signal; a dead child is no error."""
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            pass

    def _kill(self) -> None:
        try:
            self._process.kill()
        except ProcessLookupError:
            pass

    async def kill(self) -> None:
        """SIGKILL, and wait until `on_end` was called: sessions end without NOTIFICATION."""
        self._kill()
        await self._ended.wait()
        await self._process.wait()

    async def _abort(self) -> None:
        self._kill()
        await self._process.wait()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _holds(pipe: int) -> bool:
    """Whether there is something to read from a pipe at whose end the poller was."""
    return bool(int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder))


def _drain(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    try:
        text = os.read(descriptor, 1 << 16)
    except OSError:
        return ""
    return " | ".join(readable(line) for line in text.splitlines()[-6:] if line.strip())
