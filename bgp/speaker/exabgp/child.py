"""One running ExaBGP: started, heard, killed. Nothing is decided here.

The chain of lives: agent -> exabgp -> relay. Each is killed by the kernel when the one
before it dies, and the agent kills the rest when one behind it dies, so there is never a
half-alive pair (BGP-1).

ExaBGP writes to its pipe with blocking writes: a reader that waits stops its keepalives,
and the peers drop our routes when the hold time ends. So a thread reads, and only reads:
lines go to the event loop in batches, and the thread does not wait for the loop (BGP-2).

Invariants (tests/bgp/test_exabgp.py):
  BGP-1  Agent, ExaBGP and relay end together: no part of the pair lives on without the others.
  BGP-2  The thread that reads ExaBGP's pipe never waits for the event loop.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from bgp.speaker.exabgp import child_command
from bgp.speaker.exabgp.child_command import START_TIMEOUT, readable
from bgp.speaker.exabgp.portions import Portions
from libcalico.errors import MuslinError
from libcalico.process import tasks

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
        self._agent: socket.socket | None = None
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
        socket_path: Path,
        uid: int,
        on_lines: OnLines,
        on_end: OnEnd,
        admit: Admit = list,
    ) -> Child:
        """Start ExaBGP and take over its pipes.

        `on_lines(api lines, log lines)` is called on the loop; `on_end` once, when the chain
        of processes is broken. Raises `ChildFailed` with ExaBGP's last words.
        """
        log_read, log_write = os.pipe()
        listener = _listen(socket_path, uid)
        try:
            process = await asyncio.create_subprocess_exec(
                *child_command.command("server", configuration, uid),
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                env=child_command.environment(),
            )
        except OSError as error:
            os.close(log_read)
            listener.close()
            raise ChildFailed(f"exabgp cannot be started: {error}") from error
        finally:
            os.close(log_write)
        child = cls(process, on_lines, on_end, admit)
        child._log_fd = log_read
        try:
            await child._take_over(listener)
        except BaseException as error:
            await child._abort()
            if isinstance(error, (TimeoutError, OSError)):
                words = _drain(log_read)
                raise ChildFailed(f"exabgp did not start: {words or error}") from error
            raise
        finally:
            listener.close()
            if child._agent is None:
                os.close(log_read)
        child._watch()
        return child

    async def _take_over(self, listener: socket.socket) -> None:
        exited = tasks.start(self._process.wait(), "end of exabgp")
        accepted = tasks.start(self._loop.sock_accept(listener), "start of exabgp")
        try:
            await asyncio.wait(
                {exited, accepted}, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
            if not accepted.done():
                raise TimeoutError(
                    f"exit {self._process.returncode}" if exited.done() else "no API process"
                )
            agent, _ = accepted.result()
        finally:
            accepted.cancel()
            exited.cancel()
        agent.settimeout(START_TIMEOUT)
        _, descriptors, _, _ = await self._loop.run_in_executor(
            None, socket.recv_fds, agent, 64, 2, 0
        )
        if len(descriptors) != 2:
            agent.close()
            raise OSError("the relay passed no pipes")
        agent.setblocking(False)
        self._agent = agent
        self._from_exabgp, self._to_exabgp = descriptors
        try:
            fcntl.fcntl(self._from_exabgp, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        except OSError:
            pass  # a smaller pipe is only slower

    def _watch(self) -> None:
        threading.Thread(target=self._read, name="exabgp-reader", daemon=True).start()

    def _read(self) -> None:
        """The reader thread: lines to the loop, until any of the three ends (BGP-2)."""
        agent = self._agent
        assert agent is not None
        rest = {self._from_exabgp: b"", self._log_fd: b""}
        poller = select.poll()
        for descriptor in (*rest, agent.fileno()):
            poller.register(descriptor, select.POLLIN)
        try:
            alive = True
            while alive:
                lines: dict[int, list[bytes]] = {descriptor: [] for descriptor in rest}
                for descriptor, _ in poller.poll():
                    if descriptor not in rest:
                        alive = False  # the relay never speaks: this is its end
                        continue
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
        for descriptor in (self._from_exabgp, self._to_exabgp, self._log_fd):
            os.close(descriptor)
        self._to_exabgp = -1
        if self._agent is not None:
            self._agent.close()
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


def _listen(path: Path, uid: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    path.chmod(0o600)
    if uid:
        os.chown(path, uid, uid)
    listener.listen(1)
    listener.setblocking(False)
    return listener


def _drain(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    try:
        text = os.read(descriptor, 1 << 16)
    except OSError:
        return ""
    return " | ".join(readable(line) for line in text.splitlines()[-6:] if line.strip())
