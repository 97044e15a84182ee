"""BGPConfiguration and BGPPeer (docs/reference/data-model.md#bgpconfiguration, #bgppeer). Durations
are Go's text: `1m30s`.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Duration
from libcalico.model.base.numorstring import ASNumber, as_number


class SecretKeyRef(Struct, frozen=True, kw_only=True):
    """A key of a Kubernetes Secret (core/v1 SecretKeySelector)."""

    name: str = ""
    key: str = always("")
    optional: bool | None = None


class BGPPassword(Struct, frozen=True):
    """The place of a BGP password, never the password itself."""

    secretKeyRef: SecretKeyRef | None = None


class ServiceIPBlock(Struct, frozen=True):
    """A block of service addresses that may be announced."""

    cidr: str = ""


class Community(Struct, frozen=True):
    """A name for a standard (`aa:nn`) or large (`aa:nn:mm`) community."""

    name: str = ""
    value: str = ""


class PrefixAdvertisement(Struct, frozen=True):
    """The communities that routes inside `cidr` are tagged with."""

    cidr: str = ""
    communities: list[str] = []


class BGPConfigurationSpec(Struct, frozen=True):
    """BGP of the cluster (`default`) or of one node (`node.<name>`)."""

    logSeverityScreen: str = ""
    nodeToNodeMeshEnabled: bool | None = None
    asNumber: ASNumber | None = None
    serviceLoadBalancerIPs: list[ServiceIPBlock] = []
    serviceExternalIPs: list[ServiceIPBlock] = []
    serviceClusterIPs: list[ServiceIPBlock] = []
    serviceLoadBalancerAggregation: str | None = None
    communities: list[Community] = []
    prefixAdvertisements: list[PrefixAdvertisement] = []
    listenPort: int = 0
    nodeMeshPassword: BGPPassword | None = None
    nodeMeshMaxRestartTime: Duration | None = None
    bindMode: str | None = None
    ignoredInterfaces: list[str] = []
    localWorkloadPeeringIPV4: str = ""
    localWorkloadPeeringIPV6: str = ""
    programClusterRoutes: str | None = None
    ipv4NormalRoutePriority: int | None = None
    ipv6NormalRoutePriority: int | None = None

    def __post_init__(self) -> None:
        if type(self.asNumber) is not int and self.asNumber is not None:
            force_setattr(self, "asNumber", as_number(self.asNumber))


class BGPConfiguration(APIObject, frozen=True, kw_only=True):
    """BGP settings."""

    kind: str = always("BGPConfiguration")
    spec: BGPConfigurationSpec = always(BGPConfigurationSpec())


class BGPPeerSpec(Struct, frozen=True):
    """The peer of some nodes: an address, or the nodes that a selector matches."""

    node: str = ""
    nodeSelector: str = ""
    peerIP: str = ""
    asNumber: ASNumber = 0
    localASNumber: ASNumber | None = None
    peerSelector: str = ""
    keepOriginalNextHop: bool = False
    nextHopMode: str | None = None
    password: BGPPassword | None = None
    sourceAddress: str = ""
    maxRestartTime: Duration | None = None
    keepaliveTime: Duration | None = None
    numAllowedLocalASNumbers: int | None = None
    ttlSecurity: int | None = None
    reachableBy: str = ""
    filters: list[str] = []
    localWorkloadSelector: str = ""
    reversePeering: str | None = None

    def __post_init__(self) -> None:
        if type(self.asNumber) is not int:
            force_setattr(self, "asNumber", as_number(self.asNumber))
        if type(self.localASNumber) is not int and self.localASNumber is not None:
            force_setattr(self, "localASNumber", as_number(self.localASNumber))


class BGPPeer(APIObject, frozen=True, kw_only=True):
    """A BGP peering."""

    kind: str = always("BGPPeer")
    spec: BGPPeerSpec = always(BGPPeerSpec())
