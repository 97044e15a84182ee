"""What is read of a Node: addresses, its network, the ends of its tunnels."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from felix.calc.nodes import NodeFacts, Vtep, facts_of
from libcalico.model import Metadata, Node, NodeAddress, NodeBGPSpec, NodeSpec
from libcalico.names import vxlan_mac


def node(**spec: object) -> Node:
    return Node(metadata=Metadata(name="n"), spec=NodeSpec(**spec))  # type: ignore[arg-type]


def test_bgps_address_comes_before_the_others() -> None:
    found = facts_of(
        "n",
        node(
            bgp=NodeBGPSpec(ipv4Address="10.0.0.5/24"),
            addresses=[
                NodeAddress("10.9.9.9", "InternalIP"),
                NodeAddress("fd00::5", "ExternalIP"),
            ],
        ),
    )
    assert found.address(4) == ip_address("10.0.0.5")
    assert found.address(6) == ip_address("fd00::5")
    assert found.networks == (ip_network("10.0.0.0/24"),)
    assert found.neighbours(ip_address("10.0.0.77"))
    assert not found.neighbours(ip_address("10.0.1.77"))
    assert not found.neighbours(ip_address("fd00::77"))


@pytest.mark.promise("M-148")
def test_an_address_without_a_prefix_is_alone_in_its_network() -> None:
    found = facts_of("n", node(bgp=NodeBGPSpec(ipv4Address="10.0.0.5")))
    assert not found.neighbours(ip_address("10.0.0.6"))


def test_an_end_of_vxlan_needs_both_addresses() -> None:
    bgp = NodeBGPSpec(ipv4Address="10.0.0.5/24", ipv6Address="fd00::5/64")
    assert facts_of("n", node(bgp=bgp)).vteps == ()
    assert facts_of("n", node(ipv4VXLANTunnelAddr="10.65.0.1")).vteps == ()
    found = facts_of(
        "n", node(bgp=bgp, ipv4VXLANTunnelAddr="10.65.0.1", ipv6VXLANTunnelAddr="fd65::1")
    )
    assert found.vtep(4) == Vtep(ip_address("10.0.0.5"), ip_address("10.65.0.1"), vxlan_mac("n"))
    six = Vtep(ip_address("fd00::5"), ip_address("fd65::1"), vxlan_mac("n-v6"))
    assert found.vtep(6) == six


def test_a_stored_mac_counts() -> None:
    bgp = NodeBGPSpec(ipv4Address="10.0.0.5/24", ipv4IPIPTunnelAddr="10.65.0.9")
    mac = "66:AB:00:00:00:01"
    found = facts_of("n", node(bgp=bgp, ipv4VXLANTunnelAddr="10.65.0.1", vxlanTunnelMACAddr=mac))
    end = found.vtep(4)
    assert end is not None
    assert end.mac == mac.lower()
    assert found.ipip == ip_address("10.65.0.9")


def test_what_cannot_be_read_is_absent() -> None:
    bgp = NodeBGPSpec(ipv4Address="nonsense", ipv4IPIPTunnelAddr="fd65::1")
    found = facts_of("n", node(bgp=bgp, ipv4VXLANTunnelAddr="x"))
    assert found == NodeFacts(macs=found.macs)
