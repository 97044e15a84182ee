"""What a peer sent and the agent has not read yet: bounded, for each peer by itself.

The thread that reads ExaBGP's pipe never waits (BGP-2), so a peer that sends faster than the
agent reads would fill its memory. Beyond the limit a peer's UPDATEs are dropped, and its session
must end: what is missing cannot be made up for. A line `overflow PEER` stands in their place;
the speaker answers it with CEASE 6/8, "out of resources" (RFC 4486). With the end of the session
the peer starts at nothing again.

  BGP-9  One peer never holds more than `limit` octets here, and no UPDATE of a session that goes
         on is dropped.
`admit` is called by the reader's thread, the rest by the loop. Tested in tests/bgp/test_backlog.py.
"""

from __future__ import annotations

import threading

from bgp.speaker.exabgp import protocol

LIMIT = 64 << 20
"""Octets of one peer: 200,000 paths with attributes of their own, several times over."""
_UPDATE = b"update "


class Backlog:
    """Octets that wait, by peer as ExaBGP writes it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._waiting: dict[bytes, int] = {}
        self._decoded: dict[bytes, int] = {}
        self._over: set[bytes] = set()

    def admit(self, lines: list[bytes]) -> list[bytes]:
        """The lines to hand over: all of them, unless a peer has too much waiting."""
        with self._lock:
            return [line for line in map(self._admit, lines) if line]

    def _admit(self, line: bytes) -> bytes:
        if not line.startswith(_UPDATE):
            if self._over and line.startswith(b"{"):
                self._new_session(line)
            return line
        peer = _peer(line)
        if peer in self._over:
            return b""
        size = self._waiting.get(peer, 0) + len(line)
        if size > self.limit:
            self._over.add(peer)
            return protocol.OVERFLOW + peer
        self._waiting[peer] = size
        return line

    def _new_session(self, line: bytes) -> None:
        """A session that came or went: what is said from now on belongs to another one."""
        said = protocol.decode(line)
        if isinstance(said, protocol.State) and said.state != "down":
            return
        if isinstance(said, (protocol.State, protocol.Up)):
            self._over.discard(str(said.peer).encode())

    def decoded(self, line: bytes) -> None:
        """A line has become events that wait to be taken."""
        if line.startswith(_UPDATE):
            peer = _peer(line)
            self._decoded[peer] = self._decoded.get(peer, 0) + len(line)

    def taken(self) -> None:
        """Note that the agent has read all events."""
        if self._decoded:
            with self._lock:
                for peer, size in self._decoded.items():
                    left = self._waiting.pop(peer, 0) - size
                    if left > 0:
                        self._waiting[peer] = left
            self._decoded.clear()

    def clear(self) -> None:
        """ExaBGP ended."""
        with self._lock:
            self._waiting.clear()
            self._over.clear()
        self._decoded.clear()


def _peer(line: bytes) -> bytes:
    return line[len(_UPDATE) : len(_UPDATE) + 64].partition(b" ")[0]
