"""ExaBGP's lines: recorded examples, commands, and rubbish."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, ip_address
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bgp.speaker.exabgp import command_lines
from bgp.speaker.exabgp.protocol import (
    Ack,
    RawUpdate,
    Refresh,
    State,
    Unreadable,
    Up,
    decode,
)
from bgp.speaker.interface import Family, PeerOpen, PeerProgress

PEER = IPv4Address("10.99.0.2")


def line(kind: str, **neighbor: Any) -> bytes:
    address = {"local": "10.99.0.1", "peer": str(PEER)}
    return json.dumps(
        {"type": kind, "pid": 1, "neighbor": {"address": address, **neighbor}}
    ).encode()


def test_words() -> None:
    assert decode(b"done") is Ack.DONE
    assert decode(b"error") is Ack.ERROR
    assert decode(b"exabgp 5.0.15") is None
    assert decode(b"") is None
    assert decode(b'{"type":"notification","notification":"shutdown"}') is None


def test_state_open_notification_eor() -> None:
    assert decode(line("state", state="connected")) == State(PEER, "connected")
    down = decode(line("state", state="down", reason="closing connection"))
    assert down == State(PEER, "down", "closing connection")
    capabilities = {
        "64": {
            "name": "graceful restart",
            "time": 40,
            "address-family-flags": {"ipv4/unicast": ["restart"], "ipv6/unicast": [], "x/y": []},
            "restart-flags": ["forwarding"],
        }
    }
    body = {"asn": 64500, "hold_time": 9, "router_id": "1.2.3.4", "capabilities": capabilities}
    assert decode(line("open", direction="receive", open=body)) == PeerOpen(
        PEER,
        64500,
        IPv4Address("1.2.3.4"),
        9,
        40,
        frozenset(Family),
        frozenset({Family.IPV4}),
        families=frozenset({Family.IPV4}),  # RFC 4760 section 8
    )
    assert decode(line("open", direction="send", open=body)) is None
    plain = decode(line("open", direction="receive", open={**body, "capabilities": {}}))
    assert isinstance(plain, PeerOpen)
    assert plain.restart_time is None
    told = {"code": 6, "subcode": 2, "data": "0x", "message": ""}
    assert decode(line("notification", direction="receive", notification=told)) == PeerProgress(
        PEER, "", "notification received (6,2): administrative shutdown"
    )


def test_what_a_peer_can() -> None:
    """RFC 4760, RFC 6793, RFC 7911: families, wide AS numbers, several paths."""
    capabilities = {
        "1": {"name": "multiprotocol", "families": ["ipv4/unicast", "ipv6/unicast", "ipv4/vpn"]},
        "65": {"name": "asn4", "asn4": 4200000000},
        "69": {"name": "addpath", "ipv6/unicast": "send/receive", "ipv4/unicast": "receive"},
        "2": {"name": "route-refresh"},
    }
    body = {"asn": 64500, "hold_time": 9, "router_id": "1.2.3.4", "capabilities": capabilities}
    said = decode(line("open", direction="receive", open=body))
    assert isinstance(said, PeerOpen)
    assert said.families == frozenset(Family)
    assert said.add_path == {Family.IPV6}
    assert said.four_octet_as
    assert said.route_refresh


def test_an_unreadable_line_names_its_peer() -> None:
    assert decode(b"update 10.99.0.2 4 zz") == Unreadable(
        "ValueError: non-hexadecimal number found in fromhex() arg at position 0", PEER
    )
    nobody = decode(b"update nobody 4 00")
    assert isinstance(nobody, Unreadable)
    assert nobody.peer is None
    cut = decode(line("state", state="up")[:-1])
    assert isinstance(cut, Unreadable)
    assert cut.peer == PEER
    assert decode(b'{"peer": "1.2.3"') == Unreadable("DecodeError: Input data was truncated", None)


def test_update() -> None:
    assert decode(b"update 10.99.0.2 4aA 00ff") == RawUpdate(PEER, "4aA", b"\x00\xff")
    assert decode(b"update fd99::1 -") == RawUpdate(ip_address("fd99::1"), "-", b"")


def test_a_session_begins() -> None:
    said = {"type": "up", "peer": str(PEER), "session": 7, "asn4": True}
    text = json.dumps({**said, "own": ["10.99.0.1", ""], "families": ["ipv4 unicast", "x y"]})
    assert decode(text.encode()) == Up(
        PEER, 7, frozenset({Family.IPV4}), True, IPv4Address("10.99.0.1"), None
    )


def test_a_peer_asks_once_more() -> None:
    said = {"type": "refresh", "peer": str(PEER), "session": 7, "enhanced": False}
    text = json.dumps({**said, "family": "ipv6 unicast"})
    assert decode(text.encode()) == Refresh(PEER, 7, Family.IPV6, False)
    text = json.dumps({**said, "family": "ipv4 mpls-vpn"})
    assert decode(text.encode()) == Refresh(PEER, 7, None, False)


def test_commands() -> None:
    """Messages stay whole and in order; a line is never longer than what may be in flight."""
    assert command_lines.PING.line == "ping"
    assert command_lines.end(7).line == "end 6004 7"
    (both,) = command_lines.send([b"\0\1", b"\xff"], [12, 7])
    assert both.line == "send 0001ff 7 12"
    assert list(command_lines.send([b"\0"], [])) == []
    assert list(command_lines.send([], [1])) == []
    messages = [bytes([number]) * 4096 for number in range(20)]
    everybody = range(10_000, 12_000)
    lines = [each.line for each in command_lines.send(messages, everybody)]
    assert len(lines) == 10
    assert all(len(line) < command_lines.IN_FLIGHT for line in lines)
    assert "".join(line.split()[1] for line in lines) == b"".join(messages).hex()
    assert all(line.split()[2:] == list(map(str, everybody)) for line in lines)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from([b"", b"{", b"update ", b"overflow "]), st.binary(max_size=60))
@example(b"overflow ", b"")
@example(b"overflow ", b"\xff")
@example(b'{"type":', b"[" * 100_000)
@example(b'{"type":"refresh","peer":"192.0.2.1","family":"", "enhanced":0,"session":', b"1e308}")
def test_bytes_never_raise(start: bytes, raw: bytes) -> None:
    decode(start + raw)


@given(
    st.sampled_from(["update", "state", "open", "notification"]),
    st.dictionaries(
        st.sampled_from(["address", "message", "open", "state", "notification", "direction"]),
        json_values,
    ),
)
def test_shapes_never_raise(kind: str, neighbor: dict[str, Any]) -> None:
    decode(json.dumps({"type": kind, "neighbor": neighbor}).encode())
