"""Keys of the objects of the data model, the same for every datastore.

A `ResourceKey` names a `projectcalico.org/v3` resource; the IPAM keys name the plain
objects of block IPAM (data model of Calico, "IPAM keys"). Networks are `ipaddress`
objects, never text. Each datastore spells the keys in its own way.
Tested in tests/libcalico/test_etcd_keys.py.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

if TYPE_CHECKING:
    # With a default (PEP 696), which Python has from 3.13 on: a plain `ResourceKey` is of any kind.
    from typing_extensions import TypeVar

    T = TypeVar("T")
    V = TypeVar("V", covariant=True, default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    V = TypeVar("V", covariant=True)

IPNetwork = IPv4Network | IPv6Network


class ResourceKey(NamedTuple, Generic[V]):
    """One v3 resource: kind as written in YAML (`IPPool`), name, namespace or empty.

    A `ResourceKey[IPPool]` names an IPPool: what a datastore has there is an `Entry[IPPool]`.
    """

    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def to(cls, kind: type[T], name: str, namespace: str = "") -> ResourceKey[T]:
        """The key of a resource of a type that is called as its kind.

        `ResourceKey.to(IPPool, "default")`; not `BlockAffinityResource`, whose kind is
        `BlockAffinity`.
        """
        return ResourceKey(kind.__name__, name, namespace)

    def __str__(self) -> str:
        return f"{self.kind}({self.namespace + '/' if self.namespace else ''}{self.name})"


class BlockKey(NamedTuple):
    """One IPAM block, by its CIDR."""

    cidr: IPNetwork

    def __str__(self) -> str:
        return f"Block({self.cidr})"


class AffinityKey(NamedTuple):
    """The claim of an owner on a block; `kind` is `host` or `virtual`."""

    host: str
    cidr: IPNetwork
    kind: str = "host"

    def __str__(self) -> str:
        return f"BlockAffinity({self.host}, {self.cidr})"


class HandleKey(NamedTuple):
    """The addresses of one attachment, by handle id."""

    handle_id: str

    def __str__(self) -> str:
        return f"Handle({self.handle_id})"


class IPAMConfigKey(NamedTuple):
    """The allocator's settings; there is one."""

    def __str__(self) -> str:
        return "IPAMConfig"


class HostKey(NamedTuple):
    """The allocator's record of a host, which old releases wrote; it is only ever removed."""

    host: str

    def __str__(self) -> str:
        return f"IPAMHost({self.host})"


NO_REGION = "no-region"
"""The name of the region without OpenStack."""


class FelixStatusKey(NamedTuple):
    """felix's life sign, written with a lease. `last` is the copy that outlives the lease."""

    host: str
    region: str = NO_REGION
    last: bool = False

    def __str__(self) -> str:
        return f"FelixStatus({self.host}{', last' if self.last else ''})"


class LifeSignKey(NamedTuple):
    """The life sign of the machine of a node's name: calico-node writes it with a lease."""

    host: str

    def __str__(self) -> str:
        return f"LifeSign({self.host})"


class WorkloadStatusKey(NamedTuple):
    """Whether a workload's endpoint is up. `workload` of a pod is `namespace/pod`."""

    host: str
    orchestrator: str
    workload: str
    endpoint: str
    region: str = NO_REGION

    def __str__(self) -> str:
        return f"WorkloadStatus({self.host}, {self.workload}, {self.endpoint})"


class HostEndpointStatusKey(NamedTuple):
    """Whether a host endpoint is up."""

    host: str
    endpoint: str

    def __str__(self) -> str:
        return f"HostEndpointStatus({self.host}, {self.endpoint})"


StatusKey = FelixStatusKey | LifeSignKey | WorkloadStatusKey | HostEndpointStatusKey
Key = ResourceKey | BlockKey | AffinityKey | HandleKey | IPAMConfigKey | HostKey | StatusKey
