"""Which packets belong to the connection that is traced."""

from __future__ import annotations

import msgspec

from libcalico.local.packet_trace import Head, Question
from node.trace.relevance import MOST_PORTS, Relevance

ASKED = Question("10.0.0.1", "10.0.0.2", 6, 80)
SYN = Head("10.0.0.1", "10.0.0.2", 6, 1234, 80)
ANSWER = Head("10.0.0.2", "10.0.0.1", 6, 80, 1234)


def test_both_ways_and_errors_about_them() -> None:
    relevance = Relevance(ASKED)
    assert relevance.concerns(SYN)
    assert relevance.concerns(ANSWER)
    assert relevance.concerns(Head("192.0.2.1", "10.0.0.1", 1, inner=SYN))
    assert not relevance.concerns(Head("192.0.2.1", "10.0.0.1", 1))


def test_others_are_none() -> None:
    relevance = Relevance(ASKED)
    assert relevance.concerns(SYN)
    for change in (
        {"destination_port": 81, "source_port": 9},
        {"destination": "10.0.0.3", "source_port": 9},
        {"source": "10.0.0.3", "source_port": 9, "flags": "ACK"},
        {"protocol": 17},
    ):
        assert not relevance.concerns(msgspec.structs.replace(SYN, **change))


def test_what_was_translated_is_known_by_the_clients_port() -> None:
    relevance = Relevance(ASKED)
    translated = Head("10.0.0.1", "10.0.0.9", 6, 1234, 8080)
    assert not relevance.concerns(translated)
    assert relevance.concerns(SYN)
    assert relevance.concerns(translated)
    assert relevance.concerns(Head("10.0.0.9", "10.0.0.1", 6, 8080, 1234))


def test_without_ports_both_addresses_count() -> None:
    relevance = Relevance(Question("10.0.0.1", "10.0.0.2", 1))
    assert relevance.concerns(Head("10.0.0.2", "10.0.0.1", 1))
    assert not relevance.concerns(Head("10.0.0.2", "10.0.0.3", 1))


def test_only_so_many_ports_are_remembered() -> None:
    relevance = Relevance(ASKED)
    for port in range(1, MOST_PORTS + 2):
        assert relevance.concerns(msgspec.structs.replace(SYN, source_port=port))
    assert not relevance.concerns(Head("10.0.0.1", "10.0.0.9", 6, MOST_PORTS + 1, 8080))


def test_a_packet_whose_source_was_translated_is_known_by_itself() -> None:
    relevance = Relevance(ASKED)
    sent = msgspec.structs.replace(SYN, flags="SYN", same="6:SYN:1")
    masqueraded = msgspec.structs.replace(sent, source="192.0.2.1", source_port=40000)
    assert relevance.concerns(sent)
    assert relevance.concerns(msgspec.structs.replace(masqueraded, destination="10.0.0.9"))


def test_where_only_the_translated_packet_comes_first_packets_count() -> None:
    relevance = Relevance(ASKED)
    first = Head("192.0.2.1", "10.0.0.2", 6, 40000, 80, "SYN", same="6:SYN:1")
    assert not relevance.concerns(Head("10.0.0.2", "192.0.2.1", 6, 80, 40000, "ACK", same="a"))
    assert relevance.concerns(first)
    assert relevance.concerns(Head("10.0.0.2", "192.0.2.1", 6, 80, 40000, "ACK", same="b"))


def test_a_connection_that_was_open_before_is_no_attempt() -> None:
    """What is still under way of it would be taken for the answer to a new one."""
    relevance = Relevance(ASKED)
    last = Head("10.0.0.2", "10.0.0.1", 6, 80, 999, "FIN+ACK", same="6:FIN+ACK:1")
    receipt = Head("10.0.0.1", "10.0.0.2", 6, 999, 80, "ACK", same="6:ACK:1")
    reset = Head("192.0.2.1", "10.0.0.1", 1, inner=msgspec.structs.replace(receipt, flags=""))
    assert not any(relevance.concerns(head) for head in (last, receipt, reset))
    assert relevance.concerns(msgspec.structs.replace(SYN, flags="SYN"))
    assert relevance.concerns(msgspec.structs.replace(ANSWER, flags="SYN+ACK"))
    assert not relevance.concerns(receipt)
