"""Connections to the API in an event loop (`stream.Way`).

Tested in tests/libcalico/test_kubernetes_wire.py and test_kubernetes_tunnel.py there.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.streams import tcp
from libcalico.kubernetes.streams.stream import HEAD_LIMIT, TooLong
from libcalico.process import tls_space

if TYPE_CHECKING:
    import ssl


class LoopedStream:
    """`stream.Stream` on a transport."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, most: int) -> bytes:
        """What comes next."""
        return await self._reader.read(most)

    async def readuntil(self, end: bytes) -> bytes:
        """All up to `end`."""
        try:
            return await self._reader.readuntil(end)
        except asyncio.LimitOverrunError:
            raise TooLong from None

    async def write(self, data: bytes) -> None:
        """Send."""
        self._writer.write(data)
        await self._writer.drain()

    @property
    def usable(self) -> bool:
        """Whether it has not ended."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    def abort(self) -> None:
        """Close it at once."""
        self._writer.transport.abort()


async def connected(host: str, port: int) -> socket.socket:
    """A connection to the first address that accepts one."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    try:
        async with asyncio.timeout(tcp.CONNECT_SECONDS):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in addresses:
                plain = tcp.prepared(family, kind, protocol)
                try:
                    plain.setblocking(False)
                    await loop.sock_connect(plain, address)
                    return plain
                except OSError as error:
                    plain.close()
                    problem = problem or error
                except BaseException:
                    plain.close()
                    raise
    except TimeoutError:
        raise Unreachable(tcp.LATE) from None
    raise problem or OSError(f"{host} has no address")


async def send(plain: socket.socket, data: bytes) -> None:
    """Send on a connection that is no stream yet."""
    await asyncio.get_running_loop().sock_sendall(plain, data)


async def receive(plain: socket.socket, most: int) -> bytes:
    """What comes next on such a connection."""
    return await asyncio.get_running_loop().sock_recv(plain, most)


async def opened(plain: socket.socket, tls: ssl.SSLContext | None, name: str) -> LoopedStream:
    """The stream."""
    tls_space.small()
    reader, writer = await asyncio.open_connection(
        sock=plain, ssl=tls, server_hostname=name if tls is not None else None, limit=HEAD_LIMIT
    )
    return LoopedStream(reader, writer)
