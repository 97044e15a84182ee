"""Connections between pods of a test, from this process: sockets made inside their namespaces."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

from tests.felix.world import Pod

PATIENCE = 0.3
"""Seconds, unless the caller says `wait`; a guest kernel sets it higher for all."""


def tcp(
    client: Pod,
    server: Pod,
    port: int,
    family: int = 4,
    source_port: int = 0,
    *,
    wait: float | None = None,
) -> bool:
    """Whether a connection comes about within `wait` seconds."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    there = server.address if family == 4 else server.address6
    here = client.address if family == 4 else client.address6
    with ExitStack() as stack:
        listener = server.space.call(lambda: _bound(kind, socket.SOCK_STREAM, there, port))
        stack.callback(listener.close)
        listener.listen(1)
        caller = client.space.call(lambda: _bound(kind, socket.SOCK_STREAM, here, source_port))
        stack.callback(caller.close)
        caller.settimeout(PATIENCE if wait is None else wait)
        try:
            caller.connect((there, port))
        except OSError:
            return False
        return True


def udp(client: Pod, server: Pod, port: int, family: int = 4, *, wait: float | None = None) -> bool:
    """Whether a datagram arrives within `wait` seconds."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    there = server.address if family == 4 else server.address6
    here = client.address if family == 4 else client.address6
    with ExitStack() as stack:
        listener = server.space.call(lambda: _bound(kind, socket.SOCK_DGRAM, there, port))
        stack.callback(listener.close)
        listener.settimeout(PATIENCE if wait is None else wait)
        caller = client.space.call(lambda: _bound(kind, socket.SOCK_DGRAM, here, 0))
        stack.callback(caller.close)
        caller.sendto(b"x", (there, port))
        try:
            return listener.recv(10) == b"x"
        except OSError:
            return False


def ping(client: Pod, server: Pod, family: int = 4) -> bool:
    """Whether an echo request is answered."""
    return client.reaches(server.address if family == 4 else server.address6, wait=PATIENCE)


def at_once(probes: Sequence[str], passes: Callable[[str], bool]) -> set[str]:
    """Which of these come through, all tried at one time: `who ... udp port` and the like."""
    # Datagrams to one port go to one listener: those take turns.
    turns: dict[str, threading.Lock] = {p.partition(" ")[2]: threading.Lock() for p in probes}

    def one(probe: str) -> bool:
        with turns[probe.partition(" ")[2]] if "udp" in probe else nullcontext():
            return passes(probe)

    with ThreadPoolExecutor(max(1, len(probes))) as pool:
        return {p for p, passed in zip(probes, pool.map(one, probes), strict=True) if passed}


def _bound(family: int, kind: int, address: str, port: int) -> socket.socket:
    made = socket.socket(family, kind)
    # A connection that an earlier probe left must not hold the port.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Probes of one time share a listener's port; whoever listens, a connection comes about.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    made.bind((address, port))
    return made
