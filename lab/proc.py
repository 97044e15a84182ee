"""Processes of the host, by /proc: run one, recognise one again, end those of a lab.

A pid alone does not name a process (it is reused); a pid with its start time does. What lives in
a lab is recognised by its namespaces, so that `lab down` works after a crash of the lab tool,
which leaves no parent to ask (LAB-2). Tested in tests/lab/test_machine.py and test_updown.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

PATIENCE = 120.0
"""Seconds for work that an idle machine does in a few: the limit only catches a hang."""


@dataclass(frozen=True)
class Namespaces:
    """Inode numbers of a process's network, mount and UTS namespaces."""

    net: int
    mnt: int
    uts: int


def run(
    command: Sequence[str],
    *,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command without a shell; its text output, or LabError when it fails and `check`."""
    try:
        done = subprocess.run(
            list(command),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env=None if environment is None else dict(environment),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(command)}` gave no answer within {timeout:g} s") from error
    except OSError as error:
        raise LabError(f"`{command[0]}` cannot be run: {error.strerror}") from error
    out = done.stdout.decode(errors="replace")
    err = done.stderr.decode(errors="replace")
    if check and done.returncode:
        said = (err.strip() or out.strip())[-600:]
        raise LabError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def line_of(descriptor: int, what: str, *, timeout: float = PATIENCE) -> bytes:
    """The next line of a pipe, what came of it when the pipe ends; LabError naming `what`.

    Nothing behind the line is taken: it is read byte by byte.
    """
    deadline, line, ready = time.monotonic() + timeout, b"", select.poll()
    ready.register(descriptor, select.POLLIN)
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            raise LabError(f"{what}: no word of it within {timeout:g} s")
        if not (byte := os.read(descriptor, 1)):
            break
        line += byte
    return line


def first_line(running: subprocess.Popen[bytes], descriptor: int, what: str) -> bytes:
    """The line that a process writes to a pipe; one that is silent is killed.

    LabError then names `what`, where the process stands and what it said.
    """
    try:
        return line_of(descriptor, what)
    except LabError as error:
        at = doing(running.pid)
        running.kill()
        said = b"".join(filter(None, running.communicate())).decode(errors="replace")
        raise LabError(f"{error}; {at}; {said[-400:]}") from error


def doing(pid: int) -> str:
    """What a process is at, for an error: its program, its state, where it waits in the kernel."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        place = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return f"process {pid} is gone"
    return f"process {pid} `{command_of(pid)}`: state {state}, in {place}"


def start_time(pid: int) -> int | None:
    """Start time of a live process in clock ticks since boot; None when gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def namespaces(pid: int | str = "self") -> Namespaces | None:
    """The namespaces of a process; None when it is gone."""
    try:
        net, mnt, uts = (os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in ("net", "mnt", "uts"))
    except OSError:
        return None
    return Namespaces(net=net, mnt=mnt, uts=uts)


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode(errors="replace").partition("=") for item in raw.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def command_of(pid: int) -> str:
    """The command line as `ps` shows it (a process may have set its own title)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def all_pids() -> list[int]:
    """Every process id that /proc shows now."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def members(
    networks: Iterable[int], uts: Iterable[int], belongs: Callable[[int], bool]
) -> list[int]:
    """Processes in one of the network namespaces, or in a UTS namespace and `belongs(pid)`.

    Network inodes must be pinned by the caller (a bind mount), so they cannot mean another
    namespace by now. UTS inodes may have been reused; hence the second opinion.
    """
    own = namespaces()
    nets, utses = set(networks), set(uts)
    if own is not None:
        nets.discard(own.net)
        utses.discard(own.uts)
    pids = []
    for pid in all_pids():
        spaces = namespaces(pid)
        if spaces is None or pid == os.getpid():
            continue
        if spaces.net in nets or (spaces.uts in utses and belongs(pid)):
            pids.append(pid)
    return pids


def kill_all(pids: Callable[[], list[int]], *, timeout: float = PATIENCE) -> None:
    """SIGKILL what `pids()` names until it names nothing; LabError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while alive := [pid for pid in pids() if start_time(pid) is not None]:
        if time.monotonic() > deadline:
            raise LabError(f"processes {alive} do not end")
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def wait_until(
    condition: Callable[[], bool], what: str, *, timeout: float, every: float = 0.05
) -> float:
    """Poll until `condition` holds; seconds it took, or LabError naming `what`."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > timeout:
            raise LabError(f"{what}: not within {timeout:g} s")
        time.sleep(every)
    return time.monotonic() - begun
