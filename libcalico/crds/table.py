"""The table of the definitions: names, scope, columns and the defaults that Calico stores.

Source: docs/reference/data-model.md#kubernetes-datastore, #validation. Group and version are those
of Calico's own definitions (`crd.projectcalico.org/v1`), so that its programs and ours read the
same objects; the columns are ours. Node, WorkloadEndpoint and Profile have none: Kubernetes' own
objects stand for them.
Tested in tests/libcalico/test_crds.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libcalico.crds.cluster_policies import (
    ClusterNetworkPolicySpec,
    ClusterNetworkPolicyStatus,
)
from libcalico.crds.pieces import Piece
from libcalico.crds.stored import BlockAffinitySpec, IPAMBlockSpec, IPAMConfigSpec, IPAMHandleSpec
from libcalico.model.kinds import KINDS
from libcalico.model.validation.cluster import MAX_TIER_NAME
from libcalico.model.validation.kubernetes_names import SINGLE_LABEL

GROUP, VERSION = "crd.projectcalico.org", "v1"
AGE = (("Age", "date", ".metadata.creationTimestamp"),)
Column = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Definition:
    """One CustomResourceDefinition; `spec` is the struct type of its objects' spec.

    `root` is the resource's struct type: its rules hold for the whole object, and it has the
    status. `status` is for an object without a root. `kubectl get -o wide` alone shows the `wide`
    columns. `defaults` are by path below the object.
    """

    kind: str
    plural: str
    spec: type[msgspec.Struct]
    root: type[msgspec.Struct] | None = None
    namespaced: bool = False
    short: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    wide: tuple[Column, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    subresource: bool = False
    only_name: Piece = field(default_factory=dict)
    needs_spec: bool = False
    group: str = GROUP
    version: str = VERSION
    status: type[msgspec.Struct] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The definition's own name."""
        return f"{self.plural}.{self.group}"


def _columns(text: str) -> tuple[Column, ...]:
    """`Name type path` by line, the path below spec unless it begins with a dot."""
    rows = (line.rsplit(maxsplit=2) for line in text.strip().splitlines())
    return tuple(
        (name, kind, path if path.startswith(".") else f".spec.{path}") for name, kind, path in rows
    )


def _kind(name: str, short: str = "", columns: str = "", wide: str = "", **more: Any) -> Definition:
    """The definition of a kind of `libcalico.model.kinds`."""
    kind = KINDS[name]
    fields = {field.name: field for field in msgspec.structs.fields(kind.type)}
    return Definition(
        kind.name,
        kind.plural,
        fields["spec"].type,
        kind.type,
        kind.namespaced,
        tuple(short.split()),
        _columns(columns),
        _columns(wide),
        needs_spec=fields["spec"].required,
        **more,
    )


ONLY_DEFAULT = {"enum": ["default"]}
TIER_NAME = {"pattern": f"^{SINGLE_LABEL.pattern}$", "maxLength": MAX_TIER_NAME}
_POLICY = "Tier string tier\nOrder number order\nSelector string selector"
_TYPES = "Types string types"
_STAGED = f"Action string stagedAction\n{_POLICY}"
_TIER = {"spec.tier": "default"}
_SET = {"spec.stagedAction": "Set"}

DEFINITIONS: tuple[Definition, ...] = (
    _kind(
        "BGPConfiguration",
        "bgpconfig bgpconfigs",
        "AS string asNumber\nMesh boolean nodeToNodeMeshEnabled\nPort integer listenPort",
        "Log string logSeverityScreen",
        defaults={
            "spec.logSeverityScreen": "Info",
            "spec.serviceLoadBalancerAggregation": "Enabled",
            "spec.nodeMeshPassword.secretKeyRef.name": "",
        },
    ),
    _kind("BGPFilter"),
    _kind(
        "BGPPeer",
        "",
        "Peer string peerIP\nPeer Selector string peerSelector\nAS string asNumber\n"
        "Node string node\nNode Selector string nodeSelector",
        "Filters string filters",
        defaults={"spec.password.secretKeyRef.name": ""},
    ),
    _kind(
        "CalicoNodeStatus",
        "",
        "Node string node\nClasses string classes\nPeriod integer updatePeriodSeconds\n"
        "Updated date .status.lastUpdated",
        subresource=True,
    ),
    _kind(
        "ClusterInformation",
        "clusterinfo clusterinfos",
        "Type string clusterType\nVersion string calicoVersion\nReady boolean datastoreReady",
        "GUID string clusterGUID",
        only_name=ONLY_DEFAULT,
    ),
    _kind(
        "FelixConfiguration",
        "",
        "Log string logSeverityScreen\nNFTables string nftablesMode\n"
        "To Host string defaultEndpointToHostAction",
        "Node Selector string nodeSelector",
        defaults={"spec.nftablesMode": "Auto", "spec.nftablesFlowTableOffload": "Disabled"},
    ),
    _kind("GlobalNetworkPolicy", "gnp cgnp", _POLICY, _TYPES, defaults=_TIER),
    _kind("GlobalNetworkSet", "gns", "Nets string nets"),
    _kind(
        "HostEndpoint",
        "hep heps",
        "Node string node\nInterface string interfaceName\nExpected IPs string expectedIPs",
        "Profiles string profiles",
    ),
    _kind(
        "IPPool",
        "",
        "CIDR string cidr\nIPIP string ipipMode\nVXLAN string vxlanMode\n"
        "NAT boolean natOutgoing\nDisabled boolean disabled\nNode Selector string nodeSelector",
        "Block integer blockSize\nUses string allowedUses\nAssignment string assignmentMode",
        defaults={"spec.assignmentMode": "Automatic", "spec.nodeSelector": "all()"},
        subresource=True,
    ),
    _kind("IPReservation", "", "CIDRs string reservedCIDRs"),
    _kind(
        "KubeControllersConfiguration",
        "kcc kccs",
        "Log string logSeverityScreen\nHealth string healthChecks",
        defaults={
            f"{part}.{field}": value
            for part in ("spec", "status.runningConfig")
            for field, value in (
                ("healthChecks", "Enabled"),
                ("controllers.loadBalancer.assignIPs", "AllServices"),
                ("controllers.migration.policyNameMigrator", "Enabled"),
            )
        },
        subresource=True,
        only_name=ONLY_DEFAULT,
    ),
    _kind("NetworkPolicy", "caliconetworkpolicy", _POLICY, _TYPES, defaults=_TIER),
    _kind("NetworkSet", "", "Nets string nets"),
    _kind("StagedGlobalNetworkPolicy", "sgnp", _STAGED, _TYPES, defaults=_TIER | _SET),
    _kind(
        "StagedKubernetesNetworkPolicy",
        "sknp",
        "Action string stagedAction\nTypes string policyTypes",
        defaults=_SET,
    ),
    _kind("StagedNetworkPolicy", "scnp snp", _STAGED, _TYPES, defaults=_TIER | _SET),
    _kind(
        "Tier",
        "",
        "Order number order\nDefault Action string defaultAction",
        defaults={"spec.defaultAction": "Deny"},
        subresource=True,
        only_name=TIER_NAME,
    ),
    Definition(
        "BlockAffinity",
        "blockaffinities",
        BlockAffinitySpec,
        short=("affinity", "affinities"),
        columns=_columns("Node string node\nCIDR string cidr\nState string state"),
        wide=_columns("Type string type\nDeleted string deleted"),
    ),
    Definition(
        "IPAMBlock",
        "ipamblocks",
        IPAMBlockSpec,
        columns=_columns("CIDR string cidr\nAffinity string affinity"),
        wide=_columns("Claimed date affinityClaimTime\nDeleted boolean deleted"),
        defaults={"spec.sequenceNumber": 0},
    ),
    Definition(
        "IPAMConfig",
        "ipamconfigs",
        IPAMConfigSpec,
        columns=_columns(
            "Strict boolean strictAffinity\nAuto Blocks boolean autoAllocateBlocks\n"
            "Max Blocks integer maxBlocksPerHost"
        ),
        defaults={"spec.autoAllocateBlocks": True, "spec.strictAffinity": False},
        only_name=ONLY_DEFAULT,
    ),
    Definition(
        "IPAMHandle",
        "ipamhandles",
        IPAMHandleSpec,
        columns=_columns("Handle string handleID\nBlocks string block"),
    ),
    Definition(
        "ClusterNetworkPolicy",
        "clusternetworkpolicies",
        ClusterNetworkPolicySpec,
        short=("cnp",),
        columns=_columns("Tier string tier\nPriority string priority"),
        group="policy.networking.k8s.io",
        version="v1alpha2",
        status=ClusterNetworkPolicyStatus,
        subresource=True,
        annotations={
            "api-approved.kubernetes.io": (
                "https://github.com/kubernetes-sigs/network-policy-api/pull/347"
            ),
            "policy.networking.k8s.io/bundle-version": "v0.2.0",
            "policy.networking.k8s.io/channel": "experimental",
        },
    ),
)
