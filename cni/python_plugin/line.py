"""The twin's conversation with the daemon: see `cni/socket/protocol.py` for what is said.

Tested in tests/cni/test_executable_daemon.py.
"""

from __future__ import annotations

import errno
import os
import select
import time

from cni.python_plugin.call import (
    DECODING,
    FRAME_LIMIT,
    INTERNAL,
    RELEASE,
    RETRY,
    SOCKET_PATH,
    Call,
    Failure,
    write_all,
)
from cni.python_plugin.delegate import exec_result
from cni.python_plugin.queue import common, give_up
from cni.python_plugin.text import NotJSON, as_object, checked, number_of, shortened, text_of


class Lost(Exception):
    """The daemon is away, hangs, or speaks nonsense: why."""


class Line:
    """One connection to the daemon, at most until the call's deadline."""

    def __init__(self, call: Call) -> None:
        import socket
        import struct

        path = call.get(b"CNI_CALICO_SOCKET") or SOCKET_PATH
        if len(path) >= 108:
            raise Lost("the path of its socket is too long")
        left = call.left() + 0.001
        limit = struct.pack("@ll", int(left), int(left % 1 * 1e6))
        self.call, self.socket = call, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self.socket.connect(path)
            peer = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("iII", peer)[1] not in (0, os.geteuid()):
                raise OSError(errno.EPERM, "")
        except OSError as error:
            self.socket.close()
            known = {
                errno.ENOENT: "its socket does not exist",
                errno.ECONNREFUSED: "nobody listens on its socket",
            }
            raise Lost(known.get(error.errno or 0) or os.strerror(error.errno or 0)) from error

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self.socket, event)
        if not poll.poll(1000 * self.call.left()):
            raise Lost("it gave no answer in time")

    def send(self, *bodies: bytes, descriptor: int = -1) -> None:
        """Send a frame of each, `descriptor` with the first byte. Raises Lost."""
        import socket
        import struct

        view = memoryview(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
        flags = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        while view:
            self._wait(select.POLLOUT)
            try:
                sent = self.socket.sendmsg([view], rights if descriptor >= 0 else [], flags)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Lost("it closed the connection") from error
            view, descriptor = view[sent:], -1

    def _exactly(self, length: int) -> bytes:
        got = bytearray()
        while len(got) < length:
            self._wait(select.POLLIN)
            try:
                chunk = self.socket.recv(min(length - len(got), 1 << 18), 0x40)  # MSG_DONTWAIT
            except BlockingIOError:
                continue
            except OSError as error:
                raise Lost("it closed the connection") from error
            if not chunk:
                raise Lost("it closed the connection")
            got += chunk
        return bytes(got)

    def receive(self) -> dict[str, object]:
        """The next message. Raises Lost."""
        length = int.from_bytes(self._exactly(4), "big")
        if length > FRAME_LIMIT:
            raise Lost("it sent a frame that is too large")
        try:
            return as_object(self._exactly(length))
        except NotJSON as error:
            raise Lost("it sent a frame that is not a JSON object") from error


def send_request(call: Call, line: Line) -> None:
    left = int(1000 * call.left())
    body = b'{"type":"request",%s,"deadline":%d.%03d,"has_netns":%s}' % (
        common(call),
        left // 1000,
        left % 1000,
        b"true" if call.netns >= 0 else b"false",
    )
    hello = (
        f'{{"type":"hello","process":"executable","version":1,"release":"{RELEASE}",'
        '"features":["exec","undelivered"]}'
    )
    if len(body) > FRAME_LIMIT:
        line.send(hello.encode())
        msg = b"error unmarshall network config: too large for the daemon's socket"
        raise Failure(DECODING, msg)
    line.send(hello.encode(), body, descriptor=call.netns)


def ask_daemon(call: Call) -> int:
    """Hand the call over. A daemon that is just restarting gets RETRY seconds."""
    until = min(time.monotonic() + RETRY, call.deadline)
    pause = 0.01
    line: Line | None = None
    try:
        while True:
            try:
                line = Line(call)
                send_request(call, line)
                message = line.receive()
                break
            except Lost as lost:
                if line:
                    line.socket.close()
                if time.monotonic() >= until:
                    return give_up(call, str(lost).encode())
            time.sleep(pause)
            pause = 0.05
        if message.get("type") != "hello" or number_of(message, "version", 0) != 1:
            return give_up(call, b"it speaks another protocol")
        try:
            while True:
                message = line.receive()
                if message.get("type") == "result":
                    return deliver(call, line, message)
                if message.get("type") == "exec":
                    line.send(exec_result(call, message))
        except Lost as lost:
            return give_up(call, str(lost).encode())
    finally:
        if line:
            line.socket.close()


def deliver(call: Call, line: Line, message: dict[str, object]) -> int:
    """Print the daemon's answer; an ADD that cannot be reported is given back."""
    out = text_of(message, "stdout")
    failed = number_of(message, "exit", 1) != 0
    silent = not failed and call.command != b"ADD"
    sound = silent
    if not silent:
        try:
            sound = out[checked(out)[0] :].startswith(b"{")
        except NotJSON:
            sound = False
    write_all(call.stderr, shortened(text_of(message, "stderr"), 4096))
    if sound and (silent or call.print(out)):
        return int(failed)
    try:
        line.send(b'{"type":"undelivered","reason":"stdout"}')
    except Lost:
        pass  # it sees the connection end
    if not sound:
        msg = b"the daemon calico-cni gave an answer that is not a JSON object"
        raise Failure(INTERNAL, msg)
    return 1
