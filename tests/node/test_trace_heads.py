"""Headers of packets as a trace tells them."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.local.packet_trace import Head
from node.trace.heads import read
from tests.size import examples

A, B = ip_address("10.0.0.1"), ip_address("10.0.0.2")
SIX_A, SIX_B = ip_address("fd00::1"), ip_address("fd00::2")


def four(protocol: int, rest: bytes, ident: int = 7, fragment: int = 0) -> bytes:
    """An IPv4 packet."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), ident, fragment, 63, protocol, 0)
    return head + A.packed + B.packed + rest


def six(protocol: int, rest: bytes) -> bytes:
    """An IPv6 packet."""
    head = struct.pack("!IHBB", 6 << 28, len(rest), protocol, 62)
    return head + SIX_A.packed + SIX_B.packed + rest


def tcp(flags: int, sequence: int = 100, source: int = 1000, destination: int = 80) -> bytes:
    """A TCP header."""
    return struct.pack("!HHIIBBHHH", source, destination, sequence, 5, 0x50, flags, 1, 0, 0)


def whole(packet: bytes) -> Head:
    """Its headers, which must be readable."""
    head = read(packet)
    assert head is not None
    return head


def test_a_segment() -> None:
    head = whole(four(6, tcp(0x12)))
    assert (head.source, head.destination, head.ttl, head.length) == (
        "10.0.0.1",
        "10.0.0.2",
        63,
        40,
    )
    assert (head.source_port, head.destination_port, head.flags) == (1000, 80, "SYN+ACK")
    assert whole(six(6, tcp(0x02))).flags == "SYN"


def test_a_translated_packet_is_the_same_packet() -> None:
    before, after = four(6, tcp(2)), four(6, tcp(2, source=2000, destination=8080))
    assert whole(before).same == whole(after).same
    assert whole(before).same != whole(four(6, tcp(2, sequence=101))).same


def test_errors_carry_what_they_are_about() -> None:
    inner = four(6, tcp(2))
    error = whole(four(1, struct.pack("!BBHHH", 3, 4, 0, 0, 1280) + inner))
    assert (error.icmp_type, error.icmp_code, error.mtu) == (3, 4, 1280)
    assert error.inner is not None
    assert error.inner.same == whole(inner).same
    too_big = whole(six(58, struct.pack("!BBHI", 2, 0, 0, 1300) + six(6, tcp(2))))
    assert (too_big.mtu, too_big.inner and too_big.inner.destination_port) == (1300, 80)


def test_an_echo_is_known_by_number_and_sequence() -> None:
    head = whole(four(1, struct.pack("!BBHHH", 8, 0, 0, 44, 3)))
    assert (head.icmp_type, head.same, head.inner) == (8, "1:8:44:3", None)


def test_a_later_fragment_has_no_ports() -> None:
    head = whole(four(17, struct.pack("!HH", 5, 6), fragment=100))
    assert (head.source_port, head.destination_port) == (0, 0)


def test_headers_of_extensions_are_passed() -> None:
    options = struct.pack("!BB6x", 6, 0) + tcp(2)
    assert whole(six(0, options)).destination_port == 80


def test_the_first_fragment_of_ipv6_has_ports_and_later_ones_have_none() -> None:
    first, later = (struct.pack("!BBHI", 6, 0, offset, 9) + tcp(2) for offset in (1, 8))
    assert whole(six(44, first)).destination_port == 80
    head = whole(six(44, later))
    assert (head.protocol, head.destination_port) == (6, 0)


@pytest.mark.parametrize("packet", [b"", b"\x45", b"\x60" + bytes(20), b"\x20" + bytes(60)])
def test_what_is_no_whole_header_is_none(packet: bytes) -> None:
    assert read(packet) is None


@settings(max_examples=examples(300))
@given(st.binary(max_size=80))
def test_no_bytes_are_too_much(data: bytes) -> None:
    for first in (b"\x45", b"\x60"):
        found = read(first + data)
        assert found is None or found.source


def test_what_lies_behind_a_packet_is_none_of_it() -> None:
    """The kernel's copy has a fixed length."""
    for packet in (four(1, b"\x03\x00"), six(58, b"\x01\x00")):
        head = whole(packet + four(6, tcp(2)) * 2)
        assert (head.icmp_type, head.inner) == (-1, None)
