"""The headers of a packet, as a trace tells them. Pure.

Tested in tests/node/test_trace_heads.py.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from libcalico.local.packet_trace import Head
from linux.nflog import after_extensions

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
_PORTS = frozenset({TCP, UDP, 132, 136})
_FLAGS = ((0x02, "SYN"), (0x10, "ACK"), (0x04, "RST"), (0x01, "FIN"), (0x08, "PSH"))
_ERRORS = {4: frozenset({3, 11, 12}), 6: frozenset({1, 2, 3, 4})}
_TOO_BIG = {(4, 3, 4), (6, 2, 0)}


def read(packet: bytes) -> Head | None:
    """The headers at the begin of an IP packet; None where they are not whole."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        length, ident, fragment, ttl, protocol = struct.unpack_from("!HHHBB", packet, 2)
        packet = packet[: length or None]
        first = not fragment & 0x1FFF
        rest = packet[(packet[0] & 15) * 4 :] if first else b""
        return _with(4, packet[12:16], packet[16:20], protocol, rest, ttl, length, ident)
    if version == 6 and len(packet) >= 40:
        length, protocol, ttl = struct.unpack_from("!HBB", packet, 4)
        rest = packet[40 : 40 + length if length else None]
        protocol, rest = after_extensions(protocol, rest)
        return _with(6, packet[8:24], packet[24:40], protocol, rest, ttl, length + 40, 0)
    return None


def _with(
    version: int,
    source: bytes,
    destination: bytes,
    protocol: int,
    rest: bytes,
    ttl: int,
    length: int,
    ident: int,
) -> Head:
    ports, flags, kind, code, mtu = (0, 0), "", -1, -1, 0
    same = f"{protocol}:{ident}"
    inner = None
    if protocol in _PORTS and len(rest) >= 4:
        ports = struct.unpack_from("!HH", rest)
        same += f":{ports[0]}"
    if protocol == TCP and len(rest) >= 14:
        sequence, acknowledged = struct.unpack_from("!II", rest, 4)
        flags = "+".join(name for bit, name in _FLAGS if rest[13] & bit)
        # Translation changes addresses and ports, and leaves these.
        same = f"{protocol}:{flags}:{sequence}:{acknowledged}:{length}"
    if protocol in (ICMP, ICMPV6) and len(rest) >= 8:
        kind, code = rest[0], rest[1]
        if kind in _ERRORS[version]:
            inner = read(rest[8:])
            same = f"error:{kind}:{code}:{inner.same if inner else ident}"
            if (version, kind, code) in _TOO_BIG:
                form, place = ("!H", 6) if version == 4 else ("!I", 4)
                (mtu,) = struct.unpack_from(form, rest, place)
        else:
            number, sequence = struct.unpack_from("!HH", rest, 4)
            same = f"{protocol}:{kind}:{number}:{sequence}"
    return Head(
        str(ip_address(source)),
        str(ip_address(destination)),
        protocol,
        ports[0],
        ports[1],
        flags,
        kind,
        code,
        ttl,
        length,
        mtu,
        same,
        inner,
    )
