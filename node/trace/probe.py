"""One connection attempt from the source's namespace, and what came of it.

Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from libcalico.local.packet_trace import Probe, Question
from node.trace.heads import ICMP, ICMPV6, TCP, UDP

PROTOCOLS = (TCP, UDP, ICMP, ICMPV6)
_MTU_DISCOVER, _DO = {4: 10, 6: 23}, 2
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM, errno.EMSGSIZE)
_SIOCOUTQ = termios.TIOCOUTQ


@dataclass(frozen=True, slots=True)
class Sending:
    """How to send: bytes of payload (whole packets may not be fragmented), and seconds to wait."""

    size: int = 0
    seconds: float = 5.0


def attempt(
    question: Question,
    sending: Sending,
    make: Callable[[Callable[[], socket.socket]], socket.socket],
) -> Probe:
    """Send, wait, and tell. `make` calls a function in the source's namespace."""
    begun = time.monotonic()
    try:
        with make(lambda: _socket(question)) as sock:
            result, detail = _talk(sock, question, sending)
    except OSError as error:
        result, detail = _failure(error)
    return Probe(result, time.monotonic() - begun, detail)


def _socket(question: Question) -> socket.socket:
    version = ip_address(question.source).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    kind = socket.SOCK_STREAM if question.protocol == TCP else socket.SOCK_DGRAM
    number = 0 if question.protocol in (TCP, UDP) else question.protocol
    if question.protocol in (ICMP, ICMPV6):
        # Datagrams of echo need a setting of the namespace; root has raw sockets.
        kind = socket.SOCK_RAW
    sock = socket.socket(family, kind, number)
    try:
        level = socket.IPPROTO_IP if version == 4 else socket.IPPROTO_IPV6
        sock.setsockopt(level, _MTU_DISCOVER[version], _DO)
        sock.bind((question.source, 0))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _talk(sock: socket.socket, question: Question, sending: Sending) -> tuple[str, str]:
    deadline = time.monotonic() + sending.seconds
    place = (question.destination, question.port)
    if question.protocol == TCP:
        return _tcp(sock, place, sending.size, deadline)
    sock.connect(place)
    sock.send(_payload(question, sending.size))
    while _wait(sock, select.POLLIN, deadline):
        sock.recv(65536)
        return "answered", ""
    return ("sent", "no answer came") if question.protocol == UDP else ("timeout", "")


def _tcp(
    sock: socket.socket, place: tuple[str, int], size: int, deadline: float
) -> tuple[str, str]:
    code = sock.connect_ex(place)
    if code not in (0, errno.EINPROGRESS):
        raise OSError(code, os.strerror(code))
    if not _wait(sock, select.POLLOUT, deadline):
        return "timeout", "the handshake was not finished"
    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))
    if size:
        sock.send(bytes(size))
        while _unacknowledged(sock):
            if time.monotonic() > deadline:
                return "timeout", f"connected, but {size} bytes were not acknowledged"
            time.sleep(0.01)
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
    return "connected", ""


def _unacknowledged(sock: socket.socket) -> int:
    waiting = bytearray(4)
    fcntl.ioctl(sock, _SIOCOUTQ, waiting)
    return int.from_bytes(waiting, sys.byteorder)


def _payload(question: Question, size: int) -> bytes:
    if question.protocol == UDP:
        return b"muslin trace".ljust(size, b"\0") if size else b"muslin trace"
    kind = 8 if question.protocol == ICMP else 128
    data = b"muslin trace".ljust(size, b"\0")
    head = struct.pack("!BBHHH", kind, 0, 0, os.getpid() & 0xFFFF, 1)
    if question.protocol == ICMPV6:
        return head + data
    return struct.pack("!BBHHH", kind, 0, _checksum(head + data), os.getpid() & 0xFFFF, 1) + data


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _wait(sock: socket.socket, event: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(max(deadline - time.monotonic(), 0) * 1000))


def _failure(error: OSError) -> tuple[str, str]:
    text = error.strerror or str(error)
    if error.errno == errno.ECONNREFUSED:
        return "refused", text
    if error.errno == errno.ETIMEDOUT:
        return "timeout", text
    return ("unreachable" if error.errno in _UNREACHABLE else "failed"), text
