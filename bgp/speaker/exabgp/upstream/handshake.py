"""What ExaBGP waits for between the OPENs and an Established session.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_hostile.py
and test_sessions.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from collections.abc import Iterator

from exabgp.bgp.message import _NOP, NOP
from exabgp.reactor import peer as peers

from bgp.speaker.exabgp.upstream.exabgp_types import ConnectedPeer


def open_confirm() -> None:
    """The wait between the OPENs and an Established session is idle and safe.

    - For the first KEEPALIVE it sleeps. ExaBGP asks again at once, at a full processor, for
      the hold time, where a peer sends its OPEN and then stays silent.
    - A connection that was accepted under TTL security (RFC 5082) must have acknowledged our
      OPEN. What the peer said before the least TTL was set came from any distance; an
      acknowledgement of what we said after that did not.

    Upstream: the wait for a KEEPALIVE spins; the least TTL covers nothing that came before it was
        set.
    Fails without it: test_hostile.py, test_stalled_handshakes_block_nobody.
    Remove when: both are put right.
    """

    def read(self: ConnectedPeer) -> Iterator[object]:
        connection = self.proto.connection
        if self.neighbor["incoming-ttl"] and connection.direction == "incoming":
            while connection.io is not None and _unacknowledged(connection.io):
                self.recv_timer.check_ka_timer(_NOP)
                yield peers.ACTION.LATER
        for message in self.proto.read_keepalive():
            self.recv_timer.check_ka_timer(message)
            yield peers.ACTION.LATER if message.TYPE == NOP.TYPE else peers.ACTION.NOW

    peers.Peer._read_ka = read


def _unacknowledged(opened: socket.socket) -> int:
    """Octets that the other side has not acknowledged (`man 7 tcp`, SIOCOUTQ)."""
    answer = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)


def apply() -> None:
    """From now on."""
    open_confirm()
