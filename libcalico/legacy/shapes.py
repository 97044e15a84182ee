"""The documents of the first generation, field by field (libcalico-go's api v1).

The structs give the fields and their types alone: `libcalico.model.base.shape` refuses fields that
v1 did not have. JSON names with a dash or an underscore are renamed.
Tested in tests/libcalico/test_legacy.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct
from libcalico.model.base.numorstring import ASNumber
from libcalico.model.resources.rules import ICMPFields


class V1IPIP(Struct, frozen=True):
    """IP-in-IP of a pool; `mode` is always or cross-subnet."""

    enabled: bool = False
    mode: str = ""


class V1IPPoolMetadata(Struct, frozen=True):
    """A pool was known by its network."""

    cidr: str = ""


class V1IPPoolSpec(Struct, frozen=True, rename={"nat_outgoing": "nat-outgoing"}):
    """How a pool is used."""

    ipip: V1IPIP | None = None
    nat_outgoing: bool = False
    disabled: bool = False


class V1BGPPeerMetadata(Struct, frozen=True):
    """A peer was known by its scope (global or node), its node and its address."""

    scope: str = ""
    node: str = ""
    peerIP: str = ""


class V1BGPPeerSpec(Struct, frozen=True):
    """The peer's AS."""

    asNumber: ASNumber = 0


class V1NodeBGP(Struct, frozen=True):
    """A node's AS and addresses, with or without their networks."""

    asNumber: ASNumber | None = None
    ipv4Address: str = ""
    ipv6Address: str = ""


class V1OrchRef(Struct, frozen=True):
    """The node's name in an orchestrator."""

    nodeName: str = ""
    orchestrator: str = ""


class V1NodeSpec(Struct, frozen=True):
    """A node's routing settings, and its names in orchestrators."""

    bgp: V1NodeBGP | None = None
    orchRefs: list[V1OrchRef] = []


class V1Named(Struct, frozen=True):
    """Metadata of a kind that only had a name."""

    name: str = ""


class V1EntityRule(Struct, frozen=True):
    """One side of a connection; a tag is a label without a value in v3."""

    tag: str = ""
    net: str = ""
    nets: list[str] = []
    selector: str = ""
    ports: list[int | str] = []
    notTag: str = ""
    notNet: str = ""
    notNets: list[str] = []
    notSelector: str = ""
    notPorts: list[int | str] = []


class V1Rule(Struct, frozen=True):
    """allow, deny, log or pass the packets that match."""

    action: str = ""
    ipVersion: int | None = None
    protocol: int | str | None = None
    icmp: ICMPFields | None = None
    notProtocol: int | str | None = None
    notICMP: ICMPFields | None = None
    source: V1EntityRule = V1EntityRule()
    destination: V1EntityRule = V1EntityRule()


class V1PolicyMetadata(Struct, frozen=True):
    """Name and annotations."""

    name: str = ""
    annotations: dict[str, str] = {}


class V1PolicySpec(Struct, frozen=True):
    """A policy, always of the whole cluster."""

    order: int | float | None = None
    ingress: list[V1Rule] = []
    egress: list[V1Rule] = []
    selector: str = ""
    doNotTrack: bool = False
    preDNAT: bool = False
    types: list[str] = []


class V1ProfileMetadata(Struct, frozen=True):
    """Labels and tags that endpoints inherit."""

    name: str = ""
    tags: list[str] = []
    labels: dict[str, str] = {}


class V1ProfileSpec(Struct, frozen=True):
    """The rules of a profile."""

    ingress: list[V1Rule] = []
    egress: list[V1Rule] = []


class V1Port(Struct, frozen=True):
    """A named port."""

    name: str = ""
    protocol: int | str = ""
    port: int = 0


class V1HostEndpointMetadata(Struct, frozen=True):
    """A host endpoint was known by its node and a name."""

    name: str = ""
    node: str = ""
    labels: dict[str, str] = {}


class V1HostEndpointSpec(Struct, frozen=True):
    """An interface of a node."""

    interfaceName: str = ""
    expectedIPs: list[str] = []
    profiles: list[str] = []
    ports: list[V1Port] = []


class V1WorkloadEndpointMetadata(Struct, frozen=True):
    """A workload's endpoint was known by node, orchestrator, workload and a name."""

    name: str = ""
    workload: str = ""
    orchestrator: str = ""
    node: str = ""
    activeInstanceID: str = ""
    labels: dict[str, str] = {}


class V1IPNAT(Struct, frozen=True):
    """A 1:1 NAT."""

    internalIP: str = ""
    externalIP: str = ""


class V1WorkloadEndpointSpec(
    Struct, frozen=True, rename={"spoofed": "allow_spoofed_source_prefixes"}
):
    """A workload's interface."""

    ipNetworks: list[str] = []
    ipNATs: list[V1IPNAT] = []
    ipv4Gateway: str = ""
    ipv6Gateway: str = ""
    profiles: list[str] = []
    interfaceName: str = ""
    mac: str = ""
    ports: list[V1Port] = []
    spoofed: list[str] = []
