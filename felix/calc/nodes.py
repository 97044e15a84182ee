"""Nodes: their addresses and the ends of their tunnels, as the Node resource tells them.

Tested in tests/felix/calc/test_nodes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)

from libcalico.model import Node
from libcalico.names import vxlan_mac

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Vtep:
    """One end of VXLAN tunnels: the node's address, the tunnel's own and its MAC."""

    node: IPAddress
    address: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What felix keeps of a node.

    `addresses`: one a family. `networks`: of the families that BGP has, the network that the
    Node names (a host's network where it names no prefix): what counts as one subnet. `macs`: of
    its VXLAN devices, IPv4's and IPv6's.
    """

    addresses: frozenset[IPAddress] = frozenset()
    networks: tuple[IPNetwork, ...] = ()
    ipip: IPAddress | None = None
    vteps: tuple[Vtep, ...] = ()
    macs: tuple[str, str] = ("", "")

    def address(self, version: int) -> IPAddress | None:
        """The node's address of a family."""
        return next((a for a in self.addresses if a.version == version), None)

    def vtep(self, version: int) -> Vtep | None:
        """The node's end of VXLAN of a family, when all of it is known."""
        return next((v for v in self.vteps if v.node.version == version), None)

    def mac(self, version: int) -> str:
        """The MAC of the node's VXLAN device of a family."""
        return self.macs[version == 6]

    def neighbours(self, address: IPAddress) -> bool:
        """Whether an address lies in this node's network."""
        return any(address in network for network in self.networks)


UNKNOWN = NodeFacts()
"""Of a node of which the datastore has no Node."""


def facts_of(name: str, value: Node) -> NodeFacts:
    """The facts of a stored node. What cannot be read in it counts as absent.

    Addresses: BGP's, else InternalIP, else ExternalIP
    (docs/reference/dataplane.md#route-calculation).
    """
    spec = value.spec
    by_version: dict[int, IPAddress] = {}
    networks = []
    if spec.bgp is not None:
        for text in (spec.bgp.ipv4Address, spec.bgp.ipv6Address):
            interface = _interface(text)
            if interface is not None and by_version.setdefault(interface.version, interface.ip):
                networks.append(interface.network)
    for kind in ("InternalIP", "ExternalIP"):
        for address in spec.addresses:
            interface = _interface(address.address) if address.type == kind else None
            if interface is not None:
                by_version.setdefault(interface.version, interface.ip)
    macs = (
        (spec.vxlanTunnelMACAddr or vxlan_mac(name)).lower(),
        (spec.vxlanTunnelMACAddrV6 or vxlan_mac(f"{name}-v6")).lower(),
    )
    vteps = []
    for version, text, mac in zip(
        (4, 6), (spec.ipv4VXLANTunnelAddr, spec.ipv6VXLANTunnelAddr), macs, strict=True
    ):
        own, tunnel = by_version.get(version), _address(text, version)
        if own is not None and tunnel is not None:
            vteps.append(Vtep(own, tunnel, mac))
    ipip = _address(spec.bgp.ipv4IPIPTunnelAddr, 4) if spec.bgp is not None else None
    return NodeFacts(frozenset(by_version.values()), tuple(networks), ipip, tuple(vteps), macs)


def tunnel_addresses(facts: NodeFacts | None) -> Iterator[IPAddress]:
    """The addresses of a node's tunnels; none without a Node."""
    if facts is not None:
        yield from (end.address for end in facts.vteps)
        if facts.ipip is not None:
            yield facts.ipip


def _interface(text: str | None) -> IPv4Interface | IPv6Interface | None:
    try:
        return ip_interface(text) if text else None
    except ValueError:
        return None


def _address(text: str | None, version: int) -> IPAddress | None:
    try:
        address = ip_address(text) if text else None
    except ValueError:
        return None
    return address if address is not None and address.version == version else None
