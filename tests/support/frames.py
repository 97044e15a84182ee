"""A relay of framed unix sockets: it may change every message on its way, descriptors included."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HEADER = struct.Struct("!I")
Json = dict[str, Any]
Change = Callable[[Json], list[Json]]
"""What is sent on in place of a message."""


class Relay:
    """Listens at `path` and hands on to `target`; `seen` counts what passed, by type."""

    def __init__(self, path: Path, target: Path, change: Change) -> None:
        self._target, self._change = target, change
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen()
        self._open: list[socket.socket] = []
        self.seen: dict[str, int] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        for each in (self._server, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._open += [near, far]
            try:
                far.connect(str(self._target))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while (frame := _frame(source)) is not None:
                message, descriptors = frame
                self.seen[message["type"]] = self.seen.get(message["type"], 0) + 1
                for one in self._change(message):
                    body = json.dumps(one).encode()
                    data = HEADER.pack(len(body)) + body
                    sent = socket.send_fds(sink, [data], descriptors)
                    sink.sendall(data[sent:])
                    for each in descriptors:
                        socket.close(each)
                    descriptors = []
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _frame(source: socket.socket) -> tuple[Json, list[int]] | None:
    data, descriptors, wanted = b"", list[int](), HEADER.size
    while len(data) < wanted:
        more, found, _, _ = socket.recv_fds(source, wanted - len(data), 4)
        descriptors += found
        if not more:
            return None
        data += more
        if len(data) == HEADER.size:
            wanted += HEADER.unpack(data)[0]
    return json.loads(data[HEADER.size :]), descriptors


@contextmanager
def relayed(path: Path, target: Path, change: Change) -> Iterator[Relay]:
    """A relay between a client, told of `path`, and the server at `target`."""
    relay = Relay(path, target, change)
    try:
        yield relay
    finally:
        relay.close()
        path.unlink(missing_ok=True)
