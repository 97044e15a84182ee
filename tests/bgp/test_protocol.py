"""ExaBGP's lines: recorded examples, commands, and rubbish."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import protocol
from bgp.speaker.exabgp.protocol import Ack, State, Unreadable, decode
from bgp.speaker.interface import (
    Announced,
    EndOfRib,
    Family,
    Origin,
    PathsReceived,
    PeerOpen,
    PeerProgress,
    Route,
    Withdrawn,
)

PEER = IPv4Address("10.99.0.2")


def line(kind: str, **neighbor: Any) -> bytes:
    address = {"local": "10.99.0.1", "peer": str(PEER)}
    return json.dumps(
        {"type": kind, "pid": 1, "neighbor": {"address": address, **neighbor}}
    ).encode()


def update(body: dict[str, Any]) -> Any:
    return decode(line("update", direction="receive", message={"update": body}))


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
    )
    assert decode(line("open", direction="send", open=body)) is None
    plain = decode(line("open", direction="receive", open={**body, "capabilities": {}}))
    assert isinstance(plain, PeerOpen)
    assert plain.restart_time is None
    told = {"code": 6, "subcode": 2, "data": "0x", "message": ""}
    assert decode(line("notification", direction="receive", notification=told)) == PeerProgress(
        PEER, "", "notification received (6,2)"
    )
    eor = {"eor": {"afi": "ipv6", "safi": "unicast"}}
    assert decode(line("update", direction="receive", message=eor)) == EndOfRib(PEER, Family.IPV6)


def test_an_unknown_origin_withdraws() -> None:
    """RFC 7606 section 7.1: ExaBGP shows a value above 2 as invalid."""
    announce = {"ipv4 unicast": {"10.99.0.2": [{"nlri": "10.65.2.0/26"}]}}
    said = update({"attribute": {"origin": "invalid"}, "announce": announce})
    assert isinstance(said, PathsReceived)
    assert said.announced == ()
    assert said.withdrawn == (Withdrawn(ip_network("10.65.2.0/26")),)


def test_an_unreadable_line_names_its_peer() -> None:
    announce = {"ipv4 unicast": {"no address": [{"nlri": "10.65.2.0/26"}]}}
    said = update({"attribute": {}, "announce": announce})
    assert isinstance(said, Unreadable)
    assert said.peer == PEER
    cut = decode(line("update", direction="receive", message={})[:-1])
    assert isinstance(cut, Unreadable)
    assert cut.peer == PEER
    assert decode(b'{"peer": "1.2.3"') == Unreadable("DecodeError: Input data was truncated", None)


def test_asking_once_more() -> None:
    assert protocol.route_refresh(PEER, Family.IPV4) == (
        "neighbor 10.99.0.2 announce route-refresh ipv4 unicast"
    )
    assert protocol.reset(PEER) == "neighbor 10.99.0.2 teardown 4"


def test_update() -> None:
    said = update(
        {
            "attribute": {
                "origin": "incomplete",
                "as-path": {
                    "0": {"element": "as-sequence", "value": [64500, 64501]},
                    "1": {"element": "as-set", "value": [1, 2, 3]},
                    "2": {"element": "as-confed-sequence", "value": [9]},
                },
                "local-preference": 200,
                "med": 5,
                "originator-id": "9.9.9.9",
                "cluster-list": ["1.1.1.1"],
                "community": [[64512, 1]],
            },
            "announce": {
                "ipv4 unicast": {
                    "10.99.0.2": [
                        {"nlri": "10.65.2.0/26"},
                        {"nlri": "10.65.3.0/26", "path-information": "0.0.0.2"},
                    ]
                },
                "ipv4 flowspec": {"x": [{"nlri": "?"}]},
            },
            "withdraw": {"ipv4 unicast": [{"nlri": "10.65.9.0/26"}]},
        }
    )
    assert isinstance(said, PathsReceived)
    assert said.announced == (
        Announced(ip_network("10.65.2.0/26"), PEER),
        Announced(ip_network("10.65.3.0/26"), PEER, 2),
    )
    assert said.withdrawn == (Withdrawn(ip_network("10.65.9.0/26")),)
    attributes = said.attributes
    assert attributes.as_path == (64500, 64501, 1, 2, 3, 9)
    assert attributes.as_path_length == 3
    assert (attributes.origin, attributes.local_pref, attributes.med) == (Origin.INCOMPLETE, 200, 5)
    assert attributes.communities == ("64512:1",)


def test_bits_behind_the_length_mean_nothing() -> None:
    """RFC 4271 4.3; as ExaBGP 5.0 prints what a peer sent so. The prefix beside it stays."""
    said = update(
        {
            "announce": {
                "ipv4 unicast": {
                    "10.99.0.2": [{"nlri": "10.65.31.0/20"}, {"nlri": "10.66.0.0/16"}],
                }
            },
            "withdraw": {"ipv6 unicast": [{"nlri": "fd65::1/64"}]},
        }
    )
    found = [str(each.prefix) for each in said.announced]
    assert found == ["10.65.16.0/20", "10.66.0.0/16"]
    assert said.withdrawn == (Withdrawn(ip_network("fd65::/64")),)


def test_link_local_next_hop_never_wins() -> None:
    """RFC 2545: both next hops are listed; only the global one is of use."""
    for hops in (["fd99::2", "fe80::2"], ["fe80::2", "fd99::2"]):
        said = update(
            {"announce": {"ipv6 unicast": {hop: [{"nlri": "fd65::/64"}] for hop in hops}}}
        )
        assert said.announced == (Announced(ip_network("fd65::/64"), ip_address("fd99::2")),)


def test_treat_as_withdraw() -> None:
    said = update(
        {
            "attribute": {"error": "treat-as-withdraw"},
            "announce": {"ipv4 unicast": {"10.99.0.2": [{"nlri": "10.65.2.0/26"}]}},
        }
    )
    assert said.announced == ()
    assert said.withdrawn == (Withdrawn(ip_network("10.65.2.0/26")),)


def test_commands() -> None:
    """Routes with equal attributes share lines; lines stay short; order is fixed."""
    nets = [ip_network(f"10.{high}.{low}.0/24") for high in range(4) for low in range(256)]
    lines = list(protocol.announce([Route(net) for net in nets], [PEER]))
    assert len(lines) == 3
    assert all(len(each) < 16000 for each in lines)
    assert lines[0].startswith("neighbor 10.99.0.2 announce attributes next-hop self nlri 10.0.0")
    special = Route(nets[0], next_hop=PEER, local_pref=7, med=1, communities=("1:2", "3:4"))
    assert list(protocol.announce([special], [PEER, IPv4Address("10.0.0.9")])) == [
        "neighbor 10.0.0.9 , neighbor 10.99.0.2 announce attributes next-hop 10.99.0.2 "
        "local-preference 7 med 1 community [ 1:2 3:4 ] nlri 10.0.0.0/24"
    ]
    assert list(protocol.withdraw(nets[:2], [PEER])) == [
        "neighbor 10.99.0.2 withdraw attributes next-hop self nlri 10.0.0.0/24 10.0.1.0/24"
    ]
    assert list(protocol.announce([special], [])) == []
    assert protocol.end_of_rib(PEER, Family.IPV6) == "neighbor 10.99.0.2 announce eor ipv6 unicast"


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


@given(
    st.dictionaries(st.sampled_from(["attribute", "announce", "withdraw"]), json_values),
)
def test_hostile_updates_never_raise(body: dict[str, Any]) -> None:
    said = update(body)
    assert said is None or isinstance(said, (PathsReceived, Unreadable))
