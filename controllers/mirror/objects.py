"""The objects of Kubernetes that controllers read, as far as they read them.

Tested in tests/controllers/test_mirrors.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from libcalico.conversion.cluster_policy import API_VERSION, KIND
from libcalico.kubernetes.objects import Node, Object, Resource
from libcalico.kubernetes.service_objects import ServiceStatus
from libcalico.model.base.meta import Condition


class NetworkPolicy(Object, kw_only=True):
    """`networking.k8s.io/v1` NetworkPolicy; what its spec says is read by the conversion."""

    spec: dict[str, Any] | None = None


class NamespaceStatus(msgspec.Struct):
    """`phase` is Active or Terminating."""

    phase: str = ""


class Namespace(Object, kw_only=True):
    """`v1` Namespace."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class ServiceAccount(Object, kw_only=True):
    """`v1` ServiceAccount."""


class PodSpec(msgspec.Struct):
    """Where a pod runs, and as whom."""

    nodeName: str = ""
    serviceAccountName: str = ""
    hostNetwork: bool = False


class PodIP(msgspec.Struct):
    """An address of a pod."""

    ip: str = ""


class PodStatus(msgspec.Struct):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    podIP: str = ""
    podIPs: list[PodIP] | None = None


class Pod(Object, kw_only=True):
    """`v1` Pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class ServiceSpec(msgspec.Struct):
    """The fields of a service that its load-balancer addresses depend on."""

    type: str = "ClusterIP"
    loadBalancerClass: str | None = None
    loadBalancerIP: str = ""
    ipFamilies: list[str] | None = None


class Service(Object, kw_only=True):
    """`v1` Service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class PolicyStatus(msgspec.Struct):
    """The reports of implementations."""

    conditions: list[Condition] | None = None


class ClusterNetworkPolicy(Object, kw_only=True):
    """`policy.networking.k8s.io/v1alpha2`; what its spec says is read by the conversion."""

    spec: dict[str, Any] | None = None
    status: PolicyStatus = msgspec.field(default_factory=PolicyStatus)

    @property
    def document(self) -> dict[str, object]:
        """The parts that the conversion reads."""
        metadata = {"name": self.metadata.name}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec}


NETWORK_POLICIES = Resource("networking.k8s.io/v1", "networkpolicies", NetworkPolicy)
NAMESPACES = Resource("v1", "namespaces", Namespace, namespaced=False)
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts", ServiceAccount)
PODS = Resource("v1", "pods", Pod)
NODES = Resource("v1", "nodes", Node, namespaced=False)
SERVICES = Resource("v1", "services", Service)
CLUSTER_POLICIES = Resource(
    API_VERSION, "clusternetworkpolicies", ClusterNetworkPolicy, namespaced=False
)
