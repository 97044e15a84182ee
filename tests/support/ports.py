"""Ports for servers of the tests, of which several processes start some at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

FIRST, LAST, SHARE = 20000, 30000, 200
"""Ports between those that tests name themselves and a cluster's NodePorts, all below those that
the kernel gives to outgoing connections; how many a process takes."""
SHARED = Path("/tmp")
"""Not the folder of this run: runs beside it take ports too."""


@functools.cache
def _own_ports(_process: int) -> Iterator[int]:
    """The ports of this process: it holds its share until it ends, so no other is given them."""
    shares = list(range((LAST - FIRST) // SHARE))
    random.shuffle(shares)
    folder = SHARED / f"muslin-ports-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    for share in shares:
        lock = os.open(folder / str(share), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        first = FIRST + share * SHARE
        return itertools.cycle(range(first, first + SHARE))
    raise RuntimeError(f"every share of the ports is held: {folder}")


def free_ports(count: int) -> list[int]:
    """TCP ports of 127.0.0.1 that are free and that no other process of tests is given."""
    found: list[int] = []
    ports = _own_ports(os.getpid())
    while len(found) < count:
        port = next(ports)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found
