"""Which of the packets that a watch sees belong to the connection that is traced. Pure.

Ports of clients are learned: behind a translation the port asked about is another one, and the
client's stays.
Tested in tests/node/test_trace_relevance.py.
"""

from __future__ import annotations

from libcalico.local.packet_trace import Head, Question

MOST_PORTS = 64


class Relevance:
    """Remembers the client ports of one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._clients: set[int] = set()

    def concerns(self, head: Head) -> bool:
        """Whether a packet is of the connection, an answer to it, or an error about it."""
        asked = self._question
        if head.inner is not None:
            return self.concerns(head.inner)
        if head.protocol != asked.protocol:
            return False
        ends = (head.source, head.destination)
        both = asked.source in ends and asked.destination in ends
        if not asked.port:
            return both
        if both and asked.port in (head.source_port, head.destination_port):
            forward = head.source == asked.source and head.destination_port == asked.port
            if forward and len(self._clients) < MOST_PORTS:
                self._clients.add(head.source_port)
            return True
        one = asked.source in ends or asked.destination in ends
        return one and bool(self._clients & {head.source_port, head.destination_port})
