"""A node as a BGP speaker, from its Node resource.

Tested in tests/bgp/test_peering.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Interface,
    ip_address,
    ip_interface,
)

from bgp.speaker.interface import IPAddress
from libcalico.model.resources.node import Node

DRAIN = "muslin/bgp-drain"
"""Annotation of a Node: `true` makes its routes the last choice everywhere (RFC 8326)."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a BGP speaker; a node without BGP addresses takes no part."""

    name: str
    labels: Mapping[str, str]
    ipv4: IPv4Interface | None = None
    ipv6: IPv6Interface | None = None
    asn: int | None = None
    cluster_id: str = ""
    created: str = ""
    draining: bool = False

    def address(self, version: int) -> IPAddress | None:
        """The address for sessions of an IP version, if the node has one."""
        interface = self.ipv4 if version == 4 else self.ipv6
        return interface.ip if interface is not None else None

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """All addresses of the node's sessions."""
        return tuple(each for version in (4, 6) if (each := self.address(version)) is not None)


def node_view(node: Node) -> NodeView:
    """The BGP part of a Node resource. Raises `ValueError` for an address that is none."""
    bgp = node.spec.bgp
    if bgp is None:
        return NodeView(node.metadata.name, dict(node.metadata.labels))
    ipv4 = ip_interface(bgp.ipv4Address) if bgp.ipv4Address else None
    ipv6 = ip_interface(bgp.ipv6Address) if bgp.ipv6Address else None
    if isinstance(ipv4, IPv6Interface) or isinstance(ipv6, IPv4Interface):
        raise ValueError("spec.bgp: ipv4Address and ipv6Address are of the other family")
    return NodeView(
        name=node.metadata.name,
        labels=dict(node.metadata.labels),
        ipv4=ipv4,
        ipv6=ipv6,
        asn=bgp.asNumber,
        cluster_id=bgp.routeReflectorClusterID,
        created=node.metadata.creationTimestamp,
        draining=node.metadata.annotations.get(DRAIN) == "true",
    )


def router_id(node: NodeView, setting: str = "") -> IPv4Address:
    """The BGP identifier: `setting` (an address, or `hash`), else the node's IPv4 address.

    `hash` (and a node with IPv6 only) takes the first four bytes of SHA-256 of the name, as
    Calico does; 32 less in the first byte if that is above 223. Raises `ValueError`.
    """
    if setting and setting != "hash":
        address = ip_address(setting)
        if not isinstance(address, IPv4Address):
            raise ValueError(f"CALICO_ROUTER_ID: {setting!r} is not valid: IPv4 address or 'hash'")
        return address
    if node.ipv4 is not None and not setting:
        return node.ipv4.ip
    digest = bytearray(hashlib.sha256(node.name.encode()).digest()[:4])
    if digest[0] > 223:
        digest[0] -= 32
    return IPv4Address(bytes(digest))
