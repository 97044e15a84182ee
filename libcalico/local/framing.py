"""Frames on a node-local socket: how processes of one node speak typed messages.

The problem: `felix`, `bgp` and `cni` share no memory and restart independently, in any
order and, while a node is upgraded, in different releases. They need a stream of typed
messages that a neighbour one release older or newer still understands, on a socket that
only root can reach.

A frame is a 4-byte big-endian length and that many bytes of JSON, at most `MAX_FRAME`.
The JSON is one member of a msgspec tagged union (`node_api.Message` unless told otherwise).
The first frame in each direction is a `Hello`.

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
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, cast, get_args

import msgspec

from libcalico.errors import NO_DOCUMENT, MuslinError
from libcalico.local.attending import StreamProtocol
from libcalico.local.node_api import Hello, Message
from libcalico.process import tasks
from libcalico.process.tasks import ended

MAX_FRAME = 2 * 1024 * 1024
HELLO_TIMEOUT = 5.0
_HEADER = struct.Struct("!I")
_UCRED = struct.Struct("3i")

log = logging.getLogger(__name__)


class ProtocolError(MuslinError):
    """The peer broke the framing: a frame too long, not JSON, or a known message malformed."""


class _Tagged(msgspec.Struct):
    """Only the tag, to tell a message of a later release from a malformed one."""

    type: str


class Codec:
    """Encodes and decodes the members of one tagged union."""

    def __init__(self, messages: Any = Message) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(messages)
        self._encoder = msgspec.json.Encoder()
        self._tag = msgspec.json.Decoder(_Tagged)
        members = get_args(messages) or (messages,)
        self._tags = {str(member.__struct_config__.tag) for member in members}

    def encode(self, message: Any) -> bytes:
        """The frame of a message, length included. Raises `ProtocolError` beyond `MAX_FRAME`."""
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME:
            raise ProtocolError(
                f"{type(message).__name__} is {len(body)} bytes long: "
                f"a frame holds at most {MAX_FRAME}; send it in several"
            )
        return _HEADER.pack(len(body)) + body

    def decode(self, body: bytes) -> Any | None:
        """The message of a frame's body; None if its tag is unknown here (FRM-1)."""
        try:
            return self._decoder.decode(body)
        except NO_DOCUMENT as error:
            try:
                tag = self._tag.decode(body).type
            except NO_DOCUMENT:
                raise ProtocolError(f"a frame is not a tagged JSON message: {error}") from error
            if tag in self._tags:
                raise ProtocolError(f"message {tag!r} is malformed: {error}") from error
            return None


_NODE_API = Codec()


class _Cutter:
    """Cuts bytes into frames. Pure but for the callback."""

    def __init__(self, codec: Codec, on_message: Callable[[Any], None]) -> None:
        self._codec, self._on_message = codec, on_message
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Pass on the messages that these bytes complete. Raises `ProtocolError` (FRM-2)."""
        rest, at = self._rest, 0
        rest += data
        while len(rest) - at >= _HEADER.size:
            start = at + _HEADER.size
            end = start + _length(rest[at:start])
            if len(rest) < end:
                break
            message = self._codec.decode(bytes(rest[start:end]))
            at = end
            if message is not None:
                self._on_message(message)
        del rest[:at]


def _length(header: bytes | bytearray) -> int:
    (length,) = _HEADER.unpack(header)
    if length > MAX_FRAME:
        raise ProtocolError(
            f"a frame of {length} bytes was announced: at most {MAX_FRAME} are allowed"
        )
    return int(length)


class Connection:
    """One open connection, hellos exchanged. `hello` is the peer's; `peer_uid` the kernel's word.

    `async for message in connection` ends when the peer closes. `send` may be called from
    several tasks; frames are never interleaved.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: Codec = _NODE_API
    ) -> None:
        self._reader, self._writer, self._codec = reader, writer, codec
        self.peer_uid = _peer_uid(writer)
        self.hello = Hello(process="")

    @property
    def process(self) -> str:
        """Who the peer says it is: `felix`, `bgp`, `cni`, `calicoctl`."""
        return self.hello.process

    async def send(self, message: Any) -> None:
        """Send one message; waits while the peer does not read.

        Raises `ConnectionError` when the peer is gone and `ProtocolError` when the message
        is too large for a frame (nothing is sent then).
        """
        frame = self._codec.encode(message)
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(frame)
        await self._writer.drain()

    def send_now(self, *messages: Any) -> bool:
        """Send messages before this returns; False if they must wait for others, or too long.

        What is sent by `send` leaves when the loop comes round, which may be busy for long.
        """
        transport = self._writer.transport
        if self._writer.is_closing() or transport.get_write_buffer_size():
            return False
        try:
            frame = b"".join(map(self._codec.encode, messages))
            sent = os.write(transport.get_extra_info("socket").fileno(), frame)
        except (ProtocolError, OSError):
            return False
        if sent < len(frame):
            self._writer.write(frame[sent:])
        return True

    async def receive(self) -> Any:
        """The next message of a known type, or None when the peer has closed.

        Raises `ProtocolError` (FRM-2).
        """
        while True:
            try:
                length = _length(await self._reader.readexactly(_HEADER.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            message = self._codec.decode(body)
            if message is not None:
                return message

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.receive()) is not None:
            yield message

    async def attend(self, on_message: Callable[[Any], None]) -> None:
        """Call `on_message` in the turn of the loop in which a message comes, until the peer ends.

        Raises `ProtocolError` (FRM-2), and what `on_message` raises. Nothing is received after it.
        """
        protocol = self._writer.transport.get_protocol()
        assert isinstance(protocol, StreamProtocol)
        await protocol.attend(_Cutter(self._codec, on_message).feed)

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

    async def _exchange(self, hello: Hello, timeout: float) -> None:
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


OnConnection = Callable[[Connection], Awaitable[None]]


class UnixServer:
    """A listening socket; made by `serve_unix`."""

    def __init__(self, path: Path, hello: Hello, on_connection: OnConnection, codec: Codec) -> None:
        self._path, self._hello, self._codec = path, hello, codec
        self._on_connection = on_connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Listen. The path appears in one step, with its mode set (FRM-3)."""
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        making = directory / f".{self._path.name}.{os.getpid()}"
        making.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(str(making))
            making.chmod(0o600)
            self._inode = making.stat().st_ino
            listener.setblocking(False)
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: StreamProtocol(asyncio.StreamReader(MAX_FRAME), self._accept),
                sock=listener,
                backlog=128,
            )
            making.rename(self._path)
        except BaseException:
            listener.close()
            making.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        """Stop listening, end every connection, remove the path if it is still ours."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await ended(self._tasks)
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = tasks.start(self._serve(reader, writer), "a connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._codec)
        try:
            if connection.peer_uid not in (0, os.geteuid()):
                log.warning("a peer was turned away: uid %d", connection.peer_uid)
                return
            await connection._exchange(self._hello, HELLO_TIMEOUT)
            await self._on_connection(connection)
        except (ProtocolError, ConnectionError) as error:
            log.warning("connection of %s ended: %s", connection.process or "a peer", error)
        except Exception:
            log.exception("the handler of a connection failed")
        finally:
            await connection.close()

    async def __aenter__(self) -> UnixServer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def serve_unix(
    path: str | Path,
    on_connection: OnConnection,
    *,
    hello: Hello | None = None,
    messages: Any = Message,
) -> UnixServer:
    """Listen on `path`; each connection runs `on_connection` and is closed when it returns.

    The hellos are exchanged before `on_connection` is called. A path left by a dead process
    is replaced. Raises `OSError` when the path cannot be made (a socket path holds at most
    107 bytes). Use as `async with await serve_unix(...)` or call `close()`.
    """
    codec = _NODE_API if messages is Message else Codec(messages)
    server = UnixServer(Path(path), hello or Hello(process="felix"), on_connection, codec)
    await server.start()
    return server


async def connect_unix(
    path: str | Path,
    hello: Hello,
    *,
    messages: Any = Message,
    timeout: float = HELLO_TIMEOUT,
) -> Connection:
    """Connect to `path` and exchange hellos.

    Raises `OSError` (nobody listens, or the connection broke) or `ProtocolError` (no hello
    within `timeout` seconds); both mean: try again with back-off.
    """
    codec = _NODE_API if messages is Message else Codec(messages)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_FRAME)
    transport, protocol = await loop.create_unix_connection(
        lambda: StreamProtocol(reader), str(path)
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    connection = Connection(reader, writer, codec)
    try:
        await connection._exchange(hello, timeout)
    except BaseException:
        writer.close()
        raise
    return connection


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    """The peer's uid as the kernel recorded it at connect (unix(7), SO_PEERCRED)."""
    sock = cast(socket.socket, writer.get_extra_info("socket"))
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])
