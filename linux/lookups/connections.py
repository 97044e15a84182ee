"""Connections that conntrack knows of an address: both tuples, state and what was translated.

The messages are read as `linux.tracking.connections` reads them.
Tested in tests/linux/test_translated_connections.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from linux.netlink import wire as m
from linux.rtnl import IPAddress, family_of
from linux.tracking import connections as tracking

_SEEN_REPLY = 2
_ICMP = (1, 58)
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
    for bodies in tracking.slices(family_of(address)):
        for body in bodies:
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
    status = int.from_bytes(attributes.get(tracking.STATUS, b""), "big")
    state = tracking.tcp_state(attributes.get(tracking.STATE, b""))
    return Connection(
        _tuple(attributes[tracking.ORIGINAL]),
        _tuple(attributes[tracking.REPLY]),
        bool(status & _SEEN_REPLY),
        TCP_STATES[state[0]] if state and state[0] < len(TCP_STATES) else "",
    )


def _tuple(data: bytes) -> Tuple:
    read = tracking.read_tuple(data)
    assert read is not None, "conntrack sends whole tuples"
    protocol, source, destination, *ports = read
    if protocol in _ICMP:
        ports = []
    numbers = (int.from_bytes(port, "big") for port in ports)
    return Tuple(ip_address(source), ip_address(destination), protocol, *numbers)
