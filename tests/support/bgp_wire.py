"""BGP messages as bytes, right and wrong: for tests that say what ExaBGP and BIRD never would.

No code of the product is used here: what it reads must not be what it wrote.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network

MARKER = b"\xff" * 16
OPEN, UPDATE, NOTIFICATION, KEEPALIVE = 1, 2, 3, 4
HEADER = 19


def message(kind: int, body: bytes = b"") -> bytes:
    """A whole message (RFC 4271 section 4.1)."""
    return MARKER + struct.pack("!HB", HEADER + len(body), kind) + body


def attribute(flags: int, code: int, value: bytes) -> bytes:
    """A path attribute; the extended-length flag decides the width of the length."""
    if flags & 0x10:
        return struct.pack("!BBH", flags, code, len(value)) + value
    return struct.pack("!BBB", flags, code, len(value)) + value


def sequence(*numbers: int) -> bytes:
    """An AS_SEQUENCE of four-octet numbers."""
    return struct.pack(f"!BB{len(numbers)}I", 2, len(numbers), *numbers)


ORIGIN = attribute(0x40, 1, b"\0")
AS_PATH = attribute(0x40, 2, sequence(64500))
NEXT_HOP = attribute(0x40, 3, bytes([10, 0, 0, 2]))


def nlri(prefix: str | IPv4Network | IPv6Network, path_id: int | None = None) -> bytes:
    """A prefix as it stands in an UPDATE."""
    net = ip_network(prefix)
    octets = net.network_address.packed[: (net.prefixlen + 7) // 8]
    lead = b"" if path_id is None else struct.pack("!I", path_id)
    return lead + bytes([net.prefixlen]) + octets


def reach6(*prefixes: str, hop: bytes = IPv6Address("fd99::2").packed, flags: int = 0x80) -> bytes:
    """MP_REACH_NLRI for IPv6 unicast."""
    value = struct.pack("!HBB", 2, 1, len(hop)) + hop + b"\0" + b"".join(map(nlri, prefixes))
    return attribute(flags, 14, value)


def unreach6(*prefixes: str) -> bytes:
    """MP_UNREACH_NLRI for IPv6 unicast; without prefixes it is End-of-RIB."""
    return attribute(0x80, 15, b"\0\2\1" + b"".join(map(nlri, prefixes)))


def update(*, attributes: bytes = b"", reachable: bytes = b"", withdrawn: bytes = b"") -> bytes:
    """The body of an UPDATE; empty it is End-of-RIB for IPv4."""
    head = struct.pack("!H", len(withdrawn)) + withdrawn
    return head + struct.pack("!H", len(attributes)) + attributes + reachable


def open_body(
    asn: int, router_id: bytes, *, hold: int = 9, capabilities: bytes = b"", version: int = 4
) -> bytes:
    """The body of an OPEN; `capabilities` as `capability` makes them."""
    parameter = bytes([2, len(capabilities)]) + capabilities if capabilities else b""
    short = asn if asn < 65536 else 23456
    return struct.pack("!BHH4sB", version, short, hold, router_id, len(parameter)) + parameter


def capability(code: int, value: bytes = b"") -> bytes:
    """One capability (RFC 5492)."""
    return bytes([code, len(value)]) + value


MULTIPROTOCOL4 = capability(1, b"\0\1\0\1")
MULTIPROTOCOL6 = capability(1, b"\0\2\0\1")


def four_octet_as(asn: int) -> bytes:
    """RFC 6793."""
    return capability(65, struct.pack("!I", asn))


def graceful(seconds: int) -> bytes:
    """RFC 4724, forwarding kept for both families."""
    return capability(64, struct.pack("!H", seconds) + b"\0\1\1\x80\0\2\1\x80")
