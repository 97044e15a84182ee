"""A port of 127.0.0.1 inside machines of a lab that leads to the same port outside.

So a program inside reaches a server of the test by the URL that its certificate names. A socket
belongs to the namespace in which it was made, whoever serves it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.machine import Machine
from lab.state import NETNS
from linux import netns


@contextlib.contextmanager
def relayed(machines: Sequence[Machine], port: int) -> Iterator[None]:
    """The port leads outside while the body runs."""
    doors = [_listen(NETNS / machine.netns, port) for machine in machines]
    try:
        for door in doors:
            threading.Thread(target=_serve, args=(door, port), daemon=True).start()
        yield
    finally:
        for door in doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()


def _listen(namespace: Path, port: int) -> socket.socket:
    fd = netns.open_path(namespace)
    try:
        return netns.run_in(fd, lambda: socket.create_server(("127.0.0.1", port)))
    finally:
        os.close(fd)


def _serve(door: socket.socket, port: int) -> None:
    while True:
        try:
            inside, _ = door.accept()
        except OSError:
            return
        try:
            outside = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            inside.close()
            continue
        outside.settimeout(None)
        for pair in ((inside, outside), (outside, inside)):
            threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
