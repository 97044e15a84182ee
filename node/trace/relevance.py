"""Which of the packets that a watch sees belong to the connection that is traced. Pure.

Packets and ports of clients are learned. Behind a translation of the destination the port asked
about is another one, and the client's stays; behind one of the source the packet is known by
itself. Where only the translated packet comes by, first packets to the destination count.
Tested in tests/node/test_trace_relevance.py.
"""

from __future__ import annotations

from libcalico.local.packet_trace import Head, Question

MOST_PORTS = 64
MOST_PACKETS = 1000


class Relevance:
    """Remembers the client ports and packets of one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._clients: set[int] = set()
        self._packets: set[str] = set()

    def concerns(self, head: Head) -> bool:
        """Whether a packet is of the connection, an answer to it, or an error about it."""
        asked = self._question
        if head.inner is not None:
            return self.concerns(head.inner)
        if head.protocol != asked.protocol:
            return False
        if head.same and head.same in self._packets:
            return True
        if not self._named(head):
            return False
        if len(self._packets) < MOST_PACKETS:
            self._packets.add(head.same)
        return True

    def _named(self, head: Head) -> bool:
        """Whether addresses and ports are those of the question, or learned ones."""
        asked = self._question
        ends = (head.source, head.destination)
        both = asked.source in ends and asked.destination in ends
        if not asked.port:
            return both
        there = head.destination == asked.destination and head.destination_port == asked.port
        if there and (both or head.flags in ("SYN", "")):
            if len(self._clients) < MOST_PORTS:
                self._clients.add(head.source_port)
            return True
        if both and asked.port in (head.source_port, head.destination_port):
            return True
        one = asked.source in ends or asked.destination in ends
        return one and bool(self._clients & {head.source_port, head.destination_port})
