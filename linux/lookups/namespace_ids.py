"""From an interface to the namespace at its other end: veth pairs and the ids of namespaces.

A veth names the namespace of its peer by an id of the own namespace. The kernel translates a
descriptor of a namespace to that id (RTM_GETNSID), so candidates are tried: named namespaces, and
those of processes.
Tested in tests/linux/test_namespace_ids.py.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from linux import netns
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket

_RTM_GETNSID = 90
_ID, _FD = 1, 3
FOLDERS = (Path("/run/netns"), Path("/var/run/netns"), Path("/var/run/docker/netns"))


def namespace_of(sock: Socket, number: int) -> int | None:
    """A descriptor of the namespace that has this id in the socket's; the caller closes it.

    None where it is found neither by a name nor by a process.
    """
    seen: set[int] = set()
    for path in _candidates():
        with suppress(OSError, KernelError):
            inode = os.stat(path).st_ino
            if inode in seen:
                continue
            seen.add(inode)
            with ExitStack() as opened:
                fd = netns.open_path(path)
                opened.callback(os.close, fd)
                if _id_of(sock, fd) == number:
                    opened.pop_all()
                    return fd
    return None


def _candidates() -> Iterator[Path]:
    for folder in FOLDERS:
        with suppress(OSError):
            yield from sorted(folder.iterdir())
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            yield process / "ns" / "net"


def _id_of(sock: Socket, fd: int) -> int | None:
    body = bytes(4) + m.u32(_FD, fd)
    result = sock.transact([m.message(_RTM_GETNSID, 0, body)])[0]
    if not result.ok or not result.answers:
        return None
    value = m.parse_attributes(result.answers[0][1], 4).get(_ID)
    return None if value is None else struct.unpack("=i", value)[0]
