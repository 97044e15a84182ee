"""PFX-1, PFX-2: packed prefixes mean what `ipaddress` says, hypothesis."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.prefixes import (
    IPNetwork,
    Networks,
    host_bytes,
    is_host,
    pack,
    pack_host,
    parse,
    text,
    unpack,
    version,
)

NETWORKS: st.SearchStrategy[IPNetwork] = st.one_of(
    st.builds(
        lambda n, length: IPv4Network((n, length), strict=False),
        st.integers(0, 2**32 - 1),
        st.integers(0, 32),
    ),
    st.builds(
        lambda n, length: IPv6Network((n, length), strict=False),
        st.integers(0, 2**128 - 1),
        st.integers(0, 128),
    ),
)
FEW: st.SearchStrategy[IPNetwork] = st.builds(
    lambda n, length: IPv4Network((n << 28, length), strict=False),
    st.integers(0, 15),
    st.integers(0, 6),
)


@given(NETWORKS)
def test_a_network_is_its_bytes(network: IPNetwork) -> None:
    prefix = pack(network)
    assert unpack(prefix) == network
    assert parse(str(network)) == prefix
    assert text(prefix) == str(network)
    assert version(prefix) == network.version
    assert is_host(prefix) == (network.prefixlen == network.max_prefixlen)
    assert parse(str(network.network_address)) == pack_host(network.network_address)
    assert host_bytes(str(network.network_address)) == network.network_address.packed


SPELLED = st.one_of(
    st.text("0123456789./:af%x+ ", max_size=24),
    st.builds(lambda n, tail: f"{n.network_address + 1}/{tail}", FEW, st.integers(-1, 140)),
    st.sampled_from(
        ["01.2.3.0/24", "1.2.3.0/024", "1.2.3.0/255.255.255.0", "1.2.3/24", "::ffff:1.2.3.4/128",
         "::1%eth0/128", "fe80::%1/64", "/24", "\0/24", "::1/128/3"]
    ),
)  # fmt: skip


@given(SPELLED)
def test_whatever_is_spelled_is_taken_or_refused_alike(spelled: str) -> None:
    try:
        expected: object = pack(ip_network(spelled))
    except ValueError as error:
        expected = str(error)
    try:
        found: object = parse(spelled)
    except ValueError as error:
        found = str(error)
    assert found == expected


@given(FEW, st.frozensets(FEW, max_size=6))
def test_what_lies_inside(network: IPNetwork, others: frozenset[IPNetwork]) -> None:
    networks = Networks(map(pack, others))
    assert bool(networks) == bool(others)
    inside = any(network.subnet_of(other) for other in others)  # type: ignore[arg-type]
    assert networks.cover(pack(network)) == inside
    address = network.network_address
    assert networks.hold(address.packed) == any(address in other for other in others)


@pytest.mark.parametrize("spelled", ["::/0", "fd00::/8"])
def test_families_never_meet(spelled: str) -> None:
    networks = Networks([parse(spelled)])
    assert not networks.cover(parse("0.0.0.0/32"))
    assert not networks.hold(ip_address("10.0.0.1").packed)


@pytest.mark.parametrize("text", ["", "10.65.0.0/26", "web", "::g"])
def test_what_is_no_address_has_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match=text or "''"):
        host_bytes(text)
