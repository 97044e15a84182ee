"""Frames made by hand, as a workload with raw sockets makes them, and ears for what arrives."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from tests.support.netns import Namespace

HOST_MAC = bytes.fromhex("eeeeeeeeeeee")
EVERYBODY = b"\xff" * 6
ALL_NODES = bytes.fromhex("333300000001")
IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
UDP, IPIP, ICMPV6 = 17, 4, 58


def checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    addresses = ip_address(source).packed + ip_address(destination).packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    value = checksum(head + addresses)
    return head[:10] + struct.pack("!H", value) + addresses + payload


def ipv6(source: str, destination: str, protocol: int, payload: bytes, hops: int = 255) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(payload), protocol, hops)
    return head + ip_address(source).packed + ip_address(destination).packed + payload


def udp(port: int, payload: bytes) -> bytes:
    """Without a checksum, which IPv4 allows."""
    return struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload


def udp6(source: str, destination: str, port: int, payload: bytes) -> bytes:
    body = struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload
    value = checksum(_pseudo(source, destination, UDP, body))
    return body[:6] + struct.pack("!H", value) + body[8:]


def icmpv6(source: str, destination: str, kind: int, body: bytes) -> bytes:
    message = struct.pack("!BBH", kind, 0, 0) + body
    value = checksum(_pseudo(source, destination, ICMPV6, message))
    return message[:2] + struct.pack("!H", value) + message[4:]


def router_advertisement(source: str) -> bytes:
    """A router that would be everybody's default, and a prefix to take addresses of."""
    prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 86400, 14400, 0)
    body = struct.pack("!BBHII", 64, 0, 1800, 0, 0) + prefix + ip_address("2001:db8:bad::").packed
    return ipv6(source, "ff02::1", ICMPV6, icmpv6(source, "ff02::1", 134, body))


def arp(operation: int, sender: str, target: str) -> bytes:
    mac = bytes.fromhex("020000000666")
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    return head + mac + ip_address(sender).packed + bytes(6) + ip_address(target).packed


def _pseudo(source: str, destination: str, protocol: int, body: bytes) -> bytes:
    addresses = ip_address(source).packed + ip_address(destination).packed
    return addresses + struct.pack("!II", len(body), protocol) + body


def send(
    space: Namespace, kind: int, *packets: bytes, to: bytes = HOST_MAC, link: str = "eth0"
) -> None:
    """Put packets on the wire of a namespace, whatever its own stack thinks of them."""

    def do() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((link, 0))
            mac = wire.getsockname()[4]
            for packet in packets:
                wire.send(to + mac + struct.pack("!H", kind) + packet)

    space.call(do)


@contextmanager
def ears(space: Namespace, link: str = "eth0") -> Iterator[Callable[[bytes, float], bool]]:
    """Hears what arrives on a link; gives a function: whether these bytes came, so soon."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        made.bind((link, 3))
        return made

    wire = space.call(make)
    heard: list[bytes] = []

    def came(what: bytes, within: float) -> bool:
        until = time.monotonic() + within
        while not any(what in frame for frame in heard):
            left = until - time.monotonic()
            if left <= 0:
                return False
            wire.settimeout(left)
            try:
                heard.append(wire.recv(2048))
            except TimeoutError:
                return False
        return True

    try:
        yield came
    finally:
        wire.close()
