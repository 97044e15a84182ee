"""ExaBGP's lines: recorded examples, commands, and rubbish."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import protocol
from bgp.speaker.exabgp.protocol import Ack, RawUpdate, State, Unreadable, decode
from bgp.speaker.interface import (
    Family,
    Origin,
    Peer,
    PeerOpen,
    PeerProgress,
    Route,
)

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
    assert decode(line("state", state="up")) == State(PEER, "up")
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


def test_asking_once_more() -> None:
    assert protocol.route_refresh(PEER, Family.IPV4) == (
        "neighbor 10.99.0.2 announce route-refresh ipv4 unicast"
    )
    assert protocol.reset(PEER) == "neighbor 10.99.0.2 teardown 6004"


def peer(address: str = "10.99.0.2", remote: int = 64512) -> Peer:
    own = IPv4Address("10.99.0.1")
    return Peer(ip_address(address), remote, own, 64512, own, (Family.IPV4,))


def test_commands() -> None:
    """Routes with equal attributes share lines; lines stay short; order is fixed."""
    nets = [ip_network(f"10.{high}.{low}.0/24") for high in range(4) for low in range(256)]
    lines = list(protocol.announce([Route(net) for net in nets], [peer()]))
    assert len(lines) == 3
    assert all(len(each) < 16000 for each in lines)
    start = "neighbor 10.99.0.2 announce attributes next-hop self origin igp nlri 10.0.0"
    assert lines[0].startswith(start)
    assert list(protocol.withdraw(nets[:2], [PEER])) == [
        "neighbor 10.99.0.2 withdraw attributes next-hop self nlri 10.0.0.0/24 10.0.1.0/24"
    ]
    assert list(protocol.announce([Route(nets[0])], [])) == []
    assert protocol.end_of_rib(PEER, Family.IPV6) == "neighbor 10.99.0.2 announce eor ipv6 unicast"


def test_attributes_differ_by_kind_of_peer() -> None:
    """RFC 4271 5.1.2 and 5.1.5: our AS in front, and no LOCAL_PREF, towards external peers."""
    route = Route(
        ip_network("10.0.0.0/24"),
        next_hop=PEER,
        local_pref=7,
        med=1,
        communities=("1:2", "3:4"),
        large_communities=("1:2:3",),
        extended_communities=("0x0002fc0000000001",),
        as_path=(65001, 65001),
        origin=Origin.EGP,
        originator_id=IPv4Address("9.9.9.9"),
        cluster_list=("1.1.1.1", "2.2.2.2"),
    )
    external, internal = protocol.announce([route], [peer(), peer("10.0.0.9"), peer("10.0.0.7", 1)])
    rest = (
        "med 1 community [ 1:2 3:4 ] large-community [ 1:2:3 ] "
        "extended-community [ 0x0002fc0000000001 ] originator-id 9.9.9.9 "
        "cluster-list [ 1.1.1.1 2.2.2.2 ] nlri 10.0.0.0/24"
    )
    assert internal == (
        "neighbor 10.0.0.9 , neighbor 10.99.0.2 announce attributes next-hop 10.99.0.2 origin egp "
        "as-path [ 65001 65001 ] local-preference 7 " + rest
    )
    assert external == (
        "neighbor 10.0.0.7 announce attributes next-hop 10.99.0.2 origin egp "
        "as-path [ 64512 65001 65001 ] " + rest
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.binary(max_size=60))
def test_bytes_never_raise(raw: bytes) -> None:
    decode(raw)
    decode(b"{" + raw)


@given(
    st.sampled_from(["update", "state", "open", "notification"]),
    st.dictionaries(
        st.sampled_from(["address", "message", "open", "state", "notification", "direction"]),
        json_values,
    ),
)
def test_shapes_never_raise(kind: str, neighbor: dict[str, Any]) -> None:
    decode(json.dumps({"type": kind, "neighbor": neighbor}).encode())
