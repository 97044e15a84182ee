"""Which way to another node: every mode, near and far, with and without what it takes."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from felix.calc.nodes import NodeFacts, Vtep
from felix.calc.pools import Pool
from felix.calc.tunnels import Kind, RemoteHop, TunnelSupport, way

POOL, POOL6 = ip_network("10.65.0.0/16"), ip_network("fd65::/48")
BLOCK, BLOCK6 = ip_network("10.65.1.0/26"), ip_network("fd65::40/122")


def facts(number: int, *, rack: int = 1, vtep: bool = True) -> NodeFacts:
    four, six = ip_address(f"10.99.{rack}.{number}"), ip_address(f"fd99:0:0:{rack}::{number}")
    ends = (
        Vtep(four, ip_address(f"10.65.{number}.0"), f"66:00:00:00:00:0{number}"),
        Vtep(six, ip_address(f"fd65::{number}:0"), f"66:00:00:00:06:0{number}"),
    )
    networks = (ip_network(f"10.99.{rack}.0/24"), ip_network(f"fd99:0:0:{rack}::/64"))
    ipip = ip_address(f"10.65.{number}.1") if vtep else None
    return NodeFacts(frozenset((four, six)), networks, ipip, ends if vtep else ())


ME, NEAR, FAR = facts(1), facts(2), facts(3, rack=2)
STRAIGHT = RemoteHop(Kind.STRAIGHT, ip_address("10.99.1.2"))
IPIP_NEAR, IPIP_FAR = (RemoteHop(Kind.IPIP, ip_address(f"10.99.{n}")) for n in ("1.2", "2.3"))
VXLAN_NEAR, VXLAN_FAR = (RemoteHop(Kind.VXLAN, ip_address(f"10.65.{n}.0")) for n in (2, 3))


@pytest.mark.parametrize(
    ("ipip", "vxlan", "near", "far"),
    [
        ("Never", "Never", "", ""),
        ("Always", "Never", IPIP_NEAR, IPIP_FAR),
        ("CrossSubnet", "Never", STRAIGHT, IPIP_FAR),
        ("Never", "Always", VXLAN_NEAR, VXLAN_FAR),
        ("Never", "CrossSubnet", STRAIGHT, VXLAN_FAR),
    ],
)
@pytest.mark.promise("M-143", "M-147", "F-62")
def test_the_mode_decides(
    ipip: str, vxlan: str, near: RemoteHop | str, far: RemoteHop | str
) -> None:
    pool = Pool(POOL, False, ipip, vxlan)
    assert way(BLOCK, pool, ME, NEAR, TunnelSupport()) == near
    assert way(BLOCK, pool, ME, FAR, TunnelSupport()) == far


@pytest.mark.parametrize("mode", ["Always", "CrossSubnet"])
def test_ipv6_goes_in_vxlan_as_ipv4_does(mode: str) -> None:
    pool = Pool(POOL6, False, vxlan_mode=mode)
    assert way(BLOCK6, pool, ME, FAR, TunnelSupport()) == RemoteHop(
        Kind.VXLAN, ip_address("fd65::3:0")
    )
    straight = RemoteHop(Kind.STRAIGHT, ip_address("fd99:0:0:1::2"))
    inside = RemoteHop(Kind.VXLAN, ip_address("fd65::2:0"))
    assert way(BLOCK6, pool, ME, NEAR, TunnelSupport()) == (
        inside if mode == "Always" else straight
    )


def test_the_far_end_itself_hangs_on_the_device() -> None:
    pool = Pool(POOL, False, vxlan_mode="Always")
    assert way(ip_network("10.65.3.0/32"), pool, ME, FAR, TunnelSupport()) == RemoteHop(
        Kind.VXLAN, None
    )
    assert way(ip_network("10.65.3.1/32"), pool, ME, FAR, TunnelSupport()) == VXLAN_FAR


def test_no_way_into_a_tunnel_that_has_one_end_only() -> None:
    pool = Pool(POOL, False, vxlan_mode="Always")
    assert "no VXLAN tunnel address" in str(
        way(BLOCK, pool, ME, facts(3, vtep=False), TunnelSupport())
    )
    assert way(BLOCK, pool, facts(1, vtep=False), FAR, TunnelSupport()) == ""
    assert way(BLOCK, pool, ME, FAR, TunnelSupport(vxlan=frozenset({6}))) == ""
    assert way(BLOCK, Pool(POOL, False, "Always"), ME, FAR, TunnelSupport(ipip=False)) == ""


def test_who_has_not_said_that_it_unwraps_ipip_gets_what_bgp_tells() -> None:
    pool, silent = Pool(POOL, False, "Always"), facts(3, rack=2, vtep=False)
    assert way(BLOCK, pool, ME, silent, TunnelSupport()) == ""
    assert way(BLOCK, pool, ME, silent, TunnelSupport(told=False)) == IPIP_FAR, "no speaker tells"


def test_crosssubnet_spares_neighbours_the_tunnel_that_the_kernel_lacks() -> None:
    pool = Pool(POOL, False, "CrossSubnet")
    assert way(BLOCK, pool, ME, NEAR, TunnelSupport(ipip=False)) == STRAIGHT


@pytest.mark.promise("F-58")
@pytest.mark.parametrize(
    ("pool", "means"),
    [
        (Pool(POOL, False), TunnelSupport(told=False)),
        (Pool(POOL, False, exported=False), TunnelSupport()),
    ],
)
def test_where_nobody_tells_neighbours_are_reached_straight(
    pool: Pool, means: TunnelSupport
) -> None:
    assert way(BLOCK, pool, ME, NEAR, means) == STRAIGHT
    assert "outside this node's IPv4 network" in str(way(BLOCK, pool, ME, FAR, means))


def test_a_node_without_an_address_of_the_family_is_named() -> None:
    pool = Pool(POOL, False, vxlan_mode="Always")
    assert way(BLOCK, pool, ME, NodeFacts(), TunnelSupport()) == "it has no IPv4 address"
