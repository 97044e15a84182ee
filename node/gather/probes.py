"""Probes of other nodes: echo requests that may not be fragmented, and TCP to port 179.

An echo request goes out of a raw socket (root) or a ping socket (where
net.ipv4.ping_group_range allows it). With IP_PMTUDISC_PROBE the kernel sends what the interface
carries, regardless of the path MTU it has learned, and sets DF.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from ipaddress import ip_address, ip_interface

from node.checks.datastore_facts import OtherNode
from node.checks.facts import Probe

TIMEOUT = 1.0
TRIES = 2
SMALL = 64
_HEADERS = {4: 20 + 8, 6: 40 + 8}
_MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
_PROBE = 3
_ECHO = {4: (8, 0), 6: (128, 129)}


async def probe(nodes: Sequence[OtherNode], sizes: dict[int, int], bgp: bool) -> list[Probe]:
    """Probe all nodes at once; `sizes`: the interface's MTU by family; `bgp`: port 179 as well."""
    targets = [
        (node.name, str(ip_interface(text).ip), size)
        for node in nodes
        for text, size in ((node.ipv4, sizes.get(4)), (node.ipv6, sizes.get(6)))
        if text and size
    ]
    return list(
        await asyncio.gather(
            *(asyncio.to_thread(_one, name, address, size, bgp) for name, address, size in targets)
        )
    )


def _one(name: str, address: str, size: int, bgp: bool) -> Probe:
    small = echo(address, SMALL)
    full = echo(address, size) if small == "answer" else ""
    port = connect(address, 179) if bgp else ""
    return Probe(node=name, address=address, small=small, full=full, size=size, bgp=port)


def connect(address: str, port: int) -> str:
    """The result of a TCP connection: `open`, `refused`, `filtered`, `no route` or the error."""
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as dial:
        dial.settimeout(TIMEOUT)
        try:
            dial.connect((address, port))
        except TimeoutError:
            return "filtered"
        except ConnectionRefusedError:
            return "refused"
        except OSError as error:
            if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
                return "no route"
            return os.strerror(error.errno or 0)
    return "open"


def echo(address: str, size: int) -> str:
    """The result of an echo request: `answer`, `silent`, `too big` or an error.

    The request has `size` bytes, IP header included, and DF set.
    """
    version = ip_address(address).version
    try:
        sock, raw = _socket(version)
    except OSError:
        return "not allowed to send echo requests"
    with sock:
        level, option = _MTU_DISCOVER[version]
        sock.setsockopt(level, option, _PROBE)
        sock.setblocking(False)
        outcome = "silent"
        for sequence in range(1, TRIES + 1):
            request = _request(version, sequence, size - _HEADERS[version])
            try:
                sock.sendto(request, (address, 0))
            except OSError as error:
                return _error_text(error)
            outcome = _answer(sock, version, raw, address, request)
            if outcome != "silent":
                break
        return outcome


def _socket(version: int) -> tuple[socket.socket, bool]:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    protocol = socket.IPPROTO_ICMP if version == 4 else socket.IPPROTO_ICMPV6
    try:
        return socket.socket(family, socket.SOCK_RAW, protocol), True
    except PermissionError:
        return socket.socket(family, socket.SOCK_DGRAM, protocol), False


def _request(version: int, sequence: int, payload: int) -> bytes:
    head = struct.pack("!BBHHH", _ECHO[version][0], 0, 0, os.getpid() & 0xFFFF, sequence)
    body = bytes(max(payload, 0))
    if version == 6:
        # The kernel fills in the checksum, which covers addresses.
        return head + body
    return head[:2] + struct.pack("!H", _checksum(head + body)) + head[4:] + body


def _checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _answer(sock: socket.socket, version: int, raw: bool, address: str, request: bytes) -> str:
    deadline = time.monotonic() + TIMEOUT
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([sock], [], [], left)[0]:
            break
        try:
            data, source = sock.recvfrom(65535)
        except OSError as error:
            return _error_text(error)
        if version == 4 and raw:
            data = data[(data[0] & 0x0F) * 4 :]
        if source[0].partition("%")[0] == address and _matches(data, request, version, raw):
            return "answer"
        if raw and _too_big(data, version, address):
            return "too big: a router says that fragmentation is needed"
    return "silent"


def _matches(data: bytes, request: bytes, version: int, raw: bool) -> bool:
    reply = 0 if version == 4 else _ECHO[6][1]
    # A ping socket has an identifier of its own.
    same = data[4:8] == request[4:8] if raw else data[6:8] == request[6:8]
    return len(data) == len(request) and data[0] == reply and same


def _too_big(data: bytes, version: int, address: str) -> bool:
    if version == 6:
        return data[0] == 2 and data[8 + 24 : 8 + 40] == ip_address(address).packed
    needed = data[:2] == b"\x03\x04"
    return needed and data[8 + 16 : 8 + 20] == ip_address(address).packed


def _error_text(error: OSError) -> str:
    if error.errno == errno.EMSGSIZE:
        return "too big for this machine's own interface or route"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "no route"
    return os.strerror(error.errno or 0)
