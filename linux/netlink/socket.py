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
import itertools
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from linux import netns
from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m

NETLINK_ROUTE, NETLINK_NETFILTER = 0, 12
_SOL_NETLINK = 270
_ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK, _STRICT_CHECK = 1, 10, 11, 12
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_ATTACH_FILTER = 32, 33, 26
_INSTRUCTION = struct.Struct("=HBBI")
_SEQUENCE = struct.Struct("=I")
_BUFFER = 8 << 20
_SEND_CHUNK = 1 << 20
_RECEIVE = 1 << 18
_DUMP_TRIES = 20
_SPACES = threading.local()
_CAPPED, _ACK_TLVS = 0x100, 0x200
_ERRMSG, _OFFSET = 1, 2


@dataclass(slots=True)
class Result:
    """The fate of one request.

    `errno` 0 is success. `detail` is the kernel's extended text. `answers` are the messages it
    sent back (type, body without header): objects asked for, or the echo of a created one.
    """

    index: int
    kind: int
    errno: int
    detail: str
    answers: list[tuple[int, bytes]]

    @property
    def ok(self) -> bool:
        """Whether the kernel did what was asked."""
        return self.errno == 0

    def error(self, what: str = "") -> KernelError | None:
        """The failure as an exception value; `what` names the object ("add route 10.0.0.0/26")."""
        if self.errno == 0:
            return None
        return KernelError(self.errno, what or f"netlink request type {self.kind}", self.detail)

    def check(self, what: str = "") -> Result:
        """Raises `KernelError` unless it went well; returns itself."""
        error = self.error(what)
        if error is not None:
            raise error
        return self


class Socket(Closing):
    """A blocking netlink socket with a time limit; for one thread at a time.

    `timeout` is in seconds and bounds each wait for the kernel (it answers at once; the limit is
    there so that a bug cannot hang a process).
    """

    def __init__(
        self, *, family: int = NETLINK_ROUTE, groups: Sequence[int] = (), timeout: float = 10.0
    ) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self._sequence = itertools.count(1)
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
        try:
            self._socket.setsockopt(level, option, value)
        except OSError:
            pass

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """What the kernel calls this socket: the sender of what was written by it."""
        return int(self._socket.getsockname()[0])

    def take_only(self, program: Sequence[tuple[int, int, int, int]]) -> None:
        """Receive only what a classic BPF program takes (socket(7), SO_ATTACH_FILTER).

        Instructions are (code, jump if true, jump if false, number). Raises OSError.
        """
        code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*line) for line in program))
        header = struct.pack("@HP", len(program), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)

    def setblocking(self, blocking: bool) -> None:
        """Switches to non-blocking receives (monitors)."""
        self._socket.setblocking(blocking)

    def receive(self) -> bytes:
        """One datagram of messages; for monitors. Raises OSError (ENOBUFS: messages were lost).

        BlockingIOError where there is none, or none came in time.
        """
        space = _space()
        return bytes(memoryview(space)[: self._socket.recv_into(space)])

    def close(self) -> None:
        """Closes the socket; twice is fine."""
        self._socket.close()

    def transact(self, messages: Sequence[bytes]) -> list[Result]:
        """Sends all messages, returns the fate of each, in order.

        The kernel goes on after a failed message: what must not happen then has to be sent
        afterwards. Raises `KernelError` only if the socket itself fails (no buffers, no answer).
        """
        results: list[Result] = []
        batch = bytearray()
        first = 0
        for index, request in enumerate(messages):
            if batch and len(batch) + len(request) > _SEND_CHUNK:
                results += self._transact(batch, messages[first:index], first)
                batch, first = bytearray(), index
            batch += request
            batch += bytes(-len(batch) & 3)
        if batch:
            results += self._transact(batch, messages[first:], first)
        return results

    def transact_all(self, messages: Sequence[bytes]) -> dict[int, Result]:
        """As `transact`, for very many that mostly go well: only the failures, by their index."""
        failed: dict[int, Result] = {}
        at = 0
        while at < len(messages):
            batch = bytearray()
            first = sequence = at
            base = next(self._sequence)
            while at < len(messages) and (
                not batch or len(batch) + len(messages[at]) <= _SEND_CHUNK
            ):
                offset = len(batch)
                batch += messages[at]
                batch += bytes(-len(batch) & 3)
                sequence = (base + at - first) & 0xFFFFFFFF
                _SEQUENCE.pack_into(batch, offset + 8, sequence)
                at += 1
            length, kind, flags, _, _ = m.HEADER.unpack_from(batch, offset)
            m.HEADER.pack_into(batch, offset, length, kind, flags | m.NLM_F_ACK, sequence, 0)
            self._sequence = itertools.count(base + at - first)
            self._send(batch)
            self._failures(first, base, at - first, failed)
        return failed

    def _failures(self, first: int, base: int, count: int, failed: dict[int, Result]) -> None:
        """Read the answers of so many requests, until the last one's."""
        while True:
            for kind, _, sequence, body in self._messages("answer"):
                number = (sequence - base) & 0xFFFFFFFF
                if kind != m.NLMSG_ERROR or number >= count:
                    continue
                code, detail = _read_error(body)
                if code:
                    failed[first + number] = Result(first + number, 0, code, detail, [])
                if number == count - 1:
                    return

    def carry_out(self, messages: Sequence[bytes], what: str = "") -> None:
        """Sends all messages; raises `KernelError` for the first of them that failed.

        The kernel goes on after a failed message, as with `transact`.
        """
        if failed := self.transact_all(messages):
            failed[min(failed)].check(what)

    def request(self, request: bytes, what: str = "") -> Result:
        """Sends one message and raises `KernelError` if it failed."""
        return self.transact([request])[0].check(what)

    def _transact(self, batch: bytearray, messages: Sequence[bytes], first: int) -> list[Result]:
        results: dict[int, Result] = {}
        offset = 0
        last = 0
        for index, request in enumerate(messages):
            length, kind, flags, _, _ = m.HEADER.unpack_from(batch, offset)
            last = next(self._sequence) & 0xFFFFFFFF
            if index == len(messages) - 1:
                flags |= m.NLM_F_ACK
            m.HEADER.pack_into(batch, offset, length, kind, flags, last, 0)
            results[last] = Result(first + index, kind, 0, "", [])
            offset += (len(request) + 3) & ~3
        self._send(batch)
        done = False
        while not done:
            for kind, _, sequence, body in self._messages("answer"):
                result = results.get(sequence)
                if result is None:
                    continue
                if kind == m.NLMSG_ERROR:
                    result.errno, result.detail = _read_error(body)
                    done = done or sequence == last
                elif kind > m.NLMSG_OVERRUN:
                    result.answers.append((kind, body))
        return list(results.values())

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
        length, kind, flags, _, _ = m.HEADER.unpack_from(request)
        sequence = next(self._sequence) & 0xFFFFFFFF
        data = bytearray(request)
        m.HEADER.pack_into(data, 0, length, kind, flags | m.NLM_F_DUMP, sequence, 0)
        self._send(data)
        objects: list[tuple[int, bytes]] = []
        torn = False
        while True:
            for kind, flags, seen, body in self._messages(what):
                if seen != sequence:
                    continue
                torn = torn or bool(flags & m.NLM_F_DUMP_INTR)
                if kind == m.NLMSG_DONE:
                    code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                    if code > 0:
                        raise KernelError(code, what or "netlink dump", _ext_text(body, 4))
                    return None if torn else objects
                if kind == m.NLMSG_ERROR:
                    code, detail = _read_error(body)
                    if code:
                        raise KernelError(code, what or "netlink dump", detail)
                    return objects
                if kind > m.NLMSG_OVERRUN:
                    objects.append((kind, body))

    def _send(self, data: bytearray) -> None:
        try:
            # An unconnected netlink socket sends to the kernel (netlink(7)).
            self._socket.send(data)
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "send to netlink") from error

    def _messages(self, what: str) -> list[tuple[int, int, int, bytes]]:
        try:
            data = self.receive()
        except BlockingIOError as error:
            raise KernelError(errno.ETIMEDOUT, what or "netlink answer") from error
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, what or "netlink answer") from error
        return split(data)


def _space() -> bytearray:
    """This thread's space to receive in: made anew each time, malloc would map and unmap it."""
    space: bytearray | None = getattr(_SPACES, "space", None)
    if space is None:
        space = _SPACES.space = bytearray(_RECEIVE)
    return space


def split(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """(type, flags, sequence, body) of each message in a datagram."""
    messages = []
    offset = 0
    end = len(data)
    while offset + m.HEADER.size <= end:
        length, kind, flags, sequence, _ = m.HEADER.unpack_from(data, offset)
        if length < m.HEADER.size or offset + length > end:
            break
        messages.append((kind, flags, sequence, data[offset + m.HEADER.size : offset + length]))
        offset += (length + 3) & ~3
    return messages


def _read_error(body: bytes) -> tuple[int, str]:
    code, length = struct.unpack_from("=iI", body)
    if not code:
        return 0, ""
    # The refused request's header follows the code; its payload too, unless the kernel capped it.
    offset = 4 + m.HEADER.size
    rest = body[offset:]
    text = _ext_text(body, offset) or _ext_text(body, 4 + ((length + 3) & ~3))
    return -code, text if rest else ""


def _ext_text(body: bytes, offset: int) -> str:
    if offset >= len(body):
        return ""
    value = m.parse_attributes(body, offset).get(_ERRMSG)
    return m.as_text(value) if value else ""


def open_in_netns(fd: int, *, groups: Sequence[int] = (), timeout: float = 10.0) -> Socket:
    """A route socket of the namespace behind `fd`; the thread is back when this returns (NL-3)."""
    return netns.run_in(fd, lambda: Socket(groups=groups, timeout=timeout))
