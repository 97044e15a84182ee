"""A cable whose one end says that it fills in checksums inside VXLAN, and does not.

 node eth0 -- [ space: near | far ] -- eth0 outside

The two inner ends are joined by a program instead of a bridge. A veth interface offers to compute
checksums, inside tunnels too, and merely notes that one is to be filled in; packet sockets carry
that note across (PACKET_VNET_HDR, packet(7)). Where it is about what a VXLAN packet from the near
end carries, it is thrown away, and the packet goes on as it is: so does a broken network card.
One packet of 65,535 would be right nonetheless, for its bytes happen to sum up: that one is made
wrong, so that the cable never tells the truth by chance.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from linux.tcp_probe import checksum
from tests.support.netns import Namespace, network_namespace

SOL_PACKET, PACKET_VNET_HDR, ETH_P_ALL = 263, 15, 3
PACKET_OUTGOING = 4
NEEDS_CHECKSUM = 1
NOTE = 10
"""Bytes of struct virtio_net_hdr before each frame; the first is its flags."""
MOST = 70_000


@contextmanager
def lying_cable(node: Namespace, outside: Namespace) -> Iterator[Cable]:
    """Joins eth0 of both; neither may have one yet. It lies until it is told to be `honest`."""
    with network_namespace("cable") as space:
        for name, end in (("near", node), ("far", outside)):
            peer = ("peer", "name", "eth0", "netns", end.name)
            space.run("ip", "link", "add", name, "type", "veth", *peer)
            space.run("ip", "link", "set", name, "up", "promisc", "on")
        cable = Cable(space)
        try:
            yield cable
        finally:
            cable.close()


class Cable:
    """The program between. `lies` counts checksums that were left out."""

    def __init__(self, space: Namespace) -> None:
        self.honest = False
        self.lies = 0
        self._near, self._far = space.call(_open_both)
        self._end, self._told = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        os.write(self._told, b".")
        self._thread.join(10)
        for sock in (self._near, self._far):
            sock.close()
        os.close(self._end)
        os.close(self._told)

    def _carry(self) -> None:
        ways = {self._near: self._far, self._far: self._near}
        with selectors.DefaultSelector() as chooser:
            chooser.register(self._end, selectors.EVENT_READ)
            for each in ways:
                chooser.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in chooser.select():
                    if key.fileobj == self._end:
                        return
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass(key.fileobj, ways[key.fileobj])

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data, address = source.recvfrom(MOST)
            if address[2] == PACKET_OUTGOING:
                return
            if source is self._near and not self.honest and _left_out_inside(data):
                data = as_a_lie(data)
                self.lies += 1
            target.send(data)
        except OSError as error:
            print(f"cable: {error}", file=sys.stderr)


def _left_out_inside(data: bytes) -> bool:
    """Whether a checksum is to be filled in behind the header of a VXLAN packet. Pure."""
    note, frame = data[:NOTE], data[NOTE:]
    kind, rest = frame[12:14], frame[14:]
    if kind == b"\x08\x00":
        udp, header = rest[9] == 17, (rest[0] & 15) * 4
    else:
        udp, header = kind == b"\x86\xdd" and rest[6] == 17, 40
    if not udp or rest[header + 2 : header + 4] != (4789).to_bytes(2, "big"):
        return False
    start: int = struct.unpack_from("=H", note, 6)[0]
    return bool(note[0] & NEEDS_CHECKSUM) and start > 14 + header


def as_a_lie(data: bytes) -> bytes:
    """The packet without its note, and with a checksum that is wrong. Pure.

    What stands in the field is the sum of the pseudo header: that much the kernel fills in.
    """
    start, offset = struct.unpack_from("=HH", data, 6)
    frame = bytearray(data[NOTE:])
    part = bytes(frame[start:])
    right = checksum(part + bytes(len(part) % 2))
    stands: int = struct.unpack_from("!H", part, offset)[0]
    if (stands - right) % 0xFFFF == 0:  # in this arithmetic 0 and 0xFFFF are one number
        frame[start + offset + 1] ^= 1
    return bytes(NOTE) + bytes(frame)


def _open_both() -> tuple[socket.socket, socket.socket]:
    return _open("near"), _open("far")


def _open(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    sock.bind((name, 0))
    return sock
