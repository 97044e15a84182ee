"""Elements of named sets: from ipset's spelling of members to the kernel's keys and back.

An interval set has two elements for a range: its start, and the first address behind it.
Tested in tests/linux/test_nftables_sets.py.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from linux.errors import KernelError
from linux.ipset import SetType
from linux.netlink import wire as m
from linux.nftables import messages
from linux.nftables.expressions import Family
from linux.nftables.intervals import Range, parse

_ADDRESS = {4: 7, 6: 8}
_PROTOCOL_TYPE, _PORT_TYPE = 12, messages.TYPE_PORT
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}


def key_of_type(type: SetType, family: Family) -> tuple[int, int]:
    """The kernel's type and length of keys of a set."""
    length = 4 if family == 4 else 16
    if type == "hash:ip,port":
        return _ADDRESS[family] << 12 | _PROTOCOL_TYPE << 6 | _PORT_TYPE, length + 8
    return _ADDRESS[family], length


def type_of_key(key_type: int, flags: int, family: Family) -> SetType | None:
    """The type of a set with such keys, None where it is none of ours."""
    if flags & ~messages.INTERVAL:
        return None
    if key_type == _ADDRESS[family]:
        return "hash:net" if flags else "hash:ip"
    if key_type == key_of_type("hash:ip,port", family)[0] and not flags:
        return "hash:ip,port"
    return None


def encode_member(member: str, family: Family) -> bytes:
    """The key of a member. Raises `KernelError` (EINVAL)."""
    number = AF_INET if family == 4 else AF_INET6
    address, comma, rest = member.partition(",")
    try:
        key = inet_pton(number, address)
        if not comma:
            return key
        protocol, _, port = rest.partition(":")
        which = _PROTOCOLS.get(protocol)
        which = int(protocol) if which is None else which
        return key + struct.pack(">B3xH2x", which, int(port))
    except (OSError, ValueError, struct.error) as error:
        raise KernelError(errno.EINVAL, "change set", f"{member!r} is malformed") from error


def decode_member(key: bytes, family: Family, type: str) -> str:
    """The member of a key, in canonical spelling."""
    number, length = (AF_INET, 4) if family == 4 else (AF_INET6, 16)
    address = inet_ntop(number, key[:length])
    if type != "hash:ip,port":
        return address
    protocol, port = struct.unpack_from(">B3xH", key, length)
    return f"{address},{_PROTOCOL_NAMES.get(protocol, str(protocol))}:{port}"


def key_of_element(element: m.Attributes) -> bytes:
    """The key of an element that the kernel sent."""
    return m.parse_attributes(element[messages.ELEMENT_KEY])[1]


def bounds_of(ranges: Iterable[Range], family: Family) -> list[bytes]:
    """Start and end of each range, as the kernel keeps them."""
    octets = 4 if family == 4 else 16
    most = (1 << 8 * octets) - 1
    bounds = []
    for first, last in sorted(ranges):
        bounds.append(messages.element(first.to_bytes(octets, "big")))
        if last < most:
            bounds.append(messages.element((last + 1).to_bytes(octets, "big"), end=True))
    return bounds


def ranges_between(elements: Iterable[m.Attributes], family: Family) -> list[Range]:
    """The ranges between starts and ends that the kernel sent."""
    bounds = sorted(
        (
            int.from_bytes(key_of_element(each), "big"),
            not int.from_bytes(each.get(messages.ELEMENT_FLAGS, b""), "big")
            & messages.INTERVAL_END,
        )
        for each in elements
    )
    ranges: list[Range] = []
    first: int | None = None
    for key, starts in bounds:
        if not starts:
            if first is not None:
                ranges.append((first, key - 1))
            first = None
        else:
            first = key
    if first is not None:
        ranges.append((first, (1 << (32 if family == 4 else 128)) - 1))
    return ranges


def lies_in(member: Range, ranges: list[Range]) -> bool:
    """Whether a range lies in one of these, which are in order."""
    at = bisect_right(ranges, (member[0], 1 << 128)) - 1
    return at >= 0 and ranges[at][0] <= member[0] and member[1] <= ranges[at][1]


def parse_range(member: str, family: Family, name: str) -> Range:
    """The range of a member. Raises `KernelError` (EINVAL), naming the set."""
    try:
        return parse(member, family)
    except ValueError as error:
        raise KernelError(errno.EINVAL, f"change set {name}", str(error)) from error
