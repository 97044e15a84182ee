"""Where the real code meets the simulated world: sockets of the kernel, programs, time, chance.

`install` replaces what the standard library offers, for this whole process and for good: a
simulation has a process of its own. Nothing inside the rooms is named here, but one path that is a
matter of the system: the root of /proc/sys (`linux.sysctl` reads files by `os.open`).
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import functools
import io
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import typing
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from random import Random
from typing import Any

from libcalico.process import paths
from tests.simulation.kernel.machine import Machine
from tests.simulation.loop import SIMULATED, Clock

EPOCH = 1_800_000_000.0
PROGRAMS = ("iptables-legacy-save", "iptables-legacy-restore")
_SIOCGIFINDEX = 0x8933
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_KERNELS = ("/proc/", "/sys/")
_FIRST_NETWORK_ONLY = "/proc/sys/net/core/netdev_max_backlog"
"""No machine here is a container."""
_RELEASE = "6.1.0"


_machine: ContextVar[Machine] = ContextVar("machine")


class World:
    """What the replaced functions ask; one a process.

    `machine` is that of the running task's context (`on`), so that several nodes live in one world.
    """

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.clock = Clock()
        self.chance = Random(0)
        self.can_start: Callable[[], bool] = lambda: True
        self.real: list[str] = []
        """Files of the real machine that were asked for."""
        self.stir: Callable[[], None] = lambda: None
        """Somebody wrote to a real descriptor."""

    @property
    def machine(self) -> Machine:
        """The machine on which the running code runs."""
        return _machine.get()

    def boot(self, machine: Machine) -> Machine:
        """A machine more, on which the code runs from now on."""
        self.machines.append(machine)
        _machine.set(machine)
        return machine

    def on(self, machine: Machine) -> Context:
        """A context in which code runs on this machine."""
        context = copy_context()
        context.run(_machine.set, machine)
        return context

    def run_program(self, arguments: tuple[str, ...], data: bytes) -> tuple[int, bytes, bytes]:
        """What a program of the machine does."""
        return self.machine.chains.run(arguments, data)


WORLD = World()


CLOCKS: dict[str, Callable[[], float]] = {
    "time": lambda: EPOCH + WORLD.clock.now,
    "monotonic": lambda: WORLD.clock.now,
    "perf_counter": lambda: WORLD.clock.now,
    # Work costs nothing here: what differs by how fast a machine is would be another trace on each.
    "process_time": lambda: 0.0,
    "thread_time": lambda: 0.0,
}
"""The clocks of `time`, in seconds; each has a sister that tells nanoseconds."""


def install_time() -> None:
    """Time is simulated from now on; before the rooms are imported, for some keep the function."""
    for name, seconds in CLOCKS.items():
        setattr(time, name, seconds)
        setattr(time, f"{name}_ns", functools.partial(_nanoseconds, seconds))
    datetime.datetime = _Datetime  # type: ignore[misc]


def _nanoseconds(seconds: Callable[[], float]) -> int:
    return int(seconds() * 1e9)


_paths = {
    name: value
    for name, value in vars(paths).items()
    if isinstance(value, Path) and value.is_absolute()
}
_of_the_machine = tuple(map(str, _paths.values()))
_real_datetime = datetime.datetime


class _Datetime(_real_datetime):
    """As the real one, but for what `now` says."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """By the simulated clock."""
        return _real_datetime.fromtimestamp(EPOCH + WORLD.clock.now, tz)


def install() -> None:
    """The rest: sockets of the kernel, programs, files under /proc/sys, chance."""
    # The members of a protocol are found once, as from Python 3.12 on.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)  # type: ignore[attr-defined]
    _install_sockets()
    _install_programs()
    _install_settings()
    _install_chance()


def install_files(folder: Path) -> None:
    """The files of the simulated machine lie in a folder of their own."""
    for name, value in _paths.items():
        setattr(paths, name, folder / value.relative_to("/"))


def seed(number: int) -> None:
    """Everything that is drawn comes of this number."""
    WORLD.chance = Random(number)
    random.seed(number)


def _install_chance() -> None:
    def urandom(count: int) -> bytes:
        return WORLD.chance.randbytes(count)

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]


def _install_sockets() -> None:
    real: Any = socket.socket

    class Socket(real):  # type: ignore[misc]
        """As the real one, but for the kernel's own."""

        __slots__ = ()

        def __new__(cls, family: int = -1, *arguments: Any, **named: Any) -> Any:
            if family == socket.AF_NETLINK:
                protocol = arguments[1] if len(arguments) > 1 else named.get("proto", 0)
                return WORLD.machine.socket(protocol)
            return real.__new__(cls, family, *arguments, **named)

        def send(self, *arguments: Any) -> int:
            """Its reader is to look."""
            WORLD.stir()
            return int(super().send(*arguments))

        def connect(self, *arguments: Any) -> None:
            """Its listener is to look."""
            WORLD.stir()
            super().connect(*arguments)

        def close(self) -> None:
            """Its other end is to look."""
            WORLD.stir()
            super().close()

        def shutdown(self, how: int) -> None:
            """Its other end is to look."""
            WORLD.stir()
            super().shutdown(how)

        def setsockopt(self, level: int, *rest: Any) -> None:
            """What is of TCP, a unix socket in its place does not know."""
            if level != socket.IPPROTO_TCP:
                super().setsockopt(level, *rest)

    socket.socket = Socket  # type: ignore[misc]
    ioctl: Any = fcntl.ioctl

    def control(fd: Any, request: int, *rest: Any) -> Any:
        number = fd if isinstance(fd, int) else fd.fileno()
        if number < SIMULATED:
            return ioctl(fd, request, *rest)
        if request != _SIOCGIFINDEX:
            raise OSError(errno.EOPNOTSUPP, "not simulated")
        name = bytes(rest[0]).split(b"\0", 1)[0].decode()
        if all(link.name != name for link in WORLD.machine.namespace.links.values()):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return rest[0]

    fcntl.ioctl = control


def _install_programs() -> None:
    which: Any = shutil.which
    real: Any = subprocess.Popen

    def find(name: str, *arguments: Any, **named: Any) -> str | None:
        if name.startswith(("iptables", "ip6tables", "ipset", "nft")):
            return f"/sbin/{name}" if name in PROGRAMS else None
        found: str | None = which(name, *arguments, **named)
        return found

    shutil.which = find  # type: ignore[assignment]

    class Popen(real):  # type: ignore[misc]
        """A child of the simulated machine; it acts when its input has been read."""

        def __init__(self, arguments: Any, **_: Any) -> None:
            if not WORLD.can_start():
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self.args, self.pid = tuple(arguments), 4242
            self.returncode: int | None = None
            self._child_created = False
            self.stdin = self.stdout = self.stderr = None

        def communicate(self, input: Any = None, timeout: float | None = None) -> Any:
            WORLD.machine.entered()
            if self.returncode is not None:
                return b"", b""
            code, out, err = WORLD.run_program(self.args, bytes(input or b""))
            self.returncode = code
            return out, err

        def poll(self) -> int | None:
            return self.returncode

        def kill(self) -> None:
            self.returncode = -9 if self.returncode is None else self.returncode

        def wait(self, timeout: float | None = None) -> int:
            return int(self.returncode or 0)

        def __del__(self) -> None:
            """No child to wait for."""

    subprocess.Popen = Popen  # type: ignore[misc, assignment]


def _install_settings() -> None:
    real_open, real_read, real_write, real_close = os.open, os.read, os.write, os.close
    real_stat, real_mkdir, real_listdir, real_uname = os.stat, os.mkdir, os.listdir, os.uname
    opened: dict[int, str] = {}
    lock = threading.Lock()

    def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        name = os.fspath(path)
        if not isinstance(name, str) or "/proc/sys/" not in name:
            _inside(path)
            return real_open(path, flags, *rest, **named)
        key = name.partition("/proc/sys/")[2]
        if "/net/ipv6/" in name:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with lock:
            fd = SIMULATED * 2 + len(opened)
            opened[fd] = key
        return fd

    def read(fd: int, count: int) -> bytes:
        if fd not in opened:
            return real_read(fd, count)
        return WORLD.machine.settings.get(opened[fd], "0").encode()

    def write(fd: int, data: Any) -> int:
        if fd not in opened:
            WORLD.stir()
            return real_write(fd, data)
        WORLD.machine.settings[opened[fd]] = bytes(data).decode().strip()
        return len(data)

    def close(fd: int) -> None:
        if fd not in opened:
            real_close(fd)

    os.open, os.read, os.write, os.close = open_, read, write, close
    real_file: Any = io.open

    def file(path: Any, *arguments: Any, **named: Any) -> Any:
        name = _inside(path)
        if name == _BOOT_ID:
            return io.StringIO(WORLD.machine.boot)
        if name.startswith(_KERNELS):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return real_file(path, *arguments, **named)

    def stat(path: Any, *arguments: Any, **named: Any) -> Any:
        name = _inside(path)
        if name == "/proc/thread-self/ns/net":
            return os.stat_result((0, WORLD.machines.index(WORLD.machine) + 1, *[0] * 8))
        if name.startswith(_KERNELS) and name != _FIRST_NETWORK_ONLY:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return real_stat("/" if name.startswith(_KERNELS) else path, *arguments, **named)

    def mkdir(path: Any, *arguments: Any, **named: Any) -> None:
        _inside(path)
        real_mkdir(path, *arguments, **named)

    def listdir(path: Any = ".") -> list[Any]:
        _inside(path)
        return sorted(real_listdir(path))  # a real folder has an order of its own

    def uname() -> os.uname_result:
        system, host, _, version, kind = real_uname()
        return os.uname_result((system, host, _RELEASE, version, kind))

    io.open = file  # type: ignore[assignment]
    os.stat, os.mkdir, os.listdir, os.uname = stat, mkdir, listdir, uname
    socket.gethostname = lambda: WORLD.machine.host


def _inside(path: Any) -> str:
    """The name of a file, which is none of the real machine's: a value bound at import is one."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    text = os.fsdecode(name)
    if text.startswith(_of_the_machine):
        WORLD.real.append(text)
    return text
