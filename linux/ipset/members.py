"""Members of IP sets: from ipset's spelling to the kernel's attributes and back.

Protocol: linux/netfilter/ipset/ip_set.h. Tested in tests/linux/test_ipset.py.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address
from socket import AF_INET, inet_ntoa, inet_pton

from linux.netlink import wire as m
from linux.rtnl import address_from, family_of

_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132, "udplite": 136}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}

DATA = 7
"""The attribute around a member."""
_IP, _CIDR, _PORT, _PROTO, _CADT_LINENO = 1, 3, 4, 7, 9
_IPV4, _IPV6 = 1, 2

# Nearly all members are IPv4 addresses and networks, by the hundred thousand: one struct each.
_V4_HOST = struct.Struct("=HHHHHH4sHH4s")
_V4_NET = struct.Struct("=HHHHHH4sHHB3xHH4s")
_NESTED, _BIG = m.NLA_F_NESTED, m.NLA_F_NET_BYTEORDER
_V4_READ = struct.pack("=HHHH", 12, _IP | _NESTED, 8, _IPV4 | _BIG)
_CIDR_READ = struct.pack("=HH", 5, _CIDR)


def be32(kind: int, value: int) -> bytes:
    """An attribute with 32 bits in network order."""
    return m.attribute(kind | m.NLA_F_NET_BYTEORDER, struct.pack("!I", value))


def encode_entry(member: str, number: int) -> bytes:
    """A member with its number in a change."""
    if ":" not in member and "," not in member:
        host, _, prefix = member.partition("/")
        try:
            packed = inet_pton(AF_INET, host)
        except OSError:
            packed = b""
        line = number.to_bytes(4, "big")
        if packed and not prefix:
            return _V4_HOST.pack(24, DATA | _NESTED, 12, _IP | _NESTED, 8, _IPV4 | _BIG, packed,
                                 8, _CADT_LINENO | _BIG, line)  # fmt: skip
        if packed and prefix.isdecimal() and len(prefix) < 3:
            return _V4_NET.pack(32, DATA | _NESTED, 12, _IP | _NESTED, 8, _IPV4 | _BIG, packed,
                                5, _CIDR, int(prefix), 8, _CADT_LINENO | _BIG, line)  # fmt: skip
    return m.nest(DATA, encode_member(member) + be32(_CADT_LINENO, number))


def decode_entry(data: bytes, kind: str) -> str:
    """A member of a set of type `kind`, as the kernel sends it."""
    if data[:8] == _V4_READ and kind == "hash:net" and data[12:16] == _CIDR_READ:
        text, prefix = inet_ntoa(data[8:12]), data[16]
        return text if prefix == 32 else f"{text}/{prefix}"
    return _decode_member(m.parse_attributes(data), kind)


def encode_member(member: str) -> bytes:
    """The attributes of a member. Raises `ValueError`."""
    where, _, service = member.partition(",")
    host, _, prefix = where.partition("/")
    address = ip_address(host)
    kind = _IPV4 if family_of(address) == AF_INET else _IPV6
    data = m.nest(_IP, m.attribute(kind | m.NLA_F_NET_BYTEORDER, address.packed))
    if prefix:
        data += m.u8(_CIDR, int(prefix))
    if service:
        protocol, port = _service(member, service)
        data += m.attribute(_PORT | m.NLA_F_NET_BYTEORDER, struct.pack("!H", port))
        data += m.u8(_PROTO, protocol)
    return data


def _service(member: str, service: str) -> tuple[int, int]:
    name, _, port = service.partition(":")
    protocol = _PROTOCOLS.get(name)
    if protocol is None and name.isdigit():
        protocol = int(name)
    if protocol is None or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"IP set member {member!r}: want ADDRESS,PROTOCOL:PORT")
    return protocol, int(port)


def _decode_member(data: m.Attributes, kind: str) -> str:
    inner = m.parse_attributes(data[_IP])
    address = address_from(inner.get(_IPV4) or inner[_IPV6])
    text = str(address)
    if _CIDR in data and data[_CIDR][0] != address.max_prefixlen:
        text += f"/{data[_CIDR][0]}"
    if "port" in kind:
        number = data[_PROTO][0]
        name = _PROTOCOL_NAMES.get(number, str(number))
        text += f",{name}:{int.from_bytes(data[_PORT], 'big')}"
    return text
