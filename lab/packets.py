"""Sends, forges, counts and records packets inside a machine or pod, as `probe.py` cannot.

Standard library only, run with `-I -S`. It says `ready` when it has begun, ends at SIGTERM or
SIGINT, and then prints one line of JSON. Uses:
  packets.py count PORT                    UDP to PORT that arrives, per source, on any interface,
                                           also one that does not exist yet
  packets.py send ADDRESS PORT RATE        UDP, RATE a second, from one socket
  packets.py fresh ADDRESS PORT RATE       the same, each from a socket (and port) of its own
  packets.py forge SOURCE ADDRESS PORT N   N datagrams with a source that is not ours
  packets.py record INTERFACE FILE         everything on an interface into a pcap file, as tcpdump
                                           does, which cannot in a user namespace with one id
"""

import json
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator

ALL_PROTOCOLS = 0x0003
OUTGOING = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_ATTACH_FILTER = 26
SO_RCVBUFFORCE = 33
UDP = 17
BUFFER = 16 << 20
GRACE = 0.1
PCAP_HEAD = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_stopping: list[int] = []


def ready() -> None:
    """Say that work has begun, and let a signal end it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: _stopping.append(got))
    print("ready", flush=True)


def listen(kind: int, interface: str = "") -> socket.socket:
    """A packet socket on one interface or on all, with a buffer for seconds of traffic."""
    tap = socket.socket(socket.AF_PACKET, kind, socket.htons(ALL_PROTOCOLS))
    try:
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    except OSError:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    if interface:
        tap.bind((interface, ALL_PROTOCOLS))
    tap.settimeout(0.05)
    return tap


def close_entry(tap: socket.socket) -> None:
    """Let no more packets in, by a filter of one instruction, "drop"; the waiting stay readable."""
    import ctypes

    drop = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    tap.settimeout(0)


def taken(tap: socket.socket) -> Iterator[tuple[bytes, tuple[str, int, int]]]:
    """Each packet and its origin until the signal, and those that had come by then.

    A busy machine is behind: after the signal packets come in until none waits, GRACE seconds at
    most; then no more come in, and those that wait are read to the last.
    """
    ready()
    idle, deadline, shut = True, 0.0, False
    while True:
        if _stopping and not deadline:
            deadline = time.monotonic() + GRACE
        if deadline and not shut and (idle or time.monotonic() > deadline):
            close_entry(tap)
            shut = True
        try:
            packet, origin = tap.recvfrom(65535)
        except (TimeoutError, BlockingIOError):
            if shut:
                return
            idle = True
            continue
        idle = False
        yield packet, origin


def datagram(packet: bytes) -> tuple[str, int] | None:
    """(source, destination port) of an IP packet that carries UDP; None for any other. Pure."""
    if len(packet) < 28:
        return None
    if packet[0] >> 4 == 4:
        header = (packet[0] & 15) * 4
        if packet[9] != UDP or len(packet) < header + 4:
            return None
        return socket.inet_ntoa(packet[12:16]), int.from_bytes(packet[header + 2 : header + 4])
    if packet[0] >> 4 == 6 and packet[6] == UDP and len(packet) >= 44:
        return socket.inet_ntop(socket.AF_INET6, packet[8:24]), int.from_bytes(packet[42:44])
    return None


def count(port: int) -> dict[str, object]:
    """Count the packets until the signal; `lost` are those for which the kernel had no buffer."""
    arrived: dict[str, int] = {}
    with listen(socket.SOCK_DGRAM) as tap:
        for packet, origin in taken(tap):
            seen = None if origin[2] == OUTGOING else datagram(packet)
            if seen is not None and seen[1] == port:
                arrived[seen[0]] = arrived.get(seen[0], 0) + 1
        _, lost = struct.unpack("II", tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    return {"arrived": arrived, "lost": lost}


def send(address: str, port: int, rate: float, fresh: bool) -> dict[str, object]:
    """Send until the signal; errors of the network (unreachable) do not stop it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sent = errors = 0
    out = socket.socket(family, socket.SOCK_DGRAM)
    ready()
    begun = time.monotonic()
    while not _stopping:
        if fresh:
            out.close()
            out = socket.socket(family, socket.SOCK_DGRAM)
        try:
            out.sendto(b"%d" % sent, (address, port))
            sent += 1
        except OSError:
            errors += 1
        time.sleep(max(0.0, begun + (sent + errors) / rate - time.monotonic()))
    return {"sent": sent, "errors": errors}


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071). Pure."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def forge(source: str, address: str, port: int, number: int) -> dict[str, object]:
    """Send datagrams under another address; the kernel checks nothing of a raw socket's header."""
    udp = struct.pack("!HHHH", port, port, 8 + 4, 0) + b"fake"
    sent = 0
    if ":" in source:
        header = struct.pack("!IHBB", 6 << 28, len(udp), UDP, 64)
        ends = socket.inet_pton(socket.AF_INET6, source), socket.inet_pton(socket.AF_INET6, address)
        pseudo = b"".join(ends) + struct.pack("!IxxxB", len(udp), UDP) + udp
        udp = udp[:6] + struct.pack("!H", checksum(pseudo) or 0xFFFF) + udp[8:]
        packet, family = header + b"".join(ends) + udp, socket.AF_INET6
    else:
        ends = socket.inet_aton(source), socket.inet_aton(address)
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, UDP, 0)
        packet, family = header + b"".join(ends) + udp, socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        if family == socket.AF_INET6:
            out.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # IPV6_HDRINCL
        ready()
        for _ in range(number):
            out.sendto(packet, (address, 0))
            sent += 1
            time.sleep(0.005)
    return {"sent": sent}


def record(interface: str, file: str) -> dict[str, object]:
    """Write a pcap file until the signal."""
    recorded = 0
    with listen(socket.SOCK_RAW, interface) as tap, open(file, "wb") as out:
        out.write(PCAP_HEAD)
        out.flush()
        for frame, _ in taken(tap):
            now = time.time()
            stamp = int(now), int(now % 1 * 1e6)
            out.write(struct.pack("=IIII", *stamp, len(frame), len(frame)) + frame)
            recorded += 1
    return {"recorded": recorded}


def main(arguments: list[str]) -> int:
    """Dispatch on the first word."""
    what, *rest = arguments
    report: dict[str, object]
    if what == "count":
        report = count(int(rest[0]))
    elif what in ("send", "fresh"):
        report = send(rest[0], int(rest[1]), float(rest[2]), what == "fresh")
    elif what == "forge":
        report = forge(rest[0], rest[1], int(rest[2]), int(rest[3]))
    else:
        report = record(rest[0], rest[1])
    print(json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
