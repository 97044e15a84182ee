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

from lab.machine import Machine
from lab.state import NETNS
from linux import netns
from tests.support.patience import HANG


@contextlib.contextmanager
def relayed(machines: Sequence[Machine], port: int) -> Iterator[None]:
    """The port leads outside while the body runs."""
    with contextlib.ExitStack() as stack:
        opened = [netns.open_path(NETNS / machine.netns) for machine in machines]
        for fd in opened:
            stack.callback(os.close, fd)
        stack.enter_context(relayed_into(opened, port))
        yield


@contextlib.contextmanager
def relayed_into(namespaces: Sequence[int], port: int) -> Iterator[None]:
    """The same for network namespaces, by their open descriptors."""
    doors = [
        netns.run_in(fd, lambda: socket.create_server(("127.0.0.1", port))) for fd in namespaces
    ]
    try:
        for door in doors:
            threading.Thread(target=_serve, args=(door, port), daemon=True).start()
        yield
    finally:
        for door in doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()


def _serve(door: socket.socket, port: int) -> None:
    while True:
        try:
            inside, _ = door.accept()
        except OSError:
            return
        try:
            outside = socket.create_connection(("127.0.0.1", port), timeout=HANG)
        except OSError:
            inside.close()
            continue
        outside.settimeout(None)
        threading.Thread(target=_both_ways, args=(inside, outside), daemon=True).start()


def _both_ways(inside: socket.socket, outside: socket.socket) -> None:
    """Until both have ended, and neither is left open."""
    with inside, outside:
        back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
        back.start()
        _pump(inside, outside)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
