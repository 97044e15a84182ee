"""What the operator may call a kind: Calico's names and aliases, in any letter case.

Every kind of the API group stands here, also those that this release does not serve: a
kind that we lack is refused by its own name, never as "unknown". Tested in
`tests/calicoctl/test_kinds.py`.
"""

from __future__ import annotations

from libcalico.errors import UnsupportedKind

_ALIASES: dict[str, str] = {
    "BGPConfiguration": "bgpconfiguration bgpconfigurations bgpconfig bgpconfigs",
    "BGPFilter": "bgpfilter bgpfilters bgpf bgpfs bf bfs",
    "BGPPeer": "bgppeer bgppeers bgpp bgpps bp bps",
    "BlockAffinity": "blockaffinity blockaffinities affinity affinities",
    "CalicoNodeStatus": "caliconodestatus caliconodestatuses nodestatus nodestatuses",
    "ClusterInformation": "clusterinformation clusterinformations clusterinfo clusterinfos",
    "FelixConfiguration": "felixconfiguration felixconfigurations felixconfig felixconfigs",
    "GlobalNetworkPolicy": "globalnetworkpolicy globalnetworkpolicies gnp gnps",
    "GlobalNetworkSet": "globalnetworkset globalnetworksets gnetsets",
    "HostEndpoint": "hostendpoint hostendpoints hep heps",
    "IPAMConfiguration": "ipamconfiguration ipamconfigurations ipamconfig ipamconfigs",
    "IPPool": "ippool ippools ipp ipps pool pools",
    "IPReservation": "ipreservation ipreservations reservation reservations",
    "KubeControllersConfiguration": "kubecontrollersconfiguration"
    " kubecontrollersconfigurations kubecontrollersconfig kubecontrollersconfigs",
    "NetworkPolicy": "networkpolicy networkpolicies policy policies np nps pol pols",
    "NetworkSet": "networkset networksets netsets",
    "Node": "node nodes no nos",
    "Profile": "profile profiles pro pros",
    "StagedGlobalNetworkPolicy": "stagedglobalnetworkpolicy stagedglobalnetworkpolicies sgnp sgnps",
    "StagedKubernetesNetworkPolicy": "stagedkubernetesnetworkpolicy"
    " stagedkubernetesnetworkpolicies stagedkubernetespolicy stagedkubernetespolicies"
    " sknp sknps skpol skpols",
    "StagedNetworkPolicy": "stagednetworkpolicy stagednetworkpolicies stagedpolicy"
    " stagedpolicies snp snps spol spols",
    "Tier": "tier tiers",
    "WorkloadEndpoint": "workloadendpoint workloadendpoints wep weps",
}

SERVED = (
    "BGPConfiguration",
    "BGPPeer",
    "ClusterInformation",
    "FelixConfiguration",
    "GlobalNetworkPolicy",
    "GlobalNetworkSet",
    "IPAMConfiguration",
    "IPPool",
    "NetworkPolicy",
    "NetworkSet",
    "Node",
    "Profile",
    "Tier",
    "WorkloadEndpoint",
)
"""The kinds that this release reads and writes."""

READ_ONLY = frozenset({"ClusterInformation"})
"""Kinds that the system itself writes; the command line only shows them."""

_BY_ALIAS = {alias: kind for kind, names in _ALIASES.items() for alias in names.split()}


def plurals() -> list[str]:
    """The plural of every kind that is served, in lower case: what completion offers."""
    return [_ALIASES[kind].split()[1] for kind in SERVED]


def kind_of(text: str) -> str:
    """The kind that `text` names (`IPP`, `pools`, `IPPool` all mean `IPPool`).

    Raises `UnsupportedKind`: for a kind of Calico that this release lacks by that kind's
    name, for anything else with the list of what is served.
    """
    kind = _BY_ALIAS.get(text.lower())
    served = ", ".join(SERVED)
    if kind is None:
        raise UnsupportedKind(f"resource type '{text}' is not supported; supported: {served}")
    if kind not in SERVED:
        raise UnsupportedKind(
            f"resource type '{kind}' is not served by this release yet; served: {served}"
        )
    return kind
