"""Values of path attributes: bytes -> Python values; `ValueError` for a wrong one. Pure.

Tested in tests/bgp/test_wire.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from bgp.speaker.interface import Origin

AS_SET, AS_SEQUENCE = 1, 2


@dataclass(frozen=True, slots=True)
class Session:
    """The parts of the two OPENs that the reading of UPDATEs depends on."""

    internal: bool
    four_octet_as: bool = True
    add_path4: bool = False
    add_path6: bool = False
    has_ipv6: bool = False


def origin(value: bytes, _: Session) -> Origin:
    if len(value) != 1:
        raise ValueError(f"{len(value)} octets")
    return Origin(value[0])


def segments(value: bytes, width: int) -> list[tuple[int, list[int]]]:
    parsed = []
    position = 0
    while position < len(value):
        if position + 2 > len(value):
            raise ValueError("a segment runs over the end")
        kind, count = value[position], value[position + 1]
        stop = position + 2 + count * width
        if kind not in (AS_SET, AS_SEQUENCE):
            raise ValueError(f"segment type {kind}")  # RFC 5065 5.3: no confederation here
        if not count or stop > len(value):
            raise ValueError(f"a segment of {count} numbers")
        numbers = [
            int.from_bytes(value[at : at + width], "big") for at in range(position + 2, stop, width)
        ]
        if 0 in numbers:
            raise ValueError("AS 0")  # RFC 7607
        parsed.append((kind, numbers))
        position = stop
    return parsed


def as_path(value: bytes, session: Session) -> list[tuple[int, list[int]]]:
    return segments(value, 4 if session.four_octet_as else 2)


def as4_path(value: bytes, _: Session) -> list[tuple[int, list[int]]]:
    return segments(value, 4)


def next_hop(value: bytes, _: Session) -> IPv4Address:
    hop = address(value, _)
    if hop.is_unspecified or hop.is_multicast or hop.is_reserved:
        raise ValueError(str(hop))  # RFC 4271 6.3: not a host's address
    return hop


def address(value: bytes, _: Session) -> IPv4Address:
    if len(value) != 4:
        raise ValueError(f"{len(value)} octets")
    return IPv4Address(value)


def number(value: bytes, _: Session) -> int:
    if len(value) != 4:
        raise ValueError(f"{len(value)} octets")
    return int.from_bytes(value, "big")


def pieces(value: bytes, size: int) -> list[bytes]:
    if not value or len(value) % size:
        raise ValueError(f"{len(value)} octets")
    return [value[at : at + size] for at in range(0, len(value), size)]


def communities(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(
        [
            f"{int.from_bytes(each[:2], 'big')}:{int.from_bytes(each[2:], 'big')}"
            for each in pieces(value, 4)
        ]
    )


def large_communities(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(
        [
            ":".join(str(int.from_bytes(each[at : at + 4], "big")) for at in (0, 4, 8))
            for each in pieces(value, 12)
        ]
    )


def extended_communities(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple(["0x" + each.hex() for each in pieces(value, 8)])


def cluster_list(value: bytes, _: Session) -> tuple[str, ...]:
    return tuple([str(IPv4Address(each)) for each in pieces(value, 4)])


def anything(value: bytes, _: Session) -> bytes:
    return value


def sized(*sizes: int) -> Callable[[bytes, Session], bytes]:
    def check(value: bytes, _: Session) -> bytes:
        if len(value) not in sizes:
            raise ValueError(f"{len(value)} octets")
        return value

    return check


def aggregator(value: bytes, session: Session) -> bytes:
    return sized(8 if session.four_octet_as else 6)(value, session)
