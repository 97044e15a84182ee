"""One end of a `cni.sock` connection for asyncio, with the descriptor that travels along.

asyncio's streams drop ancillary data, so this reads the socket itself: `recvmsg` when the
loop says that it is readable. The socket never blocks the loop, a descriptor is never
inherited by a child, and an unclaimed one is closed (CHAN-1). The listening end is
`cni.socket.accepting`.

Invariant:
  CHAN-1  A descriptor that came along is inherited by no child, and is closed when nothing asks
          for it.

Tested in `tests/cni/test_protocol.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cni.socket import protocol

CHUNK = 64 * 1024
"""Read at once; malloc maps and unmaps memory for much more than that."""
INT = struct.Struct("i")
ANCILLARY = socket.CMSG_SPACE(4 * INT.size)


class Channel:
    """A connected socket that sends and receives messages of `cni.socket.protocol`.

    One task may receive while another sends. `peer_uid`, `peer_pid` come from the kernel.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()
        self._sending = asyncio.Lock()
        self._attended: asyncio.AbstractEventLoop | None = None
        self.began = time.monotonic()
        self.asked = False
        """Whether the peer has sent its request; set by the server."""
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.peer_pid, self.peer_uid, _ = struct.unpack("iII", credentials)

    async def receive(
        self, until: float | None = None
    ) -> tuple[protocol.Message, int | None] | None:
        """Return the next message and, with a `Request` that has one, the namespace descriptor.

        The caller owns the descriptor and closes it. None is the other side's orderly end.
        Messages of unknown type are skipped. Raises ProtocolError, OSError; TimeoutError when
        the loop's clock says `until`.
        """
        while True:
            try:
                return self.receive_now()
            except BlockingIOError:
                await self._readable(until)

    def receive_now(self) -> tuple[protocol.Message, int | None] | None:
        """As `receive`; raises BlockingIOError where that would wait."""
        while True:
            body = protocol.take_frame(self._buffer)
            if body is not None:
                message = protocol.decode_body(body)
                if message is None:
                    continue
                return message, self._claim(message)
            if not self._fill():
                if self._buffer:
                    raise protocol.ProtocolError("the connection ended inside a frame")
                return None

    def attend(self, heard: Callable[[], None]) -> None:
        """Call `heard` whenever there is something to receive, until `ignore` or `close`."""
        self._attended = asyncio.get_running_loop()
        self._attended.add_reader(self._sock.fileno(), heard)

    def ignore(self) -> None:
        """End `attend`."""
        loop, self._attended = self._attended, None
        if loop is not None:
            loop.remove_reader(self._sock.fileno())

    def _claim(self, message: protocol.Message) -> int | None:
        if not isinstance(message, protocol.Request) or not message.has_netns:
            return None
        if not self._descriptors:
            raise protocol.ProtocolError("a request with has_netns came without a descriptor")
        return self._descriptors.popleft()

    def _fill(self) -> bool:
        """Read what there is; False at the end of the stream."""
        try:
            # Not socket.recv_fds: in Python 3.11 it drops its flags.
            data, ancillary, _, _ = self._sock.recvmsg(CHUNK, ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        except InterruptedError as error:
            raise BlockingIOError from error
        except ConnectionResetError:
            return False
        if ancillary:
            self._keep(ancillary)
        self._buffer += data
        return bool(data)

    async def _readable(self, until: float | None) -> None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        # By its number: of a socket that it does not know yet the selector makes a text first.
        loop.add_reader(self._sock.fileno(), _wake, readable)
        timer = None if until is None else loop.call_at(until, _expire, readable)
        try:
            await readable
        finally:
            loop.remove_reader(self._sock.fileno())
            if timer is not None:
                timer.cancel()

    def _keep(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if (level, kind) != (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                continue
            for (descriptor,) in INT.iter_unpack(data[: len(data) // INT.size * INT.size]):
                if self._descriptors:
                    os.close(descriptor)
                else:
                    self._descriptors.append(descriptor)

    async def send(self, message: protocol.Message, descriptor: int | None = None) -> None:
        """Send one message, with `descriptor` on its first byte; raises OSError when it cannot."""
        frame = memoryview(protocol.encode_frame(message))
        if descriptor is None and not self._sending.locked():
            try:
                frame = frame[self._sock.send(frame) :]
            except (BlockingIOError, InterruptedError):
                pass
            if not frame:
                return
        loop = asyncio.get_running_loop()
        async with self._sending:
            if descriptor is not None:
                while True:
                    try:
                        sent = socket.send_fds(self._sock, [frame], [descriptor])
                        break
                    except (BlockingIOError, InterruptedError):
                        await asyncio.sleep(0.001)
                frame = frame[sent:]
            await loop.sock_sendall(self._sock, frame)

    def close(self) -> None:
        """Close the socket and every unclaimed descriptor. May be called twice."""
        self.ignore()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._sock.close()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


async def connect(path: Path) -> Channel:
    """Return a channel to the daemon at `path`; raises OSError when no daemon listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, str(path))
        return Channel(sock)
    except BaseException:
        sock.close()
        raise
