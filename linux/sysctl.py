"""Kernel settings under /proc/sys, of the network namespace the calling thread is in.

`/proc/sys/net` shows the namespace of the thread that opens the file, so to reach another
namespace use `linux.netns.run_in(fd, lambda: sysctl.set(...))`. Interface names may hold dots;
names here use "/" as separator ("net/ipv4/conf/eth0.5/rp_filter"), so they need no escape.

A container that is not privileged has /proc/sys read-only, even with all capabilities. Our manifest
mounts the host's /proc/sys/net at /host/proc/sys/net as well; where that is, `net/` is found there:
the kernel shows it for the reading thread's network namespace all the same.

Tested in tests/linux/test_sysctl.py.
"""

from __future__ import annotations

import os

from linux.errors import KernelError

_ROOT = "/proc/sys/"
_MOUNTED = "/host/proc/sys/"
_NO_NAMES = frozenset({"", ".", ".."})


def _net_root(mounted: str = _MOUNTED) -> str:
    return mounted if os.path.isdir(f"{mounted}net") else _ROOT


_NET_ROOT = _net_root()


def _path(name: str) -> str:
    if not _NO_NAMES.isdisjoint(name.split("/")):
        raise ValueError(f"sysctl name {name!r}: want parts separated by '/', none empty or dotted")
    return (_NET_ROOT if name.startswith("net/") else _ROOT) + name


def get(name: str) -> str:
    """The value of a setting, without the newline. Raises `KernelError` (ENOENT: unknown)."""
    try:
        fd = os.open(_path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 65536).decode().strip()
        finally:
            os.close(fd)
    except OSError as error:
        raise KernelError(error.errno or 0, f"read sysctl {name}") from error


def set(name: str, value: int | str) -> None:
    """Writes a setting. Raises `KernelError`."""
    try:
        fd = os.open(_path(name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise KernelError(error.errno or 0, f"write sysctl {name}={value}") from error


def try_get(name: str) -> str | None:
    """Like `get`, but None when the setting does not exist or cannot be read."""
    try:
        return get(name)
    except KernelError:
        return None


def try_set(name: str, value: int | str) -> KernelError | None:
    """Like `set`, but gives the error back instead of raising it."""
    try:
        set(name, value)
    except KernelError as error:
        return error
    return None


def ensure(name: str, value: int | str) -> bool:
    """Writes only where the value differs; returns whether it wrote. Raises `KernelError`."""
    if get(name) == str(value):
        return False
    set(name, value)
    return True
