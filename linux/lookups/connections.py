"""Connections that conntrack knows of an address: both tuples, state and what was translated.

`linux.conntrack` deletes them; this module only reads.
Tested in tests/linux/test_translated_connections.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.rtnl import IPAddress, family_of

_GET = (1 << 8) | 1
_ORIGINAL, _REPLY, _STATUS, _PROTOINFO = 1, 2, 3, 4
_IP, _PROTO = 1, 2
_SEEN_REPLY = 2
TCP_STATES = (
    "none", "syn_sent", "syn_recv", "established", "fin_wait", "close_wait", "last_ack",
    "time_wait", "close", "syn_sent2",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tuple:
    """One direction of a connection; ports are 0 where the protocol has none."""

    source: IPAddress
    destination: IPAddress
    protocol: int
    source_port: int = 0
    destination_port: int = 0


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection. `replied`: packets of both directions were seen. `state` is TCP's."""

    original: Tuple
    reply: Tuple
    replied: bool
    state: str = ""

    @property
    def translated(self) -> bool:
        """Whether the answers come from or go to others than the first packet named."""
        one, other = self.original, self.reply
        return (one.source, one.source_port, one.destination, one.destination_port) != (
            other.destination, other.destination_port, other.source, other.source_port,
        )  # fmt: skip


def of_address(address: IPAddress, protocol: int) -> Iterator[Connection]:
    """The connections of an address in the current namespace. Raises `KernelError`."""
    head = struct.pack("=BBH", family_of(address), 0, 0)
    with Socket(family=NETLINK_NETFILTER) as sock:
        for _, body in sock.dump(m.message(_GET, 0, head), "list connections"):
            if address.packed not in body:
                continue
            connection = parse(body)
            ends = (connection.original, connection.reply)
            named = any(address in (each.source, each.destination) for each in ends)
            if named and connection.original.protocol == protocol:
                yield connection


def parse(body: bytes) -> Connection:
    """The connection of a message without its netlink header."""
    attributes = m.parse_attributes(body, 4)
    status = int.from_bytes(attributes.get(_STATUS, b""), "big")
    info = m.parse_attributes(attributes.get(_PROTOINFO, b""))
    tcp = m.parse_attributes(info.get(1, b""))
    state = tcp.get(1, b"")
    return Connection(
        _tuple(attributes[_ORIGINAL]),
        _tuple(attributes[_REPLY]),
        bool(status & _SEEN_REPLY),
        TCP_STATES[state[0]] if state and state[0] < len(TCP_STATES) else "",
    )


def _tuple(data: bytes) -> Tuple:
    parts = m.parse_attributes(data)
    addresses, proto = m.parse_attributes(parts[_IP]), m.parse_attributes(parts.get(_PROTO, b""))
    source, destination = (addresses.get(n) or addresses[n + 2] for n in (1, 2))
    return Tuple(
        ip_address(source),
        ip_address(destination),
        int.from_bytes(proto.get(1, b""), "big"),
        int.from_bytes(proto.get(2, b""), "big"),
        int.from_bytes(proto.get(3, b""), "big"),
    )
