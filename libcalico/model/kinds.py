"""The table of resource kinds: one row each, read by codec, datastore and command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from libcalico.errors import UnsupportedKind
from libcalico.model.bgp import BGPConfiguration, BGPPeer
from libcalico.model.cluster import ClusterInformation, FelixConfiguration, Tier
from libcalico.model.endpoint import WorkloadEndpoint
from libcalico.model.ipam import IPAMConfiguration
from libcalico.model.keys import ResourceKey
from libcalico.model.node import Node
from libcalico.model.policy import GlobalNetworkPolicy, NetworkPolicy
from libcalico.model.pool import IPPool
from libcalico.model.profile import Profile
from libcalico.model.sets import GlobalNetworkSet, NetworkSet

Resource = (
    Node
    | WorkloadEndpoint
    | IPPool
    | BGPConfiguration
    | BGPPeer
    | FelixConfiguration
    | Tier
    | Profile
    | NetworkPolicy
    | GlobalNetworkPolicy
    | NetworkSet
    | GlobalNetworkSet
    | ClusterInformation
    | IPAMConfiguration
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: `name` as in YAML, `plural` as in keys, short names for the command line."""

    name: str
    plural: str
    namespaced: bool
    type: Any
    aliases: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Node", "nodes", False, Node, ("no",)),
        Kind("WorkloadEndpoint", "workloadendpoints", True, WorkloadEndpoint, ("wep", "weps")),
        Kind("IPPool", "ippools", False, IPPool, ("ipp", "ipps", "pool", "pools")),
        Kind(
            "BGPConfiguration",
            "bgpconfigurations",
            False,
            BGPConfiguration,
            ("bgpconfig", "bgpconfigs"),
        ),
        Kind("BGPPeer", "bgppeers", False, BGPPeer, ("bgpp", "bgpps")),
        Kind(
            "FelixConfiguration",
            "felixconfigurations",
            False,
            FelixConfiguration,
            ("felixconfig", "felixconfigs"),
        ),
        Kind("Tier", "tiers", False, Tier),
        Kind("Profile", "profiles", False, Profile, ("pro", "pros")),
        Kind(
            "NetworkPolicy",
            "networkpolicies",
            True,
            NetworkPolicy,
            ("policy", "policies", "np", "nps", "pol", "pols"),
        ),
        Kind(
            "GlobalNetworkPolicy",
            "globalnetworkpolicies",
            False,
            GlobalNetworkPolicy,
            ("gnp", "gnps"),
        ),
        Kind("NetworkSet", "networksets", True, NetworkSet, ("netsets",)),
        Kind("GlobalNetworkSet", "globalnetworksets", False, GlobalNetworkSet, ("gnetsets",)),
        Kind(
            "ClusterInformation",
            "clusterinformations",
            False,
            ClusterInformation,
            ("clusterinfo", "clusterinfos"),
        ),
        Kind(
            "IPAMConfiguration",
            "ipamconfigurations",
            False,
            IPAMConfiguration,
            ("ipamconfig", "ipamconfigs"),
        ),
    )
}

_BY_PLURAL = {kind.plural: kind for kind in KINDS.values()}
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


def key_of(resource: Resource) -> ResourceKey:
    """The key of a resource; the namespace counts for namespaced kinds only."""
    kind = kind_named(resource.kind)
    namespace = resource.metadata.namespace if kind.namespaced else ""
    return ResourceKey(kind.name, resource.metadata.name, namespace)
