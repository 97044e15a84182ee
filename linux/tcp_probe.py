"""Tests whether a TCP segment arrives, with its checksum left to the device or complete.

The kernel leaves a segment's checksum to the device that sends it, if that offers to; what a raw
socket sends has it already. Where only the second of two such segments is answered, a device on
the way out fills checksums in wrongly: nothing else tells the two apart. A refusal is an answer
like any other, and the better one: the kernel computes a reset's checksum itself, so that nothing
of the other side's devices comes into it (linux, net/ipv4/ip_output.c, ip_send_unicast_reply).

Needs CAP_NET_RAW. Sources: RFC 9293 section 3.1, RFC 8200 section 8.1 (the checksum).
Tested in tests/linux/test_tcp_probe.py.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import struct
from dataclasses import dataclass

from linux.errors import KernelError
from linux.rtnl import IPAddress

_HEADER = struct.Struct("!HHIIBBHHH")  # ports, numbers, length, flags, window, checksum, urgent
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_CHECKSUM_AT = slice(16, 18)
_REPEAT = 1.0
"""Seconds until a segment that was not answered is sent again, as the kernel does."""


@dataclass(frozen=True, slots=True)
class Target:
    """Segments go from an address of ours, by a device, to a port of another host."""

    source: IPAddress
    address: IPAddress
    port: int
    device: str


async def answered(target: Target, timeout: float) -> bool:
    """Whether a connection is taken or refused within `timeout` seconds; sent as programs send.

    Raises `KernelError` where it cannot even be tried.
    """
    with _open(target, socket.SOCK_STREAM, 0) as sock:
        try:
            async with asyncio.timeout(timeout):
                where = (str(target.address), target.port)
                await asyncio.get_running_loop().sock_connect(sock, where)
        except TimeoutError:
            return False
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return True


async def answered_complete(target: Target, timeout: float) -> bool:
    """The same for segments that leave with their checksum. Raises `KernelError` as `answered`."""
    loop = asyncio.get_running_loop()
    # The first socket reserves a port for the answers: it is never connected.
    with (
        _open(target, socket.SOCK_STREAM, 0) as holder,
        _open(target, socket.SOCK_RAW, socket.IPPROTO_TCP) as sock,
    ):
        port, number = holder.getsockname()[1], secrets.randbits(32)
        packet = segment(target, port, number)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await loop.sock_sendto(sock, packet, (str(target.address), 0))
                    try:
                        async with asyncio.timeout(_REPEAT):
                            while not answers(await _next(sock, target), target, port, number):
                                pass
                            return True
                    except TimeoutError:
                        continue
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
                return False
            raise KernelError(error.errno or 0, f"send to {target.address}") from error


def segment(target: Target, port: int, number: int) -> bytes:
    """A SYN from a port of ours with its checksum. Pure."""
    header = bytearray(
        _HEADER.pack(port, target.port, number, 0, _HEADER.size // 4 << 4, _SYN, 1024, 0, 0)
    )
    length = struct.pack("!I", len(header))
    pseudo = target.source.packed + target.address.packed + length + bytes((0, 0, 0, 6))
    header[_CHECKSUM_AT] = struct.pack("!H", checksum(pseudo + header))
    return bytes(header)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of an even number of bytes. Pure."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def answers(header: bytes, target: Target, port: int, number: int) -> bool:
    """Whether a TCP header answers our SYN, by taking or refusing it. Pure."""
    if len(header) < _HEADER.size:
        return False
    theirs, ours, _, acknowledged, _, flags, *_ = _HEADER.unpack_from(header)
    return (
        (theirs, ours) == (target.port, port)
        and acknowledged == (number + 1) & 0xFFFFFFFF
        and bool(flags & _ACK)
        and bool(flags & (_RST | _SYN))
    )


async def _next(sock: socket.socket, target: Target) -> bytes:
    """The next TCP header of the other host; empty when another host sent it."""
    data = await asyncio.get_running_loop().sock_recv(sock, 2048)
    if target.address.version == 6:
        return data  # without its IP header (RFC 3542 section 3); the ports must do
    header = (data[0] & 15) * 4
    return data[header:] if data[12:16] == target.address.packed else b""


def _open(target: Target, kind: int, protocol: int) -> socket.socket:
    family = socket.AF_INET if target.source.version == 4 else socket.AF_INET6
    sock = None
    try:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, target.device.encode())
        sock.bind((str(target.source), 0))
    except OSError as error:
        if sock is not None:
            sock.close()
        text = f"open a socket on {target.device} from {target.source}"
        raise KernelError(error.errno or 0, text) from error
    return sock
