"""The objects of the Kubernetes API that we read, with the few fields that we read of them.

What is not named here is skipped while decoding, at hardly any cost. A list that Go wrote may
be null. Source: the API reference of Kubernetes 1.36, and of 1.20.
Tested in tests/apiserver/test_reflector.py and tests/apiserver/test_service_reader.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from libcalico.kubernetes.names import Name


class Meta(msgspec.Struct):
    """`ObjectMeta`, as far as we read it."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Object(msgspec.Struct, kw_only=True):
    """Any object: derive from it and name the fields that are read."""

    metadata: Meta = msgspec.field(default_factory=Meta)

    @property
    def name(self) -> Name:
        """Its namespace and name."""
        return Name(self.metadata.namespace, self.metadata.name)


T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of objects: its group and version (`v1`, `apps/v1`), plural, and type here.

    `before` are versions of the group with the same meaning, for servers that know no newer one.
    """

    group_version: str
    plural: str
    type: type[T]
    namespaced: bool = True
    before: tuple[str, ...] = ()

    def older(self) -> Resource[T] | None:
        """The same kind in the next version that a server may know; None after the last."""
        if not self.before:
            return None
        return replace(self, group_version=self.before[0], before=self.before[1:])

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of one object, or of all (of a namespace); `part` is such as `status`."""
        root = "/api" if "/" not in self.group_version else "/apis"
        words = [root, self.group_version]
        if namespace:
            words += ["namespaces", namespace]
        return "/".join([*words, self.plural, *filter(None, (name, part))])


class Secret(Object, kw_only=True):
    """`v1` Secret; its values come as bytes (base64 in JSON)."""

    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class ConfigMap(Object, kw_only=True):
    """`v1` ConfigMap."""

    data: dict[str, str] | None = None


class Address(msgspec.Struct):
    """An address of a node: `type` is InternalIP, ExternalIP, Hostname, ..."""

    type: str = ""
    address: str = ""


class NodeSpec(msgspec.Struct):
    """The desired state of a node."""

    podCIDRs: list[str] | None = None
    unschedulable: bool = False


class NodeStatus(msgspec.Struct):
    """The actual state of a node."""

    addresses: list[Address] | None = None


class Node(Object, kw_only=True):
    """`v1` Node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    def addresses(self, kind: str = "InternalIP") -> list[str]:
        """Its addresses of one type, in their order."""
        return [one.address for one in self.status.addresses or () if one.type == kind]


class LeaseSpec(msgspec.Struct, omit_defaults=True):
    """The holder of a lease; times are RFC 3339 with microseconds."""

    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


class Lease(Object, kw_only=True):
    """`coordination.k8s.io/v1` Lease."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ContainerPort(msgspec.Struct):
    """A port that a container lists."""

    name: str = ""
    containerPort: int = 0
    hostPort: int = 0
    hostIP: str = ""
    protocol: str = "TCP"


class Container(msgspec.Struct):
    """A container of a pod."""

    ports: list[ContainerPort] | None = None


class PodSpec(msgspec.Struct):
    """The desired state of a pod."""

    nodeName: str = ""
    serviceAccountName: str = ""
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None


class Pod(Object, kw_only=True):
    """`v1` Pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Namespace(Object, kw_only=True):
    """`v1` Namespace."""


SECRETS = Resource("v1", "secrets", Secret)
CONFIG_MAPS = Resource("v1", "configmaps", ConfigMap)
NODES = Resource("v1", "nodes", Node, namespaced=False)
PODS = Resource("v1", "pods", Pod)
LEASES = Resource("coordination.k8s.io/v1", "leases", Lease)
NAMESPACES = Resource("v1", "namespaces", Namespace, namespaced=False)
