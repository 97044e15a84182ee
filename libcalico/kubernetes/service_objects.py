"""Services and EndpointSlices of the Kubernetes API, with the few fields that we read of them.

Source: the API reference of Kubernetes 1.36, and of 1.20.
Tested in tests/apiserver/test_service_reader.py.
"""

from __future__ import annotations

import msgspec

from libcalico.kubernetes.objects import Object, Resource

SERVICE_NAME, HOSTNAME = "kubernetes.io/service-name", "kubernetes.io/hostname"


class Conditions(msgspec.Struct):
    """The conditions of an endpoint; a missing one counts as ready (API reference)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(msgspec.Struct):
    """One endpoint behind a service."""

    addresses: list[str] | None = None
    conditions: Conditions = msgspec.field(default_factory=Conditions)
    nodeName: str | None = None
    topology: dict[str, str] | None = None

    @property
    def node(self) -> str:
        """The node it runs on, empty when that is unknown; v1beta1 has it among the topology."""
        return self.nodeName or (self.topology or {}).get(HOSTNAME, "")

    @property
    def ready(self) -> bool:
        """Whether traffic may be sent to it."""
        return self.conditions.ready is not False


class EndpointPort(msgspec.Struct):
    """A port of all endpoints of a slice; without number it is every port."""

    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class EndpointSlice(Object, kw_only=True):
    """`discovery.k8s.io/v1` EndpointSlice; `addressType` is IPv4, IPv6 or FQDN.

    Kubernetes before 1.21 has it as v1beta1.
    """

    addressType: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None

    @property
    def service(self) -> str:
        """The service it belongs to, in its namespace; empty for none."""
        return (self.metadata.labels or {}).get(SERVICE_NAME, "")


class ServicePort(msgspec.Struct):
    """A port of a service."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    nodePort: int = 0


class ServiceSpec(msgspec.Struct):
    """The desired state of a service."""

    type: str = "ClusterIP"
    clusterIP: str = ""
    clusterIPs: list[str] | None = None
    externalIPs: list[str] | None = None
    loadBalancerIP: str = ""
    externalTrafficPolicy: str = ""
    internalTrafficPolicy: str | None = None
    ports: list[ServicePort] | None = None


class Ingress(msgspec.Struct):
    """An address at which a load balancer takes traffic."""

    ip: str = ""
    hostname: str = ""


class LoadBalancer(msgspec.Struct):
    """The addresses that a load balancer gave the service."""

    ingress: list[Ingress] | None = None


class ServiceStatus(msgspec.Struct):
    """The actual state of a service."""

    loadBalancer: LoadBalancer = msgspec.field(default_factory=LoadBalancer)


class Service(Object, kw_only=True):
    """`v1` Service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


ENDPOINT_SLICES = Resource(
    "discovery.k8s.io/v1", "endpointslices", EndpointSlice, before=("discovery.k8s.io/v1beta1",)
)

SERVICES = Resource("v1", "services", Service)
