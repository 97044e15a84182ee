"""The validators' rules of single fields, by struct type, without Felix's parameters.

A struct's rules hold wherever it stands. Fields without a rule have their types alone (`schema`).
Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from libcalico.crds.pieces import (
    AS_NUMBER,
    PORT_NUMBERS,
    SELECTOR,
    Piece,
    address,
    any_case,
    each,
    filled,
    limits,
    name,
    network,
    pattern,
    words,
)
from libcalico.crds.stored import BlockAffinitySpec, IPAMBlockSpec, IPAMConfigSpec
from libcalico.model.resources import bgp, bgpfilter, controllers, nodestatus, rules, staged
from libcalico.model.resources.cluster import TierSpec
from libcalico.model.resources.hostendpoint import EndpointPort, HostEndpointSpec
from libcalico.model.resources.policy import (
    EGRESS,
    INGRESS,
    GlobalNetworkPolicySpec,
    NetworkPolicySpec,
)
from libcalico.model.resources.pool import IPPoolSpec
from libcalico.model.resources.reservation import IPReservationSpec
from libcalico.model.resources.sets import NetworkSetSpec
from libcalico.model.validation import bgp as bgp_rules
from libcalico.model.validation import bgpfilter as filter_rules
from libcalico.model.validation import cluster as cluster_rules
from libcalico.model.validation import controllers as controller_rules
from libcalico.model.validation import node as node_rules
from libcalico.model.validation import policy as policy_rules
from libcalico.model.validation import pool as pool_rules
from libcalico.model.validation import rules as rule_rules
from libcalico.model.validation import staged as staged_rules
from libcalico.model.validation.checks import CLUSTER_ROUTES, INTERFACE, INTERFACE_PATTERN
from libcalico.model.validation.kubernetes_names import MAX_PORT_NAME

SWITCH = words(("Enabled", "Disabled"))
PORT_NAME = f"[a-z0-9-]{{1,{MAX_PORT_NAME}}}"
PORT: Piece = {**limits(1, 65535), "pattern": f"^({PORT_NUMBERS}|{PORT_NAME})$"}
_NAMES = "|".join(rule_rules.PROTOCOLS)
PROTOCOL: Piece = {**limits(1, 255), "pattern": f"^({_NAMES}|[0-9]{{1,3}})$"}
ENDPOINT_PROTOCOL: Piece = {"pattern": "^(TCP|UDP|SCTP|6|17|132)$"}
RULES = {"maxItems": rule_rules.MAX_RULES}
NETS = each(network(bare=False), rule_rules.MAX_NETS)
TYPES = each(words((INGRESS, EGRESS), empty=False), most=2, once=True)
POLICY: dict[str, Piece] = {
    "tier": name(),
    "ingress": RULES,
    "egress": RULES,
    "selector": SELECTOR,
    "types": TYPES,
    "serviceAccountSelector": SELECTOR,
    "performanceHints": each(words(policy_rules.HINTS, empty=False), once=True),
}
GLOBAL_POLICY: dict[str, Piece] = {**POLICY, "namespaceSelector": SELECTOR}
STAGED: dict[str, Piece] = {"stagedAction": words(staged_rules.ACTIONS)}
FILTER_COMMUNITY: Piece = {"pattern": r"^[0-9]{1,10}:[0-9]{1,10}(:[0-9]{1,10})?$"}
ROUTE_PRIORITY = limits(1, bgp_rules.MAX_PRIORITY)

TABLE: dict[type, dict[str, Piece]] = {
    IPPoolSpec: {
        "cidr": {**network(bare=False), "maxLength": pool_rules.MAX_CIDR},
        "vxlanMode": words(pool_rules.MODES),
        "ipipMode": words(pool_rules.MODES),
        "blockSize": limits(0, pool_rules.BLOCK_SIZES[6][1]),
        "nodeSelector": SELECTOR,
        "namespaceSelector": SELECTOR,
        "allowedUses": each(words(pool_rules.USES, empty=False), 10),
        "assignmentMode": words(("Automatic", "Manual")),
    },
    IPReservationSpec: {"reservedCIDRs": each(network())},
    NetworkSetSpec: {"nets": each(network())},
    NetworkPolicySpec: POLICY,
    GlobalNetworkPolicySpec: GLOBAL_POLICY,
    staged.StagedNetworkPolicySpec: {**POLICY, **STAGED},
    staged.StagedGlobalNetworkPolicySpec: {**GLOBAL_POLICY, **STAGED},
    staged.StagedKubernetesNetworkPolicySpec: {**STAGED, "policyTypes": TYPES},
    staged.LabelSelectorRequirement: {
        "key": filled(),
        "operator": filled(words(staged_rules.OPERATORS, empty=False)),
    },
    staged.KubernetesIPBlock: {"cidr": filled(network()), "except_": each(network())},
    staged.KubernetesPolicyPort: {
        "protocol": words(staged_rules.PROTOCOLS, empty=False),
        "port": {**limits(1, 65535), "maxLength": MAX_PORT_NAME},
        "endPort": limits(1, 65535),
    },
    rules.Rule: {
        "action": filled(words(rule_rules.ACTIONS, empty=False)),
        "ipVersion": {"enum": [4, 6]},
        "protocol": PROTOCOL,
        "notProtocol": PROTOCOL,
    },
    rules.ICMPFields: {"type": limits(0, 254), "code": limits(0, 255)},
    rules.EntityRule: {
        "nets": NETS,
        "notNets": NETS,
        "selector": SELECTOR,
        "notSelector": SELECTOR,
        "namespaceSelector": SELECTOR,
        "ports": each(PORT, rule_rules.MAX_PORTS),
        "notPorts": each(PORT, rule_rules.MAX_PORTS),
    },
    rules.ServiceMatch: {"name": filled({**name(empty=False)}), "namespace": name()},
    rules.ServiceAccountMatch: {"names": each({"pattern": "^[^'\"]*$"}), "selector": SELECTOR},
    rules.HTTPMatch: {
        "methods": {"maxItems": rule_rules.MAX_HTTP, "x-kubernetes-list-type": "set"},
        "paths": {"maxItems": rule_rules.MAX_HTTP},
    },
    rules.HTTPPath: {
        member: {"pattern": "^(/[^?# ]*)?$", "maxLength": rule_rules.MAX_PATH}
        for member in ("exact", "prefix")
    },
    HostEndpointSpec: {
        "node": filled(name(empty=False)),
        "interfaceName": {"pattern": rf"^({INTERFACE.pattern}|\*|)$"},
        "expectedIPs": each(address(empty=False)),
        "profiles": each(name()),
    },
    EndpointPort: {
        "name": filled({"pattern": f"^{PORT_NAME}$"}),
        "protocol": ENDPOINT_PROTOCOL,
        "port": filled(limits(1, 65535)),
    },
    TierSpec: {"defaultAction": words(("Deny", "Pass"))},
    bgp.BGPConfigurationSpec: {
        "logSeverityScreen": any_case(bgp_rules.LOG_LEVELS),
        "asNumber": AS_NUMBER,
        "serviceLoadBalancerAggregation": SWITCH,
        "communities": {"maxItems": bgp_rules.MAX_COMMUNITIES},
        "prefixAdvertisements": {"maxItems": bgp_rules.MAX_ADVERTISEMENTS},
        "listenPort": limits(0, 65535),
        "bindMode": words(("None", "NodeIP")),
        "ignoredInterfaces": each({"pattern": r"^([a-zA-Z0-9_.-]|[a-zA-Z0-9_.*-]{2,15})$"}),
        "localWorkloadPeeringIPV4": address(4),
        "localWorkloadPeeringIPV6": address(6),
        "programClusterRoutes": words(CLUSTER_ROUTES),
        "ipv4NormalRoutePriority": ROUTE_PRIORITY,
        "ipv6NormalRoutePriority": ROUTE_PRIORITY,
    },
    bgp.SecretKeyRef: {"key": filled({"minLength": 1})},
    bgp.ServiceIPBlock: {"cidr": network(empty=True)},
    bgp.Community: {
        "name": filled(name(empty=False)),
        "value": filled({"pattern": "^[0-9]+:[0-9]+(:[0-9]+)?$"}),
    },
    bgp.PrefixAdvertisement: {
        "cidr": filled(network()),
        "communities": filled({"minItems": 1, "maxItems": 50}),
    },
    bgp.BGPPeerSpec: {
        "node": name(),
        "nodeSelector": SELECTOR,
        "peerIP": {"pattern": r"^[0-9a-fA-F.:\[\]]*$"},
        "asNumber": AS_NUMBER,
        "localASNumber": AS_NUMBER,
        "peerSelector": SELECTOR,
        "nextHopMode": words(("Auto", "Self", "Keep")),
        "sourceAddress": words(("UseNodeIP", "None")),
        "numAllowedLocalASNumbers": limits(*bgp_rules.LOCAL_AS_NUMBERS),
        "ttlSecurity": limits(0, 255),
        "reachableBy": address(),
        "filters": each(name(empty=False)),
        "localWorkloadSelector": SELECTOR,
        "reversePeering": words(("Auto", "Manual")),
    },
    bgpfilter.BGPFilterRule: {
        "cidr": {**network(empty=True), "maxLength": max(filter_rules.MAX_CIDR.values())},
        "source": words(("RemotePeers",)),
        "interface": pattern(INTERFACE_PATTERN),
        "matchOperator": words(filter_rules.OPERATORS),
        "peerType": words(("eBGP", "iBGP")),
        "asPathPrefix": each(AS_NUMBER),
        "priority": ROUTE_PRIORITY,
        "action": filled(words(("Accept", "Reject"), empty=False)),
        "operations": {"maxItems": filter_rules.MAX_OPERATIONS},
    },
    bgpfilter.BGPFilterPrefixLength: {"min": limits(0, 128), "max": limits(0, 128)},
    bgpfilter.BGPFilterCommunityMatch: {
        "values": filled(each(FILTER_COMMUNITY, most=1, least=1)),
    },
    bgpfilter.BGPFilterAddCommunity: {"value": filled(FILTER_COMMUNITY)},
    bgpfilter.BGPFilterPrependASPath: {
        "prefix": filled(each(AS_NUMBER, most=filter_rules.MAX_PREPENDED, least=1)),
    },
    bgpfilter.BGPFilterSetPriority: {"value": filled(ROUTE_PRIORITY)},
    controllers.KubeControllersConfigurationSpec: {
        "logSeverityScreen": words(controller_rules.LOG_LEVELS),
        "healthChecks": SWITCH,
        "prometheusMetricsPort": limits(0, controller_rules.MAX_PORT),
        "debugProfilePort": limits(0, controller_rules.MAX_PORT),
    },
    controllers.NodeControllerConfig: {"syncLabels": SWITCH},
    controllers.AutoHostEndpointConfig: {"autoCreate": SWITCH, "createDefaultHostEndpoint": SWITCH},
    controllers.Template: {
        "generateName": filled(name(empty=False)),
        "interfaceCIDRs": each(network()),
        "nodeSelector": SELECTOR,
    },
    controllers.LoadBalancerControllerConfig: {
        "assignIPs": words(("AllServices", "RequestedServicesOnly")),
    },
    controllers.PolicyMigrationConfig: {"enabled": SWITCH},
    controllers.MigrationControllerConfig: {"policyNameMigrator": SWITCH},
    nodestatus.CalicoNodeStatusSpec: {
        "node": filled(name(empty=False)),
        "classes": filled(each(words(node_rules.CLASSES, empty=False), least=1, once=True)),
        "updatePeriodSeconds": filled(limits(0, node_rules.MAX_PERIOD)),
    },
    nodestatus.BGPDaemonStatus: {"state": words(node_rules.DAEMON_STATES)},
    nodestatus.CalicoNodePeer: {
        "peerIP": address(),
        "type": words(node_rules.PEER_TYPES),
        "state": words(node_rules.PEER_STATES),
    },
    nodestatus.CalicoNodeRoute: {"type": words(("FIB", "RIB"))},
    nodestatus.CalicoNodeRouteLearnedFrom: {
        "peerIP": address(),
        "sourceType": words(node_rules.ROUTE_SOURCES),
    },
    IPAMConfigSpec: {
        "maxBlocksPerHost": limits(0, cluster_rules.MAX_BLOCKS),
        "kubeVirtVMAddressPersistence": SWITCH,
        "ipCooldownSeconds": limits(0, cluster_rules.MAX_COOLDOWN),
    },
    IPAMBlockSpec: {"cidr": network(bare=False)},
    BlockAffinitySpec: {
        "state": filled(words(cluster_rules.AFFINITY_STATES)),
        "node": filled(),
        "cidr": filled(network()),
        "deleted": filled(words(("true", "false"))),
    },
}
