"""What a connection to the API is made of: by an event loop (looped.py), or without (blocking.py).

Tested in tests/libcalico/test_kubernetes_wire.py, both ways.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

HEAD_LIMIT = 64 * 1024
"""Bytes of a head or a line at most."""


class TooLong(Exception):
    """What should end did not end within `HEAD_LIMIT`."""


class Stream(Protocol):
    """Bytes in both directions."""

    async def read(self, most: int) -> bytes:
        """What comes next, `most` bytes at most; empty at the end. Raises OSError."""

    async def readuntil(self, end: bytes) -> bytes:
        """All up to `end`, with it. Raises OSError, EOFError, TooLong."""

    async def write(self, data: bytes) -> None:
        """Send. Raises OSError."""

    @property
    def usable(self) -> bool:
        """Whether the other side has neither ended it nor sent what was not asked for."""

    def abort(self) -> None:
        """Close it at once."""


class Way(Protocol):
    """How connections are made and waited for."""

    async def connected(self, host: str, port: int) -> socket.socket:
        """A connection to the first address that accepts one. Raises OSError, ValueError.

        Without TLS: a busy server may take longer for that. ValueError is for a bad name.
        Raises Unreachable after `tcp.CONNECT_SECONDS`.
        """

    async def send(self, plain: socket.socket, data: bytes) -> None:
        """Send on a connection that is no stream yet. Raises OSError."""

    async def receive(self, plain: socket.socket, most: int) -> bytes:
        """What comes next on such a connection; empty at the end. Raises OSError."""

    async def opened(self, plain: socket.socket, tls: ssl.SSLContext | None, name: str) -> Stream:
        """The stream, with TLS to a server of this name if there is a context. Raises OSError."""
