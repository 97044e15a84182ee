"""A peer that lost its session and dials anew takes the old session's place.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_hostile.py
and test_keys.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import select
import socket
import time

from exabgp.bgp.message import Message
from exabgp.bgp.message.open.capability import Capability
from exabgp.reactor import listener
from exabgp.reactor import peer as peers

from bgp.speaker.exabgp.upstream.exabgp_types import Connection, Listener, Neighbor, Peer

_PROOF_SECONDS = 10.0
_CROSSING_SECONDS = 0.5
_MOST_WAITING = 64


def replace_a_dead_session() -> None:
    """A peer with graceful restart that dials anew replaces its own session (RFC 4724 4.2).

    ExaBGP refuses until the old session's socket dies: the hold time, where the peer's host
    lost power. The new connection must have brought its OPEN and stay open for a moment: of two
    that crossed while both sides dialled the peer closes one itself. And it was let in by the
    definition (a key, a least TTL) that the peer still has.

    Upstream: a second connection is refused while the first session is Established.
    Fails without it: test_hostile.py,
        test_a_peer_that_lost_its_old_session_gets_a_new_one_at_once.
    Remove when: ExaBGP follows RFC 4724 4.2, with a proof such as the OPEN.
    """
    accept, look = peers.Peer.handle_connection, listener.Listener.incoming
    define = peers.Peer.reestablish
    waiting: list[tuple[float, Peer, Connection]] = []

    def handle(self: Peer, connection: Connection) -> object:
        if not self.established() or self._teardown or not _restarts(self):
            return accept(self, connection)
        waiting.append((time.monotonic() + _PROOF_SECONDS, self, connection))
        del waiting[:-_MOST_WAITING]
        return None

    def incoming(self: Listener) -> object:
        for each in list(waiting):
            end, peer, connection = each
            proof, left = _has_open(connection), end - time.monotonic()
            if left > 0 and proof is None:
                continue
            # Two connections that crossed may both bring an OPEN: the peer closes one of them.
            if proof and peer.established() and left > _PROOF_SECONDS - _CROSSING_SECONDS:
                continue
            waiting.remove(each)
            if not proof:
                connection.close()
                continue
            if peer.established():
                peer._reset("closing connection", "the peer dialled anew")
            accept(peer, connection)
        return look(self)

    def define_anew(self: Peer, neighbor: Neighbor | None = None) -> None:
        for each in [each for each in waiting if each[1] is self]:
            waiting.remove(each)
            each[2].close()
        define(self, neighbor)

    peers.Peer.handle_connection, peers.Peer.reestablish = handle, define_anew
    listener.Listener.incoming = incoming


def _restarts(peer: Peer) -> bool:
    received = peer.proto.negotiated.received_open if peer.proto else None
    return bool(received and received.capabilities.announced(Capability.CODE.GRACEFUL_RESTART))


def _has_open(connection: Connection) -> bool | None:
    """Whether an OPEN waits to be read; None: nothing is known yet."""
    try:
        poller = select.poll()
        poller.register(connection.io, select.POLLRDHUP)
        if poller.poll(0):  # closed again, with or without words
            return False
        start = connection.io.recv(Message.HEADER_LEN, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except (OSError, AttributeError, TypeError, ValueError):  # the last two: it is closed here
        return False
    if 0 < len(start) < Message.HEADER_LEN:
        return None
    return bool(start) and start[18] == Message.CODE.OPEN


def apply() -> None:
    """From now on."""
    replace_a_dead_session()
