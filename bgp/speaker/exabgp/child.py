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
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from libcalico.errors import MuslinError
from libcalico.process import tasks

log = logging.getLogger(__name__)

SPEAKER_ID = 61179
"""Uid and gid of ExaBGP: in a range that distributions assign to no account."""

_START_TIMEOUT = 60.0
_PIPE_SIZE = 1 << 20
_LAUNCH = Path(__file__).with_name("launch.py")
_RELAY = Path(__file__).with_name("relay.py")
_OPEN_WAIT = 30

OnLines = Callable[[list[bytes], list[bytes]], None]
OnEnd = Callable[[], None]
Admit = Callable[[list[bytes]], list[bytes]]
"""Called by the reader's thread: which lines of the API are handed over (`backlog`)."""


class ChildFailed(MuslinError):
    """ExaBGP did not start, or refused its configuration."""


def speaker_id(run_dir: Path) -> tuple[int, str]:
    """The uid for ExaBGP, and why it is 0 if it is.

    0 means: keep ours. Another uid needs to be mapped here, and to reach the interpreter,
    ExaBGP's code and the run directory.
    """
    if os.geteuid() != 0:
        return 0, "not started as root"
    mapped = any(
        int(first) <= SPEAKER_ID < int(first) + int(count)
        for first, _, count in map(str.split, Path("/proc/self/uid_map").read_text().splitlines())
    )
    if not mapped:
        return 0, f"uid {SPEAKER_ID} is not mapped in this user namespace"
    spec = find_spec("exabgp")
    needed = [Path(sys.executable), Path(os.path.realpath(sys.executable)), _RELAY, run_dir.parent]
    needed += [Path(spec.origin)] if spec and spec.origin else []
    for path in needed:
        if hidden := _hidden_by(path):
            return 0, f"{hidden} cannot be entered or read by another user"
    return SPEAKER_ID, ""


def _hidden_by(path: Path) -> Path | None:
    """The first part of `path` that others may not pass, or None."""
    for part in [*reversed(path.absolute().parents), path]:
        mode = part.stat().st_mode
        needed = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if not mode & needed:
            return part
    return None


def prepare_run_dir(run_dir: Path, uid: int) -> None:
    """Make the directory for configuration and socket: ours, and only ExaBGP may enter."""
    run_dir.mkdir(parents=True, exist_ok=True)
    run_dir.chmod(0o710 if uid else 0o700)
    if os.geteuid() == 0:
        os.chown(run_dir, 0, uid)


def write_private(path: Path, text: str, uid: int) -> None:
    """Write a file that only its owner `uid` may read, never with a wider mode."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if uid:
            os.fchown(file.fileno(), uid, uid)


def relay_command(socket_path: Path) -> list[str]:
    """What ExaBGP runs as its API process."""
    return [sys.executable, "-I", "-S", str(_RELAY), str(socket_path)]


async def validate(configuration: Path, uid: int) -> str:
    """What ExaBGP says against a configuration file; empty if it accepts it."""
    process = await asyncio.create_subprocess_exec(
        *_command("validate", configuration, uid),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(),
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _START_TIMEOUT)
    except TimeoutError:
        return f"exabgp validate gave no answer within {_START_TIMEOUT:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    if process.returncode == 0:
        return ""
    lines = [readable(line) for line in output.splitlines() if line.strip()]
    summary = next((at for at, line in enumerate(lines) if line.startswith("error:")), -1)
    lines = lines[summary + 1 :]  # after it the same words once more, without the path
    return " | ".join(lines)[-500:] or f"exit {process.returncode}"


def readable(line: bytes) -> str:
    """A line of ExaBGP's log, fit for ours: it may quote the configuration, keys included."""
    if b"md5" in line:
        return "(a line that may hold a key is withheld)"
    return line.decode(errors="replace")


def _command(action: str, configuration: Path, uid: int) -> list[str]:
    arguments = [str(os.getpid()), str(uid), action, str(configuration)]
    return [sys.executable, "-I", str(_LAUNCH), *arguments]


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "exabgp_api_cli": "false",
        "exabgp_bgp_openwait": str(_OPEN_WAIT),  # who dials and says nothing, in seconds
        "exabgp_daemon_user": "root",  # launch.py has already chosen the user
        "exabgp_log_level": "INFO",
        "exabgp_log_destination": "stdout",
    }


class Child:
    """A started ExaBGP. Make it with `Child.start`."""

    def __init__(
        self, process: asyncio.subprocess.Process, on_lines: OnLines, on_end: OnEnd, admit: Admit
    ):
        self._process, self._on_lines, self._on_end = process, on_lines, on_end
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
                *_command("server", configuration, uid),
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                env=_environment(),
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
                {exited, accepted}, timeout=_START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
            if not accepted.done():
                raise TimeoutError(
                    f"exit {self._process.returncode}" if exited.done() else "no API process"
                )
            agent, _ = accepted.result()
        finally:
            accepted.cancel()
            exited.cancel()
        agent.settimeout(_START_TIMEOUT)
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
                    self._loop.call_soon_threadsafe(self._on_lines, api, logged)
        except RuntimeError:
            return  # the loop is closed: the agent is going
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            pass

    def _finish(self) -> None:
        self._kill()
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


__all__: Sequence[str] = (
    "SPEAKER_ID",
    "Child",
    "ChildFailed",
    "prepare_run_dir",
    "readable",
    "relay_command",
    "speaker_id",
    "validate",
    "write_private",
)
