"""Connections to the API whose caller waits for each answer, without an event loop (`stream.Way`).

For a command that makes a few requests and ends (`libcalico.process.unlooped`): asyncio alone would
be a fifth of its processor time. Nothing here gives way to others, so a coroutine runs through.
`Limit` holds for all that is waited for, as `asyncio.timeout` does in a loop.
Tested in tests/libcalico/test_kubernetes_wire.py and test_kubernetes_blocking.py there.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.streams import tcp
from libcalico.kubernetes.streams.stream import HEAD_LIMIT, TooLong

if TYPE_CHECKING:
    import ssl

PIECE = 256 * 1024
_LABEL = 63
"""Bytes of a part of a name at most (RFC 1035 section 2.3.4)."""


class Limit:
    """Until when a request may take; one at a time, for there is one caller."""

    _until: float | None = None

    @classmethod
    def begin(cls, seconds: float) -> None:
        """So many from now on."""
        cls._until = time.monotonic() + seconds

    @classmethod
    def end(cls) -> bool:
        """None from now on; returns whether it was over."""
        until, cls._until = cls._until, None
        return until is not None and time.monotonic() >= until

    @classmethod
    def left(cls, most: float | None = None) -> float | None:
        """Seconds for the next step, None without a limit. Raises TimeoutError."""
        if cls._until is None:
            return most
        left = cls._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        return left if most is None else min(most, left)


class BlockingStream:
    """`stream.Stream` on a socket."""

    def __init__(self, held: socket.socket) -> None:
        self._socket, self._kept = held, bytearray()

    async def read(self, most: int) -> bytes:
        """What comes next."""
        if not self._kept:
            self._socket.settimeout(Limit.left())
            return self._socket.recv(most)
        taken = bytes(self._kept[:most])
        del self._kept[:most]
        return taken

    async def readuntil(self, end: bytes) -> bytes:
        """All up to `end`."""
        while (at := self._kept.find(end)) < 0:
            if len(self._kept) > HEAD_LIMIT:
                raise TooLong
            self._socket.settimeout(Limit.left())
            data = self._socket.recv(PIECE)
            if not data:
                raise EOFError
            self._kept += data
        return await self.read(at + len(end))

    async def write(self, data: bytes) -> None:
        """Send."""
        self._socket.settimeout(Limit.left())
        self._socket.sendall(data)

    @property
    def usable(self) -> bool:
        """Whether nothing has come since the last answer: neither the end nor anything else.

        With TLS there may be a ticket for the next session, which is no answer.
        """
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(1)
        except OSError as problem:
            # Of a TLS socket an error of its own, which says the same.
            return isinstance(problem, BlockingIOError) or _wants_more(problem)
        return False

    def abort(self) -> None:
        """Close it at once."""
        self._socket.close()


async def connected(host: str, port: int) -> socket.socket:
    """A connection to the first address that accepts one."""
    problem: OSError | None = None
    until = time.monotonic() + tcp.CONNECT_SECONDS
    found = socket.getaddrinfo(_plain(host), port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        plain = tcp.prepared(family, kind, protocol)
        try:
            plain.settimeout(Limit.left(max(0.001, until - time.monotonic())))
            plain.connect(address)
            return plain
        except TimeoutError:
            plain.close()
            raise Unreachable(tcp.LATE) from None
        except OSError as error:
            plain.close()
            problem = problem or error
        except BaseException:
            plain.close()
            raise
    raise problem or OSError(f"{host} has no address")


async def send(plain: socket.socket, data: bytes) -> None:
    """Send on a connection that is no stream yet."""
    plain.settimeout(Limit.left())
    plain.sendall(data)


async def receive(plain: socket.socket, most: int) -> bytes:
    """What comes next on such a connection."""
    plain.settimeout(Limit.left())
    return plain.recv(most)


async def opened(plain: socket.socket, tls: ssl.SSLContext | None, name: str) -> BlockingStream:
    """The stream."""
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return BlockingStream(plain)
    try:
        plain.settimeout(Limit.left())
        return BlockingStream(tls.wrap_socket(plain, server_hostname=_plain(name)))
    except BaseException:
        plain.close()
        raise


def _wants_more(problem: OSError) -> bool:
    import ssl

    return isinstance(problem, ssl.SSLWantReadError)


def _plain(name: str) -> Any:
    """A usual name as bytes: then the codec of international names is not imported for it."""
    usual = name.isascii() and all(0 < len(label) <= _LABEL for label in name.split("."))
    return name.encode() if usual else name
