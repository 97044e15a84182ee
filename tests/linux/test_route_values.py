"""ROUTE-3: routes are equal exactly if their fields are, whoever made them (hypothesis)."""

from __future__ import annotations

import sys
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from linux import routes
from linux.netlink import wire as m
from linux.prefixes import IPNetwork
from linux.routes import NextHop, Route

HOPS = st.lists(
    st.builds(
        NextHop,
        st.sampled_from([None, ip_address("10.0.0.1"), ip_address("10.0.0.2")]),
        st.integers(1, 2),
        st.booleans(),
        st.integers(1, 2),
    ),
    max_size=2,
).map(tuple)
FIELDS = st.fixed_dictionaries(
    {
        "dst": st.sampled_from(
            [ip_network(n) for n in ("10.1.0.0/16", "10.1.0.0/24", "fd00::/64", "fd00::/65")]
        ),
        "next_hops": HOPS,
        "type": st.sampled_from(["unicast", "blackhole"]),
        "table": st.sampled_from([254, 100, 1000]),
        "protocol": st.sampled_from([3, 109]),
        "metric": st.sampled_from([0, 7, 1024]),
        "mtu": st.sampled_from([0, 1400]),
    }
)


def plain(fields: dict[str, Any]) -> object:
    """What the kernel would hold, restated."""
    six = fields["dst"].version == 6
    hops = [] if fields["type"] == "blackhole" else list(fields["next_hops"])
    if len(hops) == 1:
        hops = [NextHop(hops[0].gateway, hops[0].oif, hops[0].onlink)]
    metric = (fields["metric"] or 1024) if six else fields["metric"]
    return (
        fields["dst"], sorted(map(repr, hops)), fields["type"], fields["table"],
        fields["protocol"], metric, fields["mtu"],
    )  # fmt: skip


@given(FIELDS, FIELDS)
def test_equal_exactly_if_the_fields_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second, again = Route(**one), Route(**other), Route(**one)
    assert (first == second) == (plain(one) == plain(other))
    assert first == again
    assert hash(first) == hash(again)
    assert first.shape is again.shape
    assert (first.key == second.key) == (
        (one["dst"], one["table"], first.metric) == (other["dst"], other["table"], second.metric)
    )


def told(dst: IPNetwork, gateway: str, oif: int, flags: int = 0) -> bytes:
    """A route message's body as IPv4 of the kernel writes it."""
    head = bytes((2, dst.prefixlen, 0, 0, 254, 109, 0, 1)) + flags.to_bytes(4, sys.byteorder)
    return (
        head
        + m.u32(15, 254)
        + (m.attribute(1, dst.network_address.packed) if dst.prefixlen else b"")
        + m.attribute(5, ip_address(gateway).packed)
        + m.u32(4, oif)
    )


BODIES = st.builds(
    told,
    st.sampled_from([IPv4Network(n) for n in ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16")]),
    st.sampled_from(["10.9.0.1", "10.9.0.2"]),
    st.integers(1, 2),
    st.sampled_from([0, 0x4, 0x200]),
)


@given(st.lists(BODIES))
def test_what_was_seen_before_is_read_alike(bodies: list[bytes]) -> None:
    known: routes.Shapes = {}
    for body in bodies:
        assert routes.decode(body, known) == routes.decode(body)
