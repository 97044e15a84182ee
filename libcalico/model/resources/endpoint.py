"""The WorkloadEndpoint resource (docs/reference/data-model.md#workloadendpoint). Its name:
libcalico/names.py.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class IPNAT(Struct, frozen=True, kw_only=True):
    """A 1:1 NAT: traffic to `externalIP` goes to `internalIP`."""

    internalIP: str = always("")
    externalIP: str = always("")


class WorkloadEndpointPort(Struct, frozen=True, kw_only=True):
    """A named or mapped port. `hostPort` 0 means not mapped."""

    name: str = always("")
    protocol: int | str = always("TCP")
    port: int = always(0)
    hostPort: int = always(0)
    hostIP: str = always("")

    def __post_init__(self) -> None:
        if isinstance(self.protocol, str) and self.protocol.isdigit():
            force_setattr(self, "protocol", numorstring.protocol(self.protocol))


class QoSControls(Struct, frozen=True):
    """Limits: bandwidth in bits/s, bursts in bits, minburst in bytes, packets/s, connections."""

    ingressBandwidth: int = 0
    ingressBurst: int = 0
    ingressPeakrate: int = 0
    ingressMinburst: int = 0
    egressBandwidth: int = 0
    egressBurst: int = 0
    egressPeakrate: int = 0
    egressMinburst: int = 0
    ingressPacketRate: int = 0
    ingressPacketBurst: int = 0
    egressPacketRate: int = 0
    egressPacketBurst: int = 0
    ingressMaxConnections: int = 0
    egressMaxConnections: int = 0
    dscp: int | str | None = None


class WorkloadEndpointSpec(Struct, frozen=True):
    """One interface of a workload. `ipNetworks` are /32 and /128."""

    orchestrator: str = ""
    workload: str = ""
    node: str = ""
    containerID: str = ""
    pod: str = ""
    endpoint: str = ""
    serviceAccountName: str = ""
    ipNetworks: list[str] = []
    ipNATs: list[IPNAT] = []
    ipv4Gateway: str = ""
    ipv6Gateway: str = ""
    profiles: list[str] = []
    interfaceName: str = ""
    mac: str = ""
    ports: list[WorkloadEndpointPort] = []
    allowSpoofedSourcePrefixes: list[str] = []
    qosControls: QoSControls | None = None


class WorkloadEndpoint(APIObject, frozen=True, kw_only=True):
    """A workload's interface, on a node."""

    kind: str = always("WorkloadEndpoint")
    spec: WorkloadEndpointSpec = always(WorkloadEndpointSpec())
