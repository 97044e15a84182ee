"""Calico's resource types as frozen structs whose attribute names are the stored JSON names."""

from libcalico.model.base.meta import Metadata, stamp
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, Key, ResourceKey
from libcalico.model.kinds import KINDS, key_of, kind_named, kind_of_family
from libcalico.model.resources.affinity import BlockAffinityResource
from libcalico.model.resources.bgp import BGPConfiguration, BGPPeer, BGPPeerSpec
from libcalico.model.resources.bgpfilter import BGPFilter
from libcalico.model.resources.cluster import (
    ClusterInformation,
    ClusterInformationSpec,
    Tier,
    TierSpec,
)
from libcalico.model.resources.controllers import KubeControllersConfiguration
from libcalico.model.resources.endpoint import (
    IPNAT,
    WorkloadEndpoint,
    WorkloadEndpointPort,
    WorkloadEndpointSpec,
)
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from libcalico.model.resources.hostendpoint import EndpointPort, HostEndpoint, HostEndpointSpec
from libcalico.model.resources.ipam import Attribute, Block, BlockAffinity, Handle, IPAMConfig
from libcalico.model.resources.node import (
    Node,
    NodeAddress,
    NodeBGPSpec,
    NodeSpec,
    NodeStatus,
    OrchRef,
)
from libcalico.model.resources.policy import (
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
)
from libcalico.model.resources.pool import IPPool, IPPoolSpec
from libcalico.model.resources.profile import Profile, ProfileSpec
from libcalico.model.resources.reservation import IPReservation, IPReservationSpec
from libcalico.model.resources.rules import (
    EntityRule,
    HTTPMatch,
    HTTPPath,
    ICMPFields,
    Rule,
    RuleMetadata,
    ServiceAccountMatch,
    ServiceMatch,
)
from libcalico.model.resources.sets import GlobalNetworkSet, NetworkSet, NetworkSetSpec
from libcalico.model.resources.staged import (
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)

__all__ = [
    "IPNAT",
    "KINDS",
    "AffinityKey",
    "Attribute",
    "BGPConfiguration",
    "BGPFilter",
    "BGPPeer",
    "BGPPeerSpec",
    "Block",
    "BlockAffinity",
    "BlockAffinityResource",
    "BlockKey",
    "ClusterInformation",
    "ClusterInformationSpec",
    "EndpointPort",
    "EntityRule",
    "FelixConfiguration",
    "FelixConfigurationSpec",
    "GlobalNetworkPolicy",
    "GlobalNetworkPolicySpec",
    "GlobalNetworkSet",
    "HTTPMatch",
    "HTTPPath",
    "Handle",
    "HandleKey",
    "HostEndpoint",
    "HostEndpointSpec",
    "ICMPFields",
    "IPAMConfig",
    "IPAMConfigKey",
    "IPPool",
    "IPPoolSpec",
    "IPReservation",
    "IPReservationSpec",
    "Key",
    "KubeControllersConfiguration",
    "Metadata",
    "NetworkPolicy",
    "NetworkPolicySpec",
    "NetworkSet",
    "NetworkSetSpec",
    "Node",
    "NodeAddress",
    "NodeBGPSpec",
    "NodeSpec",
    "NodeStatus",
    "OrchRef",
    "Profile",
    "ProfileSpec",
    "ResourceKey",
    "Rule",
    "RuleMetadata",
    "ServiceAccountMatch",
    "ServiceMatch",
    "StagedGlobalNetworkPolicy",
    "StagedKubernetesNetworkPolicy",
    "StagedNetworkPolicy",
    "Tier",
    "TierSpec",
    "WorkloadEndpoint",
    "WorkloadEndpointPort",
    "WorkloadEndpointSpec",
    "key_of",
    "kind_named",
    "kind_of_family",
    "stamp",
]
