"""The Node resource (docs/reference/data-model.md#node). Tested in
tests/libcalico/test_golden.py."""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject
from libcalico.model.base.numorstring import ASNumber, as_number


class NodeBGPSpec(Struct, frozen=True):
    """BGP of one node. Addresses carry their network: `10.0.0.5/24`, host bits kept."""

    asNumber: ASNumber | None = None
    ipv4Address: str = ""
    ipv6Address: str = ""
    ipv4IPIPTunnelAddr: str = ""
    routeReflectorClusterID: str = ""

    def __post_init__(self) -> None:
        if type(self.asNumber) is not int and self.asNumber is not None:
            force_setattr(self, "asNumber", as_number(self.asNumber))


class OrchRef(Struct, frozen=True):
    """The node's name in an orchestrator (`k8s`)."""

    nodeName: str = ""
    orchestrator: str = always("")


class NodeWireguardSpec(Struct, frozen=True):
    """Addresses of the WireGuard interfaces."""

    interfaceIPv4Address: str = ""
    interfaceIPv6Address: str = ""


class NodeAddress(Struct, frozen=True):
    """One address of the node; `type` is CalicoNodeIP, InternalIP or ExternalIP."""

    address: str = always("")
    type: str = ""


class NodeInterface(Struct, frozen=True):
    """A host interface and its addresses, without masks."""

    name: str = ""
    addresses: list[str] = []


class NodeSpec(Struct, frozen=True):
    """Addresses and routing settings of a node."""

    bgp: NodeBGPSpec | None = None
    ipv4VXLANTunnelAddr: str = ""
    vxlanTunnelMACAddr: str = ""
    ipv6VXLANTunnelAddr: str = ""
    vxlanTunnelMACAddrV6: str = ""
    orchRefs: list[OrchRef] = []
    wireguard: NodeWireguardSpec | None = None
    addresses: list[NodeAddress] = []
    interfaces: list[NodeInterface] = []


class NodeStatus(Struct, frozen=True):
    """The report of a node about itself."""

    wireguardPublicKey: str = ""
    wireguardPublicKeyV6: str = ""
    podCIDRs: list[str] = []


class Node(APIObject, frozen=True, kw_only=True):
    """A node of the cluster."""

    kind: str = always("Node")
    spec: NodeSpec = always(NodeSpec())
    status: NodeStatus = always(NodeStatus())
