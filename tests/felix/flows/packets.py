"""Packets and connections as the kernel tells of them, made of a few words."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from linux.tracking.connections import Connection, key_of

TCP, UDP, ICMP = 6, 17, 1


def packet(
    source: str, destination: str, port: int, source_port: int = 40_000, protocol: int = TCP,
    length: int = 60,
) -> bytes:  # fmt: skip
    """The first bytes of an IP packet; of ICMP the source port is the identifier."""
    ends = ip_address(source).packed + ip_address(destination).packed
    if protocol in (ICMP, 58):
        rest = struct.pack("!BBHHH", 8 if protocol == ICMP else 128, 0, 0, source_port, 1)
    else:
        rest = struct.pack("!HHHH", source_port, port, 8, 0)
    if len(ends) == 8:
        return struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, protocol, 0) + ends + rest
    return struct.pack("!IHBB", 6 << 28, length - 40, protocol, 64) + ends + rest


def key(
    source: str, destination: str, port: int, source_port: int = 40_000, protocol: int = TCP
) -> bytes:
    ends = ip_address(source).packed, ip_address(destination).packed
    return key_of(protocol, *ends, struct.pack("!HH", source_port, port))


def connection(
    one: bytes, packets: int, octets: int, back: int = 0, octets_back: int = 0,
    aimed: tuple[str, int] | None = None, *, over: bool = False,
) -> Connection:  # fmt: skip
    """What the kernel says of the connection with this key."""
    half = (len(one) - 5) // 2
    address, port = one[1 + half : 1 + 2 * half], int.from_bytes(one[-2:], "big")
    if aimed is not None:
        address, port = ip_address(aimed[0]).packed, aimed[1]
    return Connection(one, address, port, packets, octets, back, octets_back, over)
