"""Readers of NFLOG groups: packets that the kernel logs to this process.

A rule with the NFLOG target hands the head of a packet and a prefix to the process that has bound
its group (nfnetlink_log, linux/netfilter/nfnetlink_log.h). A group has one reader in a network
namespace; the kernel forgets the binding when the socket goes.

NFL-1: every packet that the kernel delivered is returned once, in its order; what it could not
       deliver is counted as `lost`.
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

from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.rtnl import IPAddress

_SUBSYSTEM = 4 << 8
_PACKET, _CONFIG = _SUBSYSTEM, _SUBSYSTEM | 1
_COMMAND, _MODE, _TIMEOUT, _THRESHOLD = 1, 2, 4, 5
_BIND, _COPY_PACKET = 1, 2
_TIMESTAMP, _IN, _OUT, _PAYLOAD, _PREFIX = 3, 4, 5, 9, 10
COPY = 80
"""Enough for the headers of IPv6 and what of TCP matters."""
DELAY = 10
"""Hundredths of a second that the kernel may keep packets to deliver some at once."""
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
    """A packet that was logged. Interfaces by index, 0 where there is none."""

    group: int
    prefix: str
    time: float
    in_interface: int
    out_interface: int
    head: Head | None


@dataclass(slots=True)
class Received:
    """What all readers of this process received: messages, packets by group, losses."""

    messages: int = 0
    overruns: int = 0
    packets: Counter[int] = field(default_factory=Counter)


RECEIVED = Received()


class Reader(Closing):
    """The reader of some groups, in the namespace of the thread that makes it.

    Raises `KernelError`: without privilege (EPERM), or where another reader has a group (EBUSY).
    """

    def __init__(self, groups: Iterable[int]) -> None:
        self._socket = Socket(family=NETLINK_NETFILTER)
        self.lost = 0
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
        )
        head = struct.pack("=BB", socket.AF_UNSPEC, 0) + struct.pack("!H", group)
        # One by one: packets that arrive meanwhile are none of the answers.
        for kind, value in steps:
            body = head + m.attribute(kind, value)
            self._socket.request(m.message(_CONFIG, m.NLM_F_ACK, body), f"NFLOG group {group}")

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._socket.fileno()

    def read(self) -> list[Logged]:
        """The packets that arrived, without waiting. Raises `KernelError` if the socket fails."""
        packets: list[Logged] = []
        try:
            for messages in self._socket.read_waiting():
                if messages is None:
                    self.lost += 1
                    RECEIVED.overruns += 1
                else:
                    packets += [parse(body) for kind, _, _, body in messages if kind == _PACKET]
                    RECEIVED.messages += 1
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "read NFLOG") from error
        RECEIVED.packets.update(packet.group for packet in packets)
        return packets

    def close(self) -> None:
        """Give the groups back; twice is fine."""
        self._socket.close()


def parse(body: bytes) -> Logged:
    """The packet of a message, without its netlink header."""
    (group,) = struct.unpack_from("!H", body, 2)
    attributes = m.parse_attributes(body, 4)
    stamp = attributes.get(_TIMESTAMP, b"")
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
        head(attributes.get(_PAYLOAD, b"")),
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
        protocol, rest = _after_extensions(payload[6], payload[40:])
        return _transport(IPv6Address(payload[8:24]), IPv6Address(payload[24:40]), protocol, rest)
    return None


def _after_extensions(protocol: int, rest: bytes) -> tuple[int, bytes]:
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
