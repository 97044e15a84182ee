"""The kinds of tunnels whose addresses come from pools: where a Node names them, and how they are
held (docs/reference/data-model.md#attributes-and-handles).
Tested in tests/ipam/test_tunnels.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from libcalico.model import Node
from libcalico.model.resources.node import NodeBGPSpec, NodeSpec, NodeWireguardSpec


@dataclass(frozen=True, slots=True)
class Tunnel:
    """One kind of tunnel: its attribute, the beginning of its handle, its field of the Node."""

    attribute: str
    handle_prefix: str
    family: int
    part: str
    field: str

    def handle_id(self, node: str) -> str:
        """The handle under which the node holds the address."""
        return f"{self.handle_prefix}{node}"

    def attributes(self, node: str) -> dict[str, str]:
        """The attributes of the allocation."""
        return {"node": node, "type": self.attribute}

    def recorded(self, node: Node) -> str:
        """The address recorded in the Node; empty where there is none."""
        holder = getattr(node.spec, self.part) if self.part else node.spec
        return getattr(holder, self.field, "") or "" if holder is not None else ""

    def written(self, node: Node, address: str) -> Node:
        """The Node with this address in the tunnel's field."""
        spec: NodeSpec = node.spec
        if self.part:
            empty = NodeBGPSpec() if self.part == "bgp" else NodeWireguardSpec()
            holder = getattr(spec, self.part) or empty
            changed: NodeBGPSpec | NodeWireguardSpec | None = msgspec.structs.replace(
                holder, **{self.field: address}
            )
            if changed == NodeWireguardSpec():
                changed = None
            spec = msgspec.structs.replace(spec, **{self.part: changed})
        else:
            spec = msgspec.structs.replace(spec, **{self.field: address})
        return msgspec.structs.replace(node, spec=spec)


WIREGUARD = Tunnel(
    "wireguardTunnelAddress", "wireguard-tunnel-addr-", 4, "wireguard", "interfaceIPv4Address"
)
WIREGUARD_V6 = Tunnel(
    "wireguardV6TunnelAddress", "wireguard-v6-tunnel-addr-", 6, "wireguard", "interfaceIPv6Address"
)
IPIP = Tunnel("ipipTunnelAddress", "ipip-tunnel-addr-", 4, "bgp", "ipv4IPIPTunnelAddr")
VXLAN = Tunnel("vxlanTunnelAddress", "vxlan-tunnel-addr-", 4, "", "ipv4VXLANTunnelAddr")
VXLAN_V6 = Tunnel("vxlanV6TunnelAddress", "vxlan-v6-tunnel-addr-", 6, "", "ipv6VXLANTunnelAddr")
TUNNELS = (WIREGUARD, WIREGUARD_V6, IPIP, VXLAN, VXLAN_V6)
