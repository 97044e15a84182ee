"""The validators' rules across fields, in CEL, by the struct type that `self` is.

The API server bounds estimated costs, so rules of fields deep in lists stay plain.
Nothing here needs more than Kubernetes 1.25; the network functions of 1.31 are not used.
Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from libcalico.crds import cluster_policies
from libcalico.crds.cel_policies import GLOBAL_POLICY, POLICY_RULE, deleting, directions
from libcalico.crds.cel_pools import POOL
from libcalico.crds.cel_words import Rule, apart, some, text, true
from libcalico.model.resources import bgp, bgpfilter, controllers, rules, staged
from libcalico.model.resources.cluster import FIXED_TIERS, Tier
from libcalico.model.resources.felix_values import RouteTableRange
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from libcalico.model.resources.hostendpoint import HostEndpointSpec
from libcalico.model.resources.policy import GlobalNetworkPolicySpec, NetworkPolicySpec
from libcalico.model.resources.pool import IPPoolSpec
from libcalico.model.validation.bgp import DEFAULT_ONLY
from libcalico.model.validation.felix import MAX_TABLE_RANGE

PEER = (
    apart("node", "nodeSelector"),
    apart("peerIP", "peerSelector"),
    apart("peerIP", "localWorkloadSelector"),
    apart("peerSelector", "localWorkloadSelector"),
    Rule(
        f"!({true('keepOriginalNextHop')} && {text('nextHopMode')})",
        "nextHopMode is not allowed together with keepOriginalNextHop",
        "nextHopMode",
    ),
    Rule(
        f"!({text('peerSelector')} && has(self.asNumber)) || self.asNumber == 0"
        " || self.asNumber == '0'",
        "asNumber must be empty with peerSelector",
        "asNumber",
    ),
    Rule(
        f"!{text('localWorkloadSelector')} || (has(self.asNumber) && self.asNumber != 0)",
        "asNumber is required with localWorkloadSelector",
        "asNumber",
    ),
    Rule(
        f"!{text('reachableBy')} || {text('peerIP')}",
        "reachableBy needs peerIP",
        "reachableBy",
    ),
)

CONFIGURATION = (
    *(
        Rule(
            f"!has(self.{name}) || !has(self.nodeToNodeMeshEnabled) || self.nodeToNodeMeshEnabled",
            f"{name} is allowed only with nodeToNodeMeshEnabled",
            name,
        )
        for name in ("nodeMeshPassword", "nodeMeshMaxRestartTime")
    ),
    Rule(
        f"!{some('communities')} || {some('prefixAdvertisements')}",
        "communities are used by no prefixAdvertisement",
        "communities",
    ),
)

_SPEC = "self.metadata.name == 'default' || !has(self.spec) || !has(self.spec.{0})"
DEFAULT_CONFIGURATION = tuple(
    Rule(
        _SPEC.format(name) + (f" || size(self.spec.{name}) == 0" if name.endswith("IPs") else ""),
        f"only the BGPConfiguration named default may set {name}",
        f"spec.{name}",
    )
    for name in DEFAULT_ONLY
)


def _operation() -> Rule:
    names = ("addCommunity", "prependASPath", "setPriority")
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    return Rule(f"{count} == 1", "must be exactly one of " + ", ".join(names))


def _tier(name: str, order: int, action: str) -> tuple[Rule, ...]:
    this = f"self.metadata.name != '{name}' || !has(self.spec)"
    return (
        Rule(
            f"{this} || !has(self.spec.order) || self.spec.order == {float(order)}",
            f"order is always {order} in tier {name}",
            "spec.order",
        ),
        Rule(
            f"{this} || !has(self.spec.defaultAction) || self.spec.defaultAction == '{action}'"
            " || self.spec.defaultAction == ''",
            f"defaultAction is always {action} in tier {name}",
            "spec.defaultAction",
        ),
    )


_NAMED = "(self.metadata.name == 'default' || self.metadata.name.startsWith('node.'))"
_SELECTED = "(has(self.spec) && has(self.spec.nodeSelector) && self.spec.nodeSelector != '')"

RULES: dict[type, tuple[Rule, ...]] = {
    IPPoolSpec: POOL,
    bgp.BGPPeerSpec: PEER,
    bgp.BGPConfigurationSpec: CONFIGURATION,
    bgp.BGPConfiguration: DEFAULT_CONFIGURATION,
    rules.Rule: POLICY_RULE,
    rules.ICMPFields: (Rule("!has(self.code) || has(self.type)", "code needs a type", "code"),),
    rules.HTTPPath: (Rule(f"{text('exact')} != {text('prefix')}", "must be exact or prefix"),),
    NetworkPolicySpec: directions(),
    GlobalNetworkPolicySpec: (*directions(), *GLOBAL_POLICY),
    staged.StagedNetworkPolicySpec: (*directions(), *deleting(staged.StagedNetworkPolicySpec)),
    staged.StagedGlobalNetworkPolicySpec: (
        *directions(),
        *GLOBAL_POLICY,
        *deleting(staged.StagedGlobalNetworkPolicySpec),
    ),
    staged.StagedKubernetesNetworkPolicySpec: deleting(staged.StagedKubernetesNetworkPolicySpec),
    staged.LabelSelectorRequirement: (
        Rule(
            f"(self.operator == 'In' || self.operator == 'NotIn') == {some('values')}",
            "values stand with In and NotIn, and only there",
            "values",
        ),
    ),
    staged.KubernetesPolicyPeer: (
        Rule(
            "!has(self.ipBlock) || !(has(self.podSelector) || has(self.namespaceSelector))",
            "ipBlock is not allowed together with a selector",
            "ipBlock",
        ),
    ),
    HostEndpointSpec: (
        Rule(
            f"{text('interfaceName')} || {some('expectedIPs')}",
            "interfaceName or expectedIPs must say which interface",
            "interfaceName",
        ),
    ),
    Tier: tuple(rule for name, row in FIXED_TIERS.items() for rule in _tier(name, *row)),
    FelixConfiguration: (
        Rule(f"!{_NAMED} || !{_SELECTED}", "nodeSelector is not allowed here", "spec.nodeSelector"),
        Rule(
            f"{_NAMED} || {_SELECTED}",
            "the name must be default or node.<name>, or spec.nodeSelector be set",
            "spec",
        ),
    ),
    FelixConfigurationSpec: (
        Rule(
            "!(has(self.routeTableRanges) && has(self.routeTableRange))",
            "routeTableRange is not allowed together with routeTableRanges",
            "routeTableRange",
        ),
        Rule(
            f"!has(self.routeTableRange) || self.routeTableRange.max <= {MAX_TABLE_RANGE}",
            f"routeTableRange must lie in 1 to {MAX_TABLE_RANGE}",
            "routeTableRange",
        ),
    ),
    RouteTableRange: (Rule("self.min <= self.max", "max must not be below min", "max"),),
    bgpfilter.BGPFilterRule: (
        Rule(
            f"{text('cidr')} == {text('matchOperator')}",
            "cidr and matchOperator are set together or not at all",
            "matchOperator",
        ),
        Rule(f"!has(self.prefixLength) || {text('cidr')}", "needs a cidr", "prefixLength"),
        Rule(
            f"!{some('operations')} || self.action == 'Accept'",
            "operations are allowed only with action Accept",
            "operations",
        ),
    ),
    bgpfilter.BGPFilterOperation: (_operation(),),
    cluster_policies.Port: (
        Rule("has(self.number) != has(self.range)", "must be exactly one of number and range"),
    ),
    cluster_policies.PortRange: (
        Rule("self.start < self.end", "end must be greater than start", "end"),
    ),
    controllers.Template: (
        Rule(
            f"{some('interfaceCIDRs')} || {text('interfacePattern')}",
            "interfaceCIDRs or interfacePattern must say which interfaces",
        ),
    ),
}
"""By the struct that `self` is."""
