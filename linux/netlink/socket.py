"""A netlink socket that sends many requests at once and gives an answer for each.

Problem: one system call and one wake-up per request make wiring a namespace ten times slower, and
a library that raises on the first error hides the fate of the others. `transact` sends all
messages in one go, asks for an acknowledgement on the last only (the kernel works in order, and
reports errors in any case) and returns one `Result` per message.

NL-1: an answer belongs to the request with its sequence number; strays are dropped.
NL-2: a dump that the kernel marks as interrupted is repeated, never returned torn.
NL-3: a thread that enters a namespace to open a socket is back before anything else runs, or the
      process aborts.
Tested in tests/linux/test_netlink.py.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from linux import netns
from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.answers import Message, Result, read_done, read_error, split
from linux.netlink.filters import Program

NETLINK_ROUTE, NETLINK_NETFILTER = 0, 12
_SOL_NETLINK = 270
_ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK, _STRICT_CHECK = 1, 10, 11, 12
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_ATTACH_FILTER = 32, 33, 26
_INSTRUCTION = struct.Struct("=HBBI")
_BUFFER = 8 << 20
_RECEIVE = 1 << 18
_DUMP_TRIES = 20


class _Space(threading.local):
    """A thread's space to receive in: made anew each time, malloc would map and unmap it.

    It costs the pages that an answer ever filled: a dump's are 32 KiB at most.
    """

    def __init__(self) -> None:
        self.buffer = mmap.mmap(-1, _RECEIVE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


_SPACE = _Space()


class Socket(Closing):
    """A blocking netlink socket with a time limit; for one thread at a time.

    `timeout` is in seconds and bounds each wait for the kernel (it answers at once; the limit is
    there so that a bug cannot hang a process).
    """

    def __init__(
        self, *, family: int = NETLINK_ROUTE, groups: Sequence[int] = (), timeout: float = 10.0
    ) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
        self._sequence = 1
        try:
            # The kernel's own limit: with Python's, each call asks poll(2) first.
            limit = struct.pack("@ll", int(timeout), max(int(timeout % 1 * 1e6), 1))
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, limit)
            for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
                self._option(socket.SOL_SOCKET, option, _BUFFER)
            for option in (_CAP_ACK, _EXT_ACK, _STRICT_CHECK):
                self._option(_SOL_NETLINK, option, 1)
            self._socket.bind((0, 0))
            for group in groups:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        except BaseException:
            self._socket.close()
            raise

    def _option(self, level: int, option: int, value: int) -> None:
        # Older kernels and unprivileged users lack some; each only makes things faster or clearer.
        with suppress(OSError):
            self._socket.setsockopt(level, option, value)

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """What the kernel calls this socket: the sender of what was written by it."""
        return int(self._socket.getsockname()[0])

    def attach_filter(self, program: Program) -> None:
        """Receive only what a program takes (socket(7), SO_ATTACH_FILTER). Raises OSError."""
        code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*line) for line in program))
        header = struct.pack("@HP", len(program), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)

    def set_buffer(self, size: int) -> None:
        """Let so many bytes wait to be received (8 MiB unless set). Raises OSError."""
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)

    def setblocking(self, blocking: bool) -> None:
        """Switches to non-blocking receives (monitors)."""
        self._socket.setblocking(blocking)

    def receive(self) -> bytes:
        """One datagram of messages; for monitors. Raises OSError (ENOBUFS: messages were lost).

        BlockingIOError where there is none, or none came in time.
        """
        space = _SPACE.buffer
        return bytes(memoryview(space)[: self._socket.recv_into(space)])

    def read_waiting(self) -> Iterator[list[Message] | None]:
        """The messages of each datagram that waits; None where the kernel dropped some (ENOBUFS).

        For sockets that do not block. Raises OSError.
        """
        while True:
            try:
                data = self.receive()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
            else:
                yield split(data)

    def close(self) -> None:
        """Closes the socket; twice is fine."""
        self._socket.close()

    def transact(self, messages: Sequence[bytes]) -> list[Result]:
        """Sends all messages, returns the fate of each, in order.

        The kernel goes on after a failed message: what must not happen then has to be sent
        afterwards. Raises `KernelError` only if the socket itself fails (no buffers, no answer).
        """
        results: list[Result] = []
        for first, batch in m.in_batches(messages):
            base = self._send_batch(batch)
            kinds = (m.HEADER.unpack_from(request)[1] for request in batch)
            fates = [Result(index, kind) for index, kind in enumerate(kinds, first)]
            for place, kind, body in self._answers(base, len(batch)):
                if kind == m.NLMSG_ERROR:
                    fates[place].errno, fates[place].detail = read_error(body)
                elif kind > m.NLMSG_OVERRUN:
                    fates[place].answers.append((kind, body))
            results += fates
        return results

    def transact_all(self, messages: Sequence[bytes]) -> dict[int, Result]:
        """As `transact`, for very many that mostly go well: only the failures, by their index."""
        failed: dict[int, Result] = {}
        for first, batch in m.in_batches(messages):
            base = self._send_batch(batch)
            for place, kind, body in self._answers(base, len(batch)):
                code, detail = read_error(body) if kind == m.NLMSG_ERROR else (0, "")
                if code:
                    failed[first + place] = Result(first + place, 0, code, detail)
        return failed

    def carry_out(self, messages: Sequence[bytes], what: str = "") -> None:
        """Sends all messages; raises `KernelError` for the first of them that failed.

        The kernel goes on after a failed message, as with `transact`.
        """
        if failed := self.transact_all(messages):
            failed[min(failed)].check(what)

    def request(self, request: bytes, what: str = "") -> Result:
        """Sends one message and raises `KernelError` if it failed."""
        return self.transact([request])[0].check(what)

    def _send_batch(self, requests: Sequence[bytes], acknowledged: int = -1) -> int:
        """Sends them as one datagram; the sequence number of the first.

        The request at `acknowledged` asks for an answer, by default the last one.
        """
        base = self._reserve(len(requests))
        self._send(m.pack_batch(requests, base, acknowledged % len(requests)))
        return base

    def _reserve(self, count: int) -> int:
        """The first of so many sequence numbers."""
        first, self._sequence = self._sequence, (self._sequence + count) & 0xFFFFFFFF
        return first

    def _answers(self, base: int, count: int) -> Iterator[tuple[int, int, bytes]]:
        """(place, type, body) of the answers to so many requests, until the last one's (NL-1)."""
        ended = False
        while not ended:
            for kind, _, sequence, body in self._messages("answer"):
                place = (sequence - base) & 0xFFFFFFFF
                if place < count:
                    ended = ended or (kind == m.NLMSG_ERROR and place == count - 1)
                    yield place, kind, body

    def dump(self, request: bytes, what: str = "") -> list[tuple[int, bytes]]:
        """All objects a dump request names, as (type, body). Raises `KernelError`.

        `request` is made with `message(kind, 0, body)`; the dump flags are added here.
        """
        for _ in range(_DUMP_TRIES):
            objects = self._dump_once(request, what)
            if objects is not None:
                return objects
        raise KernelError(errno.EINTR, what or "netlink dump", "the table changes too quickly")

    def _dump_once(self, request: bytes, what: str) -> list[tuple[int, bytes]] | None:
        objects: list[tuple[int, bytes]] = []
        torn = False
        for messages, whole in self._dumping(request, what):
            objects += messages
            torn = torn or not whole
        return None if torn else objects

    def dump_slices(self, request: bytes, what: str = "") -> Iterator[list[tuple[int, bytes]]]:
        """As `dump`, datagram by datagram, for tables so large that a caller works meanwhile.

        What changes during the dump may be missing, or there twice. Raises `KernelError`.
        """
        for messages, _ in self._dumping(request, what):
            yield messages

    def _dumping(self, request: bytes, what: str) -> Iterator[tuple[list[tuple[int, bytes]], bool]]:
        """The objects of each datagram, and whether the kernel took it for whole."""
        length, kind, flags, _, _ = m.HEADER.unpack_from(request)
        sequence = self._reserve(1)
        header = m.HEADER.pack(length, kind, flags | m.NLM_F_DUMP, sequence, 0)
        self._send(header + request[m.HEADER.size :])
        ended = False
        while not ended:
            objects: list[tuple[int, bytes]] = []
            whole = True
            for kind, flags, seen, body in self._messages(what):
                if seen != sequence:
                    continue
                whole = whole and not flags & m.NLM_F_DUMP_INTR
                if kind in (m.NLMSG_DONE, m.NLMSG_ERROR):
                    code, detail = (read_done if kind == m.NLMSG_DONE else read_error)(body)
                    if code > 0:
                        raise KernelError(code, what or "netlink dump", detail)
                    ended = True
                elif kind > m.NLMSG_OVERRUN:
                    objects.append((kind, body))
            yield objects, whole

    def _send(self, data: bytes | bytearray) -> None:
        try:
            # An unconnected netlink socket sends to the kernel (netlink(7)).
            self._socket.send(data)
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "send to netlink") from error

    def _messages(self, what: str) -> list[Message]:
        try:
            data = self.receive()
        except BlockingIOError as error:
            raise KernelError(errno.ETIMEDOUT, what or "netlink answer") from error
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, what or "netlink answer") from error
        return split(data)


def open_in_netns(fd: int, *, groups: Sequence[int] = (), timeout: float = 10.0) -> Socket:
    """A route socket of the namespace behind `fd`; the thread is back when this returns (NL-3)."""
    return netns.run_in(fd, lambda: Socket(groups=groups, timeout=timeout))
