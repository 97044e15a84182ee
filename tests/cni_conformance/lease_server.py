"""A DHCP server of one address, on the raw packets of the namespace that it is started in.

It answers whoever asks, on the link on which the question came: a routed veth has no address of
the pod's network on the host's end, so an ordinary server would have nothing to bind to.

Source: RFC 2131 (messages), RFC 2132 (options 1, 3, 51, 53, 54).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

ETH_P_IP = 0x0800
OUTGOING = 4
DISCOVER, OFFER, REQUEST, ACK, RELEASE = 1, 2, 3, 5, 7
MAGIC = b"\x63\x82\x53\x63"


@contextmanager
def serving(address: IPv4Address, server: IPv4Address) -> Iterator[list[int]]:
    """Give `address` (of a /24) to everybody; yields the types of the messages heard."""
    heard: list[int] = []
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
    sock.settimeout(0.1)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                frame, (link, _, kind, *_) = sock.recvfrom(2048)
            except (TimeoutError, OSError):
                continue
            message = _message(frame) if kind != OUTGOING else None
            if message is None:
                continue
            asked, bootp = message
            heard.append(asked)
            if asked in (DISCOVER, REQUEST):
                answer = _answer(asked, bootp, address, server)
                sock.sendto(frame[6:12] + frame[:6] + frame[12:14] + answer, (link, ETH_P_IP))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        ended.set()
        thread.join()
        sock.close()


def _message(frame: bytes) -> tuple[int, bytes] | None:
    """(type, BOOTP message) of a question to port 67."""
    if len(frame) < 14 + 28 + 240 or frame[23] != 17:
        return None
    start = 14 + (frame[14] & 15) * 4
    if struct.unpack("!H", frame[start + 2 : start + 4])[0] != 67:
        return None
    bootp = frame[start + 8 :]
    options, at = bootp[240:], 0
    while at + 2 < len(options) and options[at] != 255:
        if options[at] == 0:
            at += 1
            continue
        if options[at] == 53:
            return options[at + 2], bootp
        at += 2 + options[at + 1]
    return None


def _answer(asked: int, bootp: bytes, address: IPv4Address, server: IPv4Address) -> bytes:
    kind = OFFER if asked == DISCOVER else ACK
    options = b"".join(
        bytes([code, len(value)]) + value
        for code, value in (
            (53, bytes([kind])), (54, server.packed), (51, struct.pack("!I", 3600)),
            (1, b"\xff\xff\xff\x00"), (3, server.packed),
        )
    )  # fmt: skip
    reply = (
        b"\x02" + bootp[1:4] + bootp[4:8] + bytes(4) + bytes(4) + address.packed + server.packed
        + bytes(4) + bootp[28:44] + bytes(192) + MAGIC + options + b"\xff"
    )  # fmt: skip
    udp = struct.pack("!HHHH", 67, 68, 8 + len(reply), 0) + reply
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, server.packed, b"\xff" * 4
    )
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return head[:10] + struct.pack("!H", checksum) + head[12:] + udp
