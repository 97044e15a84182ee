"""Which of the packets that a watch sees belong to the connection that is traced. Pure.

Packets and ports of clients are learned: those of TCP by the first packet of a connection, for one
that was open before the watch is no attempt, and its packets say nothing of a new one. Behind a
translation of the destination the port asked about is another one, and the client's stays; behind
one of the source the packet is known by itself. Where only the translated packet comes by, first
packets to the destination count.
Tested in tests/node/test_trace_relevance.py.
"""

from __future__ import annotations

from libcalico.local.packet_trace import Head, Question
from node.trace.heads import TCP

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
            return self._told_of(head.inner)
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
        if there and head.flags in ("SYN", ""):
            if len(self._clients) < MOST_PORTS:
                self._clients.add(head.source_port)
            return True
        asked_port = asked.port in (head.source_port, head.destination_port)
        return self._known(head) or (both and asked_port and not head.flags)

    def _known(self, head: Head) -> bool:
        """Whether a packet has an end of the question and a port that was learned."""
        ends = (head.source, head.destination)
        one = self._question.source in ends or self._question.destination in ends
        return one and bool(self._clients & {head.source_port, head.destination_port})

    def _told_of(self, inner: Head) -> bool:
        """Whether an error is about a packet of the connection; its flags may be cut off."""
        asked = self._question
        if asked.protocol == TCP and inner.protocol == TCP:
            return inner.same in self._packets or self._known(inner)
        return self.concerns(inner)
