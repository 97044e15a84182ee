"""A connection that we open is refused, or given up, and opened anew after a pause.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_dialling.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

from exabgp.reactor import protocol
from exabgp.reactor.network.outgoing import Outgoing

from bgp.speaker.exabgp.upstream.exabgp_types import (
    OutgoingConnection,
    Session,
)

MOST_REDIAL, LEAST_REDIAL = 5.0, 0.2
"""Seconds between two connections that we open. BIRD takes 5 s in Calico."""

_DIAL_REST = 0.02


def refused_connections() -> None:
    """A connection that we open is refused, or given up, and opened anew after a pause.

    The pause is a quarter of the time that has passed since the first attempt, from 0.2 to 5 s: a
    peer that was away for a second is dialled again within a quarter more.

    Upstream: a refused connection counts as open, is reported to the API process, and becomes a
        session that ends with the OPEN.
    Fails without it: none; test_dialling.py shows what it gives.
    Remove when: ExaBGP sees a refused connection, and the pause between two can be set.
    """
    connect = protocol.Protocol.connect

    def establish(self: OutgoingConnection) -> Iterator[bool]:
        begun = time.monotonic()
        while True:
            started = time.monotonic()
            good = False if self._connect() else None
            while good is None and time.monotonic() - started < MOST_REDIAL:
                self.rests_until = time.monotonic() + _DIAL_REST
                yield False
                good = _is_open(self.io)
            if good:
                self.success()
                self.local = self.local or self.io.getsockname()[0]
                yield True
                return
            if self.io is not None:
                self.io.close()
                self.io = None  # type: ignore[assignment]
            now = time.monotonic()
            pause = min(max((now - begun) / 4, LEAST_REDIAL), MOST_REDIAL)
            self.rests_until = max(now, started + pause)
            while time.monotonic() < self.rests_until:
                yield False

    def dial(self: Session) -> Iterator[bool]:
        for each in connect(self):
            self.peer.dials_at = getattr(self.connection, "rests_until", 0.0)
            yield each

    Outgoing.establish, protocol.Protocol.connect = establish, dial


def _is_open(opened: socket.socket) -> bool | None:
    """Whether a connection that we began is open; None: nothing is known yet."""
    poller = select.poll()
    poller.register(opened, select.POLLOUT)
    if not poller.poll(0):
        return None
    return not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def apply() -> None:
    """From now on."""
    refused_connections()
