"""A netlink socket of the simulated kernel, as `socket.socket` has it.

What multicast groups tell waits in the socket until it is read; where too much waits it is lost,
the reader is told once (ENOBUFS), and nothing more comes until all was read, as netlink(7) has it.
Filters (SO_ATTACH_FILTER) are run, instruction by instruction.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from linux.netlink import wire as m
from tests.simulation.kernel import requests

if TYPE_CHECKING:
    from tests.simulation.kernel.machine import Machine

OPEN: dict[int, NetlinkSocket] = {}
"""All of this process, by their descriptors."""
_LINE = struct.Struct("=HBBI")
_NEEDS_ROOM = 4096


class NetlinkSocket:
    """One socket. `room`: datagrams that may wait."""

    def __init__(self, machine: Machine, protocol: int, fd: int, port: int) -> None:
        self._machine, self.protocol = machine, protocol
        self._fd, self._port = fd, port
        self.groups: set[int] = set()
        self.room = machine.room()
        self._waiting: deque[bytes | Iterator[bytes]] = deque()
        self._told: deque[bytes] = deque()
        self._congested = self._lost = False
        self._program: list[tuple[int, int, int, int]] = []
        self._blocking = True
        self._open = True

    # -- what linux.netlink asks of a socket -----------------------------------------------

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Groups and filters count; the rest is taken."""
        if level == 270 and option == 1:
            self.groups.add(int(value))
        elif level == socket.SOL_SOCKET and option == 26:
            self._attach(value)

    def getsockopt(self, level: int, option: int, size: int = 0) -> int:
        """The room for sending: enough."""
        return 256 << 20

    def bind(self, address: Any) -> None:
        """Bound from the beginning."""

    def getsockname(self) -> tuple[int, int]:
        """The port."""
        return self._port, 0

    def fileno(self) -> int:
        """A descriptor that no other has."""
        return self._fd if self._open else -1

    def setblocking(self, blocking: bool) -> None:
        """Whether a read without anything to read is an error at once."""
        self._blocking = blocking

    def close(self) -> None:
        """Give it back."""
        self._open = False
        self._machine.sockets.pop(self._fd, None)
        OPEN.pop(self._fd, None)

    def send(self, data: bytes) -> int:
        """Requests, which the kernel answers at once."""
        self._machine.entered()
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._waiting.extend(requests.answer(self._machine, self.protocol, self._port, bytes(data)))
        return len(data)

    def recv_into(self, space: bytearray) -> int:
        """One datagram."""
        self._machine.entered()
        if self._waiting:
            data = self._answer()
        elif self._lost:
            self._lost = False
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        elif self._told:
            data = self._told.popleft()
            if not self._told:
                self._congested = False
        else:
            self._congested = False
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        space[: len(data)] = data
        return len(data)

    def _answer(self) -> bytes:
        first = self._waiting[0]
        if isinstance(first, bytes):
            self._waiting.popleft()
            return first
        while True:
            data = next(first, None)
            if data is not None:
                return data
            self._waiting.popleft()
            return self._answer()

    # -- the kernel's side -----------------------------------------------------------------

    def hear(self, datagram: bytes) -> None:
        """Something is told to a group of this socket."""
        if self._program and not _run(self._program, datagram):
            return
        if self._congested or len(self._told) >= self.room:
            self._machine.losses += 1
            if not self._congested:
                self._congested = self._lost = True
            return
        self._told.append(datagram)

    def _attach(self, header: bytes) -> None:
        count, where = struct.unpack("@HP", header)
        code = ctypes.string_at(where, count * _LINE.size)
        self._program = [_LINE.unpack_from(code, at) for at in range(0, len(code), _LINE.size)]


def readable(descriptors: Iterable[int]) -> list[int]:
    """Those of these descriptors of which a read brings something."""
    found = ((fd, OPEN.get(fd)) for fd in descriptors)
    return [fd for fd, one in found if one and (one._waiting or one._told or one._lost)]


def _run(program: list[tuple[int, int, int, int]], data: bytes) -> int:
    """Classic BPF: loads from a place, jumps if equal, returns."""
    accumulator, at = 0, 0
    while True:
        code, yes, no, number = program[at]
        at += 1
        size = {0x20: 4, 0x28: 2, 0x30: 1}.get(code)
        if size is not None:
            if number + size > len(data):
                return 0
            accumulator = int.from_bytes(data[number : number + size], "big")
        elif code == 0x15:
            at += yes if accumulator == number else no
        elif code == 0x06:
            return number
        else:
            raise NotImplementedError(f"instruction {code:#x} of a filter")


def datagram(kind: int, body: bytes, port: int, sequence: int = 0, flags: int = 0) -> bytes:
    """One message as a datagram."""
    data = m.HEADER.pack(m.HEADER.size + len(body), kind, flags, sequence, port) + body
    return data + bytes(-len(data) & 3)
