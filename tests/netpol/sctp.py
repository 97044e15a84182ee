"""Just enough SCTP to open a door: INIT and INIT-ACK with the right CRC32c (RFC 9260).

Kernels without SCTP sockets still route, filter and track protocol 132, so a raw socket and these
few packets tell whether a policy lets SCTP through. Connection tracking verifies the checksum: a
packet with a wrong one is INVALID and proves nothing. Pure; tested in tests/netpol/test_probe.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PROTOCOL = 132
INIT, INIT_ACK = 1, 2
STATE_COOKIE = 7
WINDOW, STREAMS = 65535, 1
HEADER = struct.Struct("!HHLL")
CHUNK = struct.Struct("!BBH")
INIT_FIELDS = struct.Struct("!LLHHL")
PARAMETER = struct.Struct("!HH")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum (RFC 9260 appendix A, RFC 3720 B.4)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Packet:
    """An INIT or INIT-ACK. `verification` is the header's tag, `tag` the one in the chunk."""

    source: int
    target: int
    verification: int
    kind: int
    tag: int
    cookie: bytes = b""


def pack(packet: Packet) -> bytes:
    """The packet as it follows an IP header."""
    body = INIT_FIELDS.pack(packet.tag, WINDOW, STREAMS, STREAMS, packet.tag)
    if packet.cookie:
        body += PARAMETER.pack(STATE_COOKIE, PARAMETER.size + len(packet.cookie)) + packet.cookie
    chunk = CHUNK.pack(packet.kind, 0, CHUNK.size + len(body)) + body
    chunk += bytes(-len(chunk) % 4)
    ports = packet.source, packet.target, packet.verification
    checksum = crc32c(HEADER.pack(*ports, 0) + chunk)
    # The one field that travels with its low byte first.
    return HEADER.pack(*ports, int.from_bytes(checksum.to_bytes(4, "little"), "big")) + chunk


def unpack(data: bytes) -> Packet | None:
    """The packet in an IP payload; None for another chunk, a wrong checksum or a stump."""
    fixed = HEADER.size + CHUNK.size + INIT_FIELDS.size
    if len(data) < fixed:
        return None
    source, target, verification, checksum = HEADER.unpack_from(data)
    blank = data[:8] + bytes(4) + data[12:]
    if crc32c(blank) != int.from_bytes(checksum.to_bytes(4, "big"), "little"):
        return None
    kind, _, length = CHUNK.unpack_from(data, HEADER.size)
    if kind not in (INIT, INIT_ACK) or HEADER.size + length > len(data):
        return None
    tag = INIT_FIELDS.unpack_from(data, HEADER.size + CHUNK.size)[0]
    return Packet(source, target, verification, kind, tag, _cookie(data[fixed:]))


def _cookie(parameters: bytes) -> bytes:
    if len(parameters) < PARAMETER.size:
        return b""
    kind, length = PARAMETER.unpack_from(parameters)
    return parameters[PARAMETER.size : length] if kind == STATE_COOKIE else b""
