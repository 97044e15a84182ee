"""Programs that edit the kernel for us, run without a shell and with a time limit.

The child is started by vfork (CPython's default on Linux), so a big parent costs nothing more.
Tested in tests/linux/test_programs.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from linux.errors import CommandError

_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIMIT = 60.0


@dataclass(slots=True)
class Waited:
    """Says for how long programs were waited for: `told` is called with each one's microseconds."""

    told: Callable[[float], None] = lambda micros: None

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one run, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.told((time.monotonic() - began) * 1e6)


WAITED = Waited()


def search_path() -> str:
    """Where programs are looked for: the caller's PATH, then the system's own directories.

    Users' PATHs often lack the sbin directories in which iptables lives.
    """
    given = os.environ.get("PATH", "")
    return f"{given}:{_SYSTEM}" if given else _SYSTEM


def find(name: str) -> str | None:
    """The path of an installed program, None if there is none."""
    # Not shutil, which brings three libraries of compression into each daemon.
    for folder in filter(None, search_path().split(":")):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


async def run(arguments: Sequence[str], stdin: bytes = b"", limit: float = _LIMIT) -> bytes:
    """Standard output of a program. Raises `CommandError` on any other status than 0.

    `limit` is in seconds; a program that takes longer is killed. Status 127: not installed.
    """
    with WAITED.one():
        return await _run(arguments, stdin, limit)


async def _run(arguments: Sequence[str], stdin: bytes, limit: float) -> bytes:
    environment = {"PATH": search_path(), "LC_ALL": "C"}
    name = arguments[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except (OSError, RuntimeError) as error:
        raise _not_started(name, error) from error
    try:
        # Not `gather`: cancelled, it leaves a future whose exception nothing retrieves.
        async with asyncio.timeout(limit), asyncio.TaskGroup() as both:
            both.create_task(_feed(process, stdin))
            reading = both.create_task(process.communicate())
        out, err = reading.result()
    except BaseException as error:
        # Cancelled or too slow: never leave a half-read child behind.
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(name, -9, f"no answer within {limit:g} s") from error
        raise
    if process.returncode:
        raise CommandError(name, process.returncode, err.decode(errors="replace"))
    return out


async def _feed(process: asyncio.subprocess.Process, stdin: bytes) -> None:
    """Hand over the input. A program may end before it has read it: its status says why."""
    assert process.stdin is not None
    # uvloop says RuntimeError of a pipe whose reader is gone, where asyncio says it by OSError.
    with suppress(OSError, RuntimeError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    with suppress(OSError, RuntimeError):
        process.stdin.close()


class Prepared:
    """A program of which one copy is always started already and waits for its input.

    For programs that do nothing before they have read all of it: most of what a short program
    costs is its start, and that is then paid before it is needed. A copy whose starter dies
    reads an empty input and ends.
    """

    def __init__(self, arguments: Sequence[str], limit: float = _LIMIT) -> None:
        self._arguments, self._limit = tuple(arguments), limit
        self._spare: subprocess.Popen[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, stdin: bytes) -> bytes:
        """As `run` of this module, with the waiting copy if there is one."""
        with WAITED.one():
            return await self._run(stdin)

    async def _run(self, stdin: bytes) -> bytes:
        process = self._take_spare()
        name = self._arguments[0]
        try:
            try:
                process = process or self._start()
            except OSError as error:
                raise _not_started(name, error) from error
            work = asyncio.to_thread(process.communicate, stdin, self._limit)
            out, err = await work
        except subprocess.TimeoutExpired as error:
            raise CommandError(name, -9, f"no answer within {self._limit:g} s") from error
        except RuntimeError as error:
            raise _not_started(name, error) from error
        finally:
            if process is not None and process.returncode is None:
                process.kill()
        if process.returncode:
            raise CommandError(name, process.returncode, err.decode(errors="replace"))
        return out

    def prepare(self, delay: float = 0.0) -> None:
        """Have a copy wait, `delay` seconds from now. Trouble shows when it is needed."""
        if self._spare is None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._prepare)

    def _prepare(self) -> None:
        self._timer = None
        try:
            self._spare = self._start()
        except OSError:
            self._spare = None

    def _take_spare(self) -> subprocess.Popen[bytes] | None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        spare, self._spare = self._spare, None
        if spare is not None and spare.poll() is not None:
            _close(spare)
            spare = None
        return spare

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": search_path(), "LC_ALL": "C"},
        )

    def close(self) -> None:
        """End the copy that waits."""
        spare = self._take_spare()
        if spare is not None:
            spare.kill()
            spare.wait()
            _close(spare)


def _not_started(name: str, error: OSError | RuntimeError) -> CommandError:
    """It is not there, or no descriptor, process or thread is left (EMFILE, EAGAIN, ENOMEM).

    A thread that cannot be started, for the program's end or input, is a RuntimeError.
    """
    if isinstance(error, FileNotFoundError):
        return CommandError(name, 127, "the program is not installed")
    return CommandError(name, 126, f"it cannot be started: {error}")


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
