"""Frames on a node-local socket: how processes of one node speak typed messages.

The problem: `felix`, `bgp` and `cni` share no memory and restart independently, in any
order and, while a node is upgraded, in different releases. They need a stream of typed
messages that a neighbour one release older or newer still understands, on a socket that
only root can reach.

`libcalico.local.frames` says what a frame is. The first frame in each direction is a `Hello`.

Invariants:
  FRM-1  A message whose tag this release does not know is skipped, never an error.
  FRM-2  A frame that is too long or malformed ends the connection with `ProtocolError`;
         nothing after it is read.
  FRM-3  The socket is mode 0600 in a directory of mode 0700 from the first instant on, and a
         peer that is neither root nor ourselves is turned away before a byte is read.
Tested in tests/libcalico/test_framing.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import cast

from libcalico.local.attending import StreamProtocol
from libcalico.local.frames import (
    HEADER,
    MAX_FRAME,
    Cutter,
    ProtocolError,
    decode,
    encode,
    length_of,
)
from libcalico.local.node_api import Hello, Message

HELLO_TIMEOUT = 5.0
_UCRED = struct.Struct("3i")


class Connection:
    """One open connection, hellos exchanged. `peer_uid` is the peer's uid as the kernel has it.

    `hello` is the peer's. `async for message in connection` ends when the peer closes. `send` may
    be called from several tasks; frames are never interleaved.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.peer_uid = _peer_uid(writer)
        self.hello = Hello(process="")

    @property
    def process(self) -> str:
        """The name that the peer gives itself: `felix`, `bgp`, `cni`, `calicoctl`."""
        return self.hello.process

    async def send(self, message: Message) -> None:
        """Send one message; waits while the peer does not read.

        Raises `ConnectionError` when the peer is gone and `ProtocolError` when the message
        is too large for a frame (nothing is sent then).
        """
        frame = encode(message)
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(frame)
        await self._writer.drain()

    def send_now(self, *messages: Message) -> bool:
        """Send messages before this returns; False if others wait to be sent, or they are too long.

        `send` leaves it to the loop's next turn, which may be long in coming.
        """
        transport = self._writer.transport
        if self._writer.is_closing() or transport.get_write_buffer_size():
            return False
        try:
            frame = b"".join(map(encode, messages))
            sent = os.write(transport.get_extra_info("socket").fileno(), frame)
        except (ProtocolError, OSError):
            return False
        if sent < len(frame):
            self._writer.write(frame[sent:])
        return True

    async def receive(self) -> Message | None:
        """The next message of a known type, or None when the peer has closed.

        Raises `ProtocolError` (FRM-2).
        """
        while True:
            try:
                length = length_of(await self._reader.readexactly(HEADER.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            message = decode(body)
            if message is not None:
                return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def attend(self, on_message: Callable[[Message], None]) -> None:
        """Call `on_message` in the turn of the loop in which a message comes, until the peer ends.

        Raises `ProtocolError` (FRM-2), and what `on_message` raises. Nothing is received after it.
        """
        protocol = self._writer.transport.get_protocol()
        assert isinstance(protocol, StreamProtocol)
        await protocol.attend(Cutter(on_message).feed)

    async def close(self) -> None:
        """Close both directions; what was sent before still reaches the peer."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def exchange_hellos(self, hello: Hello, timeout: float) -> None:
        """Send our hello and receive the peer's. Raises `ProtocolError`, `ConnectionError`."""
        try:
            async with asyncio.timeout(timeout):
                await self.send(hello)
                first = await self.receive()
        except TimeoutError:
            raise ProtocolError(f"the peer sent no hello within {timeout:g} s") from None
        if first is None:
            raise ConnectionResetError("the peer closed the connection before its hello")
        if not isinstance(first, Hello):
            raise ProtocolError(f"the first frame is {type(first).__name__}, not Hello")
        self.hello = first


async def connect_unix(
    path: str | Path,
    hello: Hello,
    *,
    timeout: float = HELLO_TIMEOUT,
) -> Connection:
    """Connect to `path` and exchange hellos.

    Raises `OSError` (no listener, or the connection broke) or `ProtocolError` (no hello
    within `timeout` seconds); both mean: try again with back-off.
    """
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_FRAME)
    transport, protocol = await loop.create_unix_connection(
        lambda: StreamProtocol(reader), str(path)
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    connection = Connection(reader, writer)
    try:
        await connection.exchange_hellos(hello, timeout)
    except BaseException:
        writer.close()
        raise
    return connection


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    """The peer's uid as the kernel recorded it at connect (unix(7), SO_PEERCRED)."""
    sock = cast(socket.socket, writer.get_extra_info("socket"))
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])
