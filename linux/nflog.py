"""Readers of NFLOG groups: packets that the kernel logs to this process.

A rule with the NFLOG target hands the head of a packet and a prefix to the process that has bound
its group (nfnetlink_log, linux/netfilter/nfnetlink_log.h). A group has one reader in a network
namespace; the kernel forgets the binding when the socket goes.

NFL-1: every packet that the kernel delivered is returned once, in its order; what it could not
       deliver is counted as `lost`, packet by packet: the kernel numbers those of a group.
Tested in tests/linux/test_nflog.py.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from itertools import islice

from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.rtnl import IPAddress

_SUBSYSTEM = 4 << 8
_PACKET, _CONFIG = _SUBSYSTEM, _SUBSYSTEM | 1
_COMMAND, _MODE, _TIMEOUT, _THRESHOLD, _FLAGS = 1, 2, 4, 5, 6
_BIND, _COPY_PACKET = 1, 2
_NUMBERED = 1
_TIMESTAMP, _IN, _OUT, _PAYLOAD, _PREFIX, _NUMBER = 3, 4, 5, 9, 10, 12
COPY = 80
"""Enough for the headers of IPv6 and what of TCP matters."""
DELAY = 10
"""Hundredths of a second that the kernel may keep packets to deliver some at once."""
MOST_DATAGRAMS = 16
"""Read at once; each has up to 50 packets."""
_PORTS = frozenset({6, 17, 33, 132, 136})
_ICMP = frozenset({1, 58})
_EXTENSIONS = frozenset({0, 43, 60, 135})
_FRAGMENT = 44


@dataclass(frozen=True, slots=True)
class Head:
    """What a packet's headers say; ports and types are 0 where there are none."""

    source: IPAddress
    destination: IPAddress
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0


@dataclass(frozen=True, slots=True)
class Logged:
    """A packet that was logged. Interfaces by index, 0 where there is none.

    `payload`: its first bytes. `number`: among those of its group, from 0.
    """

    group: int
    prefix: str
    time: float
    in_interface: int
    out_interface: int
    payload: bytes = b""
    number: int | None = None

    @property
    def head(self) -> Head | None:
        """What its headers say, None where they are not whole."""
        return head(self.payload)


@dataclass(slots=True)
class Received:
    """What all readers of this process received: messages, packets by group, losses."""

    messages: int = 0
    overruns: int = 0
    packets: Counter[int] = field(default_factory=Counter)


RECEIVED = Received()


class Reader(Closing):
    """The reader of some groups, in the namespace of the thread that makes it.

    Raises `KernelError`: without privilege, or where another reader has a group (EPERM both; the
    kernel looks whose the group is before it looks whether it is taken).
    """

    def __init__(self, groups: Iterable[int]) -> None:
        self._socket = Socket(family=NETLINK_NETFILTER)
        self.lost = 0
        self._expected: dict[int, int] = {}
        try:
            for group in groups:
                self._bind(group)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def _bind(self, group: int) -> None:
        mode = struct.pack("!IBB", COPY, _COPY_PACKET, 0)
        steps = (
            (_COMMAND, struct.pack("=B", _BIND)),
            (_MODE, mode),
            (_TIMEOUT, struct.pack("!I", DELAY)),
            (_THRESHOLD, struct.pack("!I", 50)),
            (_FLAGS, struct.pack("!H", _NUMBERED)),
        )
        # One by one: packets that arrive meanwhile are none of the answers.
        for kind, value in steps:
            self._configure(group, kind, value)

    def _configure(self, group: int, kind: int, value: bytes) -> None:
        head = struct.pack("=BB", socket.AF_UNSPEC, 0) + struct.pack("!H", group)
        body = head + m.attribute(kind, value)
        self._socket.request(m.message(_CONFIG, m.NLM_F_ACK, body), f"NFLOG group {group}")

    def set_buffer(self, size: int) -> None:
        """Let so many bytes wait at most; what comes beyond is lost. Raises OSError."""
        self._socket.set_buffer(size)

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._socket.fileno()

    def read(self, most: int = MOST_DATAGRAMS) -> list[Logged]:
        """The packets that arrived, without waiting, of so many datagrams at most.

        Raises `KernelError` if the socket fails.
        """
        packets: list[Logged] = []
        try:
            for messages in islice(self._socket.read_waiting(), most):
                RECEIVED.messages += messages is not None
                RECEIVED.overruns += messages is None
                for kind, _, _, body in messages or ():
                    if kind == _PACKET:
                        packet = parse(body)
                        self._count(packet)
                        packets.append(packet)
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "read NFLOG") from error
        RECEIVED.packets.update(packet.group for packet in packets)
        return packets

    def _count(self, packet: Logged) -> None:
        if packet.number is None:
            return
        expected = self._expected.get(packet.group, packet.number)
        self.lost += (packet.number - expected) & 0xFFFFFFFF
        self._expected[packet.group] = (packet.number + 1) & 0xFFFFFFFF

    def close(self) -> None:
        """Give the groups back; twice is fine."""
        self._socket.close()


def parse(body: bytes) -> Logged:
    """The packet of a message, without its netlink header."""
    (group,) = struct.unpack_from("!H", body, 2)
    attributes = m.parse_attributes(body, 4)
    stamp, number = attributes.get(_TIMESTAMP, b""), attributes.get(_NUMBER)
    moment = time.time()
    if len(stamp) == 16:
        seconds, micros = struct.unpack("!QQ", stamp)
        moment = seconds + micros / 1e6
    return Logged(
        group,
        m.as_text(attributes.get(_PREFIX, b"")),
        moment,
        _index(attributes.get(_IN)),
        _index(attributes.get(_OUT)),
        attributes.get(_PAYLOAD, b""),
        None if number is None else int.from_bytes(number, "big"),
    )


def _index(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")


def head(payload: bytes) -> Head | None:
    """The headers of an IP packet, None where they are not whole."""
    version = payload[0] >> 4 if payload else 0
    if version == 4 and len(payload) >= 20:
        first = not struct.unpack_from("!H", payload, 6)[0] & 0x1FFF
        return _transport(
            IPv4Address(payload[12:16]),
            IPv4Address(payload[16:20]),
            payload[9],
            payload[(payload[0] & 15) * 4 :] if first else b"",
        )
    if version == 6 and len(payload) >= 40:
        protocol, rest = after_extensions(payload[6], payload[40:])
        return _transport(IPv6Address(payload[8:24]), IPv6Address(payload[24:40]), protocol, rest)
    return None


def after_extensions(protocol: int, rest: bytes) -> tuple[int, bytes]:
    """What lies behind the extension headers of IPv6: its protocol and bytes.

    A later fragment has no bytes that are headers.
    """
    while (protocol in _EXTENSIONS or protocol == _FRAGMENT) and len(rest) >= 8:
        if protocol == _FRAGMENT:
            later = struct.unpack_from("!H", rest, 2)[0] & 0xFFF8
            protocol, rest = rest[0], b"" if later else rest[8:]
        else:
            protocol, rest = rest[0], rest[(rest[1] + 1) * 8 :]
    return protocol, rest


def _transport(source: IPAddress, destination: IPAddress, protocol: int, rest: bytes) -> Head:
    if protocol in _PORTS and len(rest) >= 4:
        return Head(source, destination, protocol, *struct.unpack_from("!HH", rest))
    if protocol in _ICMP and len(rest) >= 2:
        return Head(source, destination, protocol, 0, 0, rest[0], rest[1])
    return Head(source, destination, protocol)
