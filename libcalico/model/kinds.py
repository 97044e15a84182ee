"""The table of resource kinds, which codec, datastore and command line read: one row a kind."""

from __future__ import annotations

from typing import Any

import msgspec

from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.affinity import BlockAffinityResource
from libcalico.model.resources.bgp import BGPConfiguration, BGPPeer
from libcalico.model.resources.bgpfilter import BGPFilter
from libcalico.model.resources.cluster import ClusterInformation, Tier
from libcalico.model.resources.controllers import KubeControllersConfiguration
from libcalico.model.resources.endpoint import WorkloadEndpoint
from libcalico.model.resources.felixconfig import FelixConfiguration
from libcalico.model.resources.hostendpoint import HostEndpoint
from libcalico.model.resources.ipam import IPAMConfiguration
from libcalico.model.resources.migration import LiveMigration
from libcalico.model.resources.node import Node
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from libcalico.model.resources.policy import GlobalNetworkPolicy, NetworkPolicy
from libcalico.model.resources.pool import IPPool
from libcalico.model.resources.profile import Profile
from libcalico.model.resources.reservation import IPReservation
from libcalico.model.resources.sets import GlobalNetworkSet, NetworkSet
from libcalico.model.resources.staged import (
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)

Resource = (
    Node
    | WorkloadEndpoint
    | HostEndpoint
    | IPPool
    | IPReservation
    | BGPConfiguration
    | BGPPeer
    | BGPFilter
    | FelixConfiguration
    | Tier
    | Profile
    | NetworkPolicy
    | StagedNetworkPolicy
    | StagedKubernetesNetworkPolicy
    | GlobalNetworkPolicy
    | StagedGlobalNetworkPolicy
    | NetworkSet
    | GlobalNetworkSet
    | ClusterInformation
    | KubeControllersConfiguration
    | CalicoNodeStatus
    | IPAMConfiguration
    | BlockAffinityResource
    | LiveMigration
)


class Kind(msgspec.Struct, frozen=True):
    """One kind: `name` as in YAML, `plural` as in keys, short names for the command line.

    `family` selects it in a datastore. It is the kind's name, except for the one kind whose name
    the allocator's claims have there. Operators do not read or write `internal` kinds.
    """

    name: str
    plural: str
    namespaced: bool
    type: type[Resource]
    aliases: tuple[str, ...] = ()
    internal: bool = False
    other_family: str = ""

    @property
    def family(self) -> str:
        """The family of a `Selection` of this kind."""
        return self.other_family or self.name


def _row(
    type_: type[Resource], plural: str, aliases: str = "", *, namespaced: bool = False, **more: Any
) -> Kind:
    name = more.pop("name", type_.__name__)
    return Kind(name, plural, namespaced, type_, tuple(aliases.split()), **more)


# Aliases: docs/reference/data-model.md#calicoctls-output. Name and plural need none.
_ROWS = (
    _row(Node, "nodes", "no nos"),
    _row(WorkloadEndpoint, "workloadendpoints", "wep weps", namespaced=True),
    _row(HostEndpoint, "hostendpoints", "hep heps"),
    _row(IPPool, "ippools", "ipp ipps pool pools"),
    _row(IPReservation, "ipreservations", "reservation reservations"),
    _row(BGPConfiguration, "bgpconfigurations", "bgpconfig bgpconfigs"),
    _row(BGPPeer, "bgppeers", "bgpp bgpps bp bps"),
    _row(BGPFilter, "bgpfilters", "bgpf bgpfs bf bfs"),
    _row(FelixConfiguration, "felixconfigurations", "felixconfig felixconfigs"),
    _row(Tier, "tiers"),
    _row(Profile, "profiles", "pro pros"),
    _row(NetworkPolicy, "networkpolicies", "policy policies np nps pol pols", namespaced=True),
    _row(
        StagedNetworkPolicy,
        "stagednetworkpolicies",
        "stagedpolicy stagedpolicies snp snps spol spols",
        namespaced=True,
    ),
    _row(
        StagedKubernetesNetworkPolicy,
        "stagedkubernetesnetworkpolicies",
        "stagedkubernetespolicy stagedkubernetespolicies sknp sknps skpol skpols",
        namespaced=True,
    ),
    _row(GlobalNetworkPolicy, "globalnetworkpolicies", "gnp gnps"),
    _row(StagedGlobalNetworkPolicy, "stagedglobalnetworkpolicies", "sgnp sgnps"),
    _row(NetworkSet, "networksets", "netsets", namespaced=True),
    _row(GlobalNetworkSet, "globalnetworksets", "gnetsets"),
    _row(ClusterInformation, "clusterinformations", "clusterinfo clusterinfos"),
    _row(
        KubeControllersConfiguration,
        "kubecontrollersconfigurations",
        "kubecontrollersconfig kubecontrollersconfigs",
    ),
    _row(CalicoNodeStatus, "caliconodestatuses", "nodestatus nodestatuses"),
    _row(IPAMConfiguration, "ipamconfigurations", "ipamconfig ipamconfigs"),
    _row(
        BlockAffinityResource,
        "blockaffinities",
        "affinity affinities",
        name="BlockAffinity",
        internal=True,
        other_family="BlockAffinityResource",
    ),
    _row(LiveMigration, "livemigrations", namespaced=True, internal=True),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}

_BY_PLURAL = {kind.plural: kind for kind in KINDS.values()}
_BY_FAMILY = {kind.family: kind for kind in KINDS.values()}
_BY_WORD = {
    word.lower(): kind
    for kind in KINDS.values()
    for word in (kind.name, kind.plural, *kind.aliases)
}


def kind_named(word: str) -> Kind:
    """The kind that a user's word means, in any case: `IPPool`, `ippools`, `pool`.

    Raises UnsupportedKind.
    """
    try:
        return _BY_WORD[word.lower()]
    except KeyError:
        known = ", ".join(sorted(KINDS))
        raise UnsupportedKind(
            f"resource kind {word!r} is not served; the kinds are {known}"
        ) from None


def kind_of_plural(plural: str) -> Kind | None:
    """The kind by its plural, as keys spell it."""
    return _BY_PLURAL.get(plural)


def kind_of_family(family: str) -> Kind | None:
    """The kind that a family of a `Selection` means."""
    return _BY_FAMILY.get(family)


def key_of(resource: Resource) -> ResourceKey:
    """The key of a resource; the namespace counts for namespaced kinds only."""
    kind = kind_named(resource.kind)
    namespace = resource.metadata.namespace if kind.namespaced else ""
    return ResourceKey(kind.name, resource.metadata.name, namespace)


def check_name(key: ResourceKey, resource: Resource) -> None:
    """Refuse a resource whose name is not that of its key. Raises InvalidValue."""
    metadata = resource.metadata
    if metadata.name != key.name or (key.namespace and metadata.namespace != key.namespace):
        raise InvalidValue(
            "metadata.name", f"{metadata.namespace}/{metadata.name}", "must be its key's", str(key)
        )
