"""Network namespaces: make, name, compare, and enter for one short call.

Problem: `setns` moves a thread. A thread that stays elsewhere would from then on program the
wrong machine, silently. So there is one door, `run_in`: enter, call, return in the same `finally`.

NS-1: `run_in` returns to the namespace it came from, or the process aborts.
NS-2: the callable must not await, yield or hand work to another thread.
Python 3.11 has no os.setns, hence ctypes. Tested in tests/linux/test_netns.py.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from linux.errors import KernelError

T = TypeVar("T")

DIRECTORY = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 1 << 20
_MNT_DETACH = 2
_NS_GET_NSTYPE = 0xB703
_SELF = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        raise KernelError(ctypes.get_errno(), what)


def current() -> int:
    """A descriptor of the calling thread's namespace; the caller closes it."""
    return os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)


def open_path(path: str | Path) -> int:
    """A descriptor of the namespace at a path; the caller closes it.

    Raises `KernelError`: ENOENT when there is nothing, EINVAL when it is no network namespace.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KernelError(error.errno or 0, f"open network namespace {path}") from error
    if not is_netns(fd):
        os.close(fd)
        raise KernelError(errno.EINVAL, f"open {path}", "it is not a network namespace")
    return fd


def is_netns(fd: int) -> bool:
    """Whether the descriptor refers to a network namespace."""
    try:
        return fcntl.ioctl(fd, _NS_GET_NSTYPE) == _CLONE_NEWNET
    except OSError:
        return False


def same(first: int, second: int) -> bool:
    """Whether two descriptors refer to one namespace."""
    a, b = os.fstat(first), os.fstat(second)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def enter(fd: int) -> None:
    """Moves the calling thread for good: for processes that start inside, and for tests.

    Everything else uses `run_in`. Raises `KernelError`.
    """
    _call("enter network namespace", "setns", fd, _CLONE_NEWNET)


def run_in(fd: int, function: Callable[[], T]) -> T:
    """Calls `function` with the calling thread inside the namespace (NS-1, NS-2)."""
    home = current()
    try:
        enter(fd)
        try:
            return function()
        finally:
            if _libc.setns(home, _CLONE_NEWNET) != 0:
                sys.stderr.write("cannot return to the own network namespace: aborting\n")
                sys.stderr.flush()
                os.abort()
    finally:
        os.close(home)


def create(name: str) -> Path:
    """Makes a named namespace as `ip netns add` does; returns its path. Raises `KernelError`."""
    path = _named(name)
    _shared_directory()
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
    except OSError as error:
        raise KernelError(error.errno or 0, f"create network namespace {name}") from error
    failures: list[BaseException] = []

    def born() -> None:
        # A thread of its own: it dies in the new namespace instead of having to come back.
        try:
            _call(f"create network namespace {name}", "unshare", _CLONE_NEWNET)
            _call(
                f"bind network namespace {name}",
                "mount",
                _SELF.encode(),
                os.fsencode(path),
                b"none",
                ctypes.c_ulong(_MS_BIND),
                None,
            )
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failures.append(error)

    thread = threading.Thread(target=born, name=f"netns-{name}")
    thread.start()
    thread.join()
    if failures:
        path.unlink(missing_ok=True)
        raise failures[0]
    return path


def delete(name: str) -> None:
    """Removes a named namespace; one that does not exist is fine. Raises `KernelError`."""
    path = _named(name)
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOENT):
            raise KernelError(code, f"unmount network namespace {name}")
    path.unlink(missing_ok=True)


def _named(name: str) -> Path:
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"network namespace name {name!r}: want one path component")
    return DIRECTORY / name


def _shared_directory() -> None:
    # Named namespaces must be seen from every mount namespace, so the directory is a shared
    # mount, as `ip netns` makes it; the second attempt follows a bind of the directory on itself.
    DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = os.fsencode(DIRECTORY)
    for attempt in (1, 2):
        flags = ctypes.c_ulong(_MS_SHARED | _MS_REC)
        if _libc.mount(b"", target, b"none", flags, None) == 0:
            return
        code = ctypes.get_errno()
        if code != errno.EINVAL or attempt == 2:
            raise KernelError(code, f"share {DIRECTORY}")
        flags = ctypes.c_ulong(_MS_BIND | _MS_REC)
        _call(f"bind {DIRECTORY}", "mount", target, target, b"none", flags, None)
