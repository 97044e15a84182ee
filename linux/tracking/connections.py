"""The kernel's connections with their counters: read in slices, and told of when they end.

Conntrack knows two tuples of a connection: as its first packet came, and as answers come. From
them follows the packet as the filter table sees it: after the destination was translated, before
the source is. That is what a connection is known by here (`key`), so that a packet that a rule
told of (`linux.nflog`) finds its connection.

A list of a hundred thousand takes long, so it comes datagram by datagram; a caller works between
two. While it is read connections come and go: one that is in no slice may have ended. How many
packets and bytes they had the kernel counts while `net/netfilter/nf_conntrack_acct` is set, for
connections that began then.

CON-1: the key of a packet and the key of the connection that it began are equal, also where
       source or destination was translated.
CON-2: an ending that the kernel could not tell of is counted as `lost`.
Tested in tests/linux/test_connections.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from socket import AF_UNSPEC

from linux.closing import Closing
from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.nflog import after_extensions

_GET, _DELETE, _NEW = (1 << 8) | 1, (1 << 8) | 2, 1 << 8
_ENDED_GROUP = 3
ORIGINAL, REPLY, STATUS, STATE, _THERE, _BACK = 1, 2, 3, 4, 9, 10
_ADDRESSES, _PROTOCOL = 1, 2
_SOURCE4, _DESTINATION4, _SOURCE6, _DESTINATION6 = 1, 2, 3, 4
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT, _ICMP_ID, _ICMP6_ID = 1, 2, 3, 4, 7
_PACKETS, _BYTES, _PACKETS32, _BYTES32 = 1, 2, 3, 4
_TCP, _TCP_STATE = 1, 1
_CLOSED = frozenset({b"\x07", b"\x08"})
"""TIME_WAIT and CLOSE: the connection is over, the kernel remembers it for a while."""
_WITH_PORTS = frozenset({6, 17, 33, 132, 136})
_QUERIES = {1: frozenset({8, 0, 13, 14, 15, 16, 17, 18}), 58: frozenset({128, 129})}
"""Types of ICMP that belong to a connection by their identifier."""
MOST_ENDINGS = 500
"""Read at once."""
_PORTS = struct.Struct("!HH")
_COUNT = struct.Struct("!Q")


def key_of(protocol: int, source: bytes, destination: bytes, ports: bytes) -> bytes:
    """What a connection is known by: addresses packed, two ports (or identifiers) as sent."""
    return b"%c%b%b%b" % (protocol, source, destination, ports)


@dataclass(frozen=True, slots=True)
class Key:
    """A key, read. `destination_port` is 0 for ICMP, whose identifier is the source port."""

    protocol: int
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int


def read_key(key: bytes) -> Key:
    """What a key says."""
    half = (len(key) - 5) // 2
    ports = _PORTS.unpack_from(key, 1 + 2 * half)
    return Key(key[0], key[1 : 1 + half], key[1 + half : 1 + 2 * half], *ports)


def of_packet(payload: bytes) -> tuple[bytes, int] | None:
    """The key of an IP packet by its first bytes, and its length in bytes; None: not whole."""
    version = payload[0] >> 4 if payload else 0
    if version == 4 and len(payload) >= 20:
        length = int.from_bytes(payload[2:4], "big")
        first = not (payload[6] & 0x1F or payload[7])
        rest = payload[(payload[0] & 15) * 4 :] if first else b""
        return key_of(payload[9], payload[12:16], payload[16:20], _ports(payload[9], rest)), length
    if version == 6 and len(payload) >= 40:
        length = 40 + int.from_bytes(payload[4:6], "big")
        protocol, rest = after_extensions(payload[6], payload[40:])
        return key_of(protocol, payload[8:24], payload[24:40], _ports(protocol, rest)), length
    return None


def _ports(protocol: int, rest: bytes) -> bytes:
    if protocol in _WITH_PORTS:
        return rest[:4].ljust(4, b"\0")
    if rest and rest[0] in _QUERIES.get(protocol, ()):
        return rest[4:6].ljust(4, b"\0")
    return bytes(4)


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection as the kernel knows it now.

    `aimed`, `aimed_port`: where its first packet was sent, before any translation.
    Counters are of the way there and the way back; None where the kernel does not count.
    `over`: no packet belongs to it any more.
    """

    key: bytes
    aimed: bytes
    aimed_port: int
    packets: int | None
    bytes: int | None
    packets_back: int
    bytes_back: int
    over: bool

    @property
    def translated(self) -> bool:
        """Whether its first packet was sent to another address or port than it went to."""
        key = read_key(self.key)
        return (self.aimed, self.aimed_port) != (key.destination, key.destination_port)


def key_in(body: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Key, first destination and its port of a message of ctnetlink; None for what has no such.

    Cheap: most connections of a node concern none of its pods.
    """
    for layout in _LAYOUTS:
        if body[4 : 4 + len(layout.head)] == layout.head and layout.fits(body):
            return layout.read(body)
    return _key_in_any(body)


class _Layout:
    """How the kernel writes the two tuples of a protocol with ports: at fixed places."""

    def __init__(self, address: int, kind: int) -> None:
        nested = m.NLA_F_NESTED
        size = 40 + 2 * address + 4
        each = struct.Struct("=HH").pack
        self.head = each(size, ORIGINAL | nested) + each(12 + 2 * address, _ADDRESSES | nested)
        self.head += each(4 + address, kind)
        self._at = 20 + 2 * address
        self._proto = each(28, _PROTOCOL | nested) + each(5, _NUMBER)
        self._port, self._reply = each(6, _SOURCE_PORT), each(size, REPLY | nested)
        self._address, self._size = address, size

    def fits(self, body: bytes) -> bool:
        """Whether the rest is as expected, too."""
        at, reply = self._at, 4 + self._size
        return (
            body[at : at + 8] == self._proto
            and body[at + 12 : at + 16] == self._port
            and body[reply : reply + 4] == self._reply
        )

    def read(self, body: bytes) -> tuple[bytes, bytes, bytes]:
        """As `key_in`."""
        address, at, size = self._address, self._at, self._size
        key = (
            body[at + 8 : at + 9]
            + body[16 : 16 + address]
            + body[16 + size : 16 + size + address]
            + body[at + 16 : at + 18]
            + body[at + 16 + size : at + 18 + size]
        )
        aimed = 20 + address
        return key, body[aimed : aimed + address], body[at + 24 : at + 26]


_LAYOUTS = (_Layout(4, _SOURCE4), _Layout(16, _SOURCE6))


def _key_in_any(body: bytes) -> tuple[bytes, bytes, bytes] | None:
    tuples = m.first_attribute(body, ORIGINAL, 4), m.first_attribute(body, REPLY, 4)
    there, back = (read_tuple(one) if one is not None else None for one in tuples)
    if there is None or back is None:
        return None
    protocol, source, aimed, source_port, aimed_port = there
    _, destination, _, port, _ = back
    if protocol in _QUERIES:
        # Both tuples have the identifier, and it is no port.
        port = b"\0\0"
    return key_of(protocol, source, destination, source_port + port), aimed, aimed_port


def read_tuple(data: bytes) -> tuple[int, bytes, bytes, bytes, bytes] | None:
    """Protocol, both addresses, both ports (of ICMP: the identifier, and 0); None: not whole."""
    parts = m.parse_attributes(data)
    addresses = m.parse_attributes(parts.get(_ADDRESSES, b""))
    protocol = m.parse_attributes(parts.get(_PROTOCOL, b""))
    source = addresses.get(_SOURCE4) or addresses.get(_SOURCE6)
    destination = addresses.get(_DESTINATION4) or addresses.get(_DESTINATION6)
    number = protocol.get(_NUMBER)
    if not source or not destination or not number:
        return None
    identifier = protocol.get(_ICMP_ID) or protocol.get(_ICMP6_ID)
    if identifier is not None:
        return number[0], source, destination, identifier[:2], b"\0\0"
    nothing = b"\0\0"
    return (
        number[0],
        source,
        destination,
        protocol.get(_SOURCE_PORT, nothing)[:2],
        protocol.get(_DESTINATION_PORT, nothing)[:2],
    )


def connection_of(body: bytes, parts: tuple[bytes, bytes, bytes]) -> Connection:
    """The connection of a message whose `key_in` is `found`."""
    attributes = m.parse_attributes(body, 4)
    key, aimed, port = parts
    there, back = (_counters(attributes.get(kind)) for kind in (_THERE, _BACK))
    return Connection(
        key,
        aimed,
        int.from_bytes(port, "big"),
        None if there is None else there[0],
        None if there is None else there[1],
        0 if back is None else back[0],
        0 if back is None else back[1],
        tcp_state(attributes.get(STATE, b"")) in _CLOSED,
    )


def _counters(data: bytes | None) -> tuple[int, int] | None:
    if data is None:
        return None
    counts = m.parse_attributes(data)
    packets = counts.get(_PACKETS) or counts.get(_PACKETS32)
    octets = counts.get(_BYTES) or counts.get(_BYTES32)
    if packets is None or octets is None:
        return None
    return int.from_bytes(packets, "big"), int.from_bytes(octets, "big")


def tcp_state(data: bytes) -> bytes:
    """The one byte of TCP's state in the attribute `STATE`; none for another protocol."""
    tcp = m.parse_attributes(data).get(_TCP, b"")
    return m.parse_attributes(tcp).get(_TCP_STATE, b"")


def slices(family: int = AF_UNSPEC) -> Iterator[list[bytes]]:
    """The messages of all connections of this namespace, as many at once as come together.

    `family`: AF_INET or AF_INET6 alone. Raises `KernelError`. Each step waits for the kernel a
    fraction of a millisecond.
    """
    head = struct.pack("=BBH", family, 0, 0)
    with Socket(family=NETLINK_NETFILTER) as sock:
        request = m.message(_GET, 0, head)
        for messages in sock.dump_slices(request, "list connections"):
            yield [body for kind, body in messages if kind == _NEW]


class Endings(Closing):
    """A listener for connections that end. `lost` counts those that could not be told of, at
    least: the kernel says that there were some, not how many.

    Raises `KernelError`.
    """

    def __init__(self) -> None:
        self.lost = 0
        try:
            self._socket = Socket(family=NETLINK_NETFILTER, groups=(_ENDED_GROUP,))
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "listen to conntrack") from error
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._socket.fileno()

    def read(self, most: int = MOST_ENDINGS) -> list[bytes]:
        """The messages of connections that ended, so many at most, without waiting.

        Raises `KernelError`.
        """
        bodies: list[bytes] = []
        try:
            for messages in islice(self._socket.read_waiting(), most):
                if messages is None:
                    self.lost += 1
                else:
                    bodies += [body for kind, _, _, body in messages if kind == _DELETE]
        except OSError as error:
            raise KernelError(error.errno or errno.EIO, "read endings of connections") from error
        return bodies

    def close(self) -> None:
        """Stop listening; twice is fine."""
        self._socket.close()
