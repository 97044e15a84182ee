"""BGPConfiguration, BGPPeer, BGPFilter (docs/reference/data-model.md#bgpconfiguration, #bgppeer,
#bgpfilter)."""

# A case is a line, however long.
# ruff: noqa: E501
from __future__ import annotations

from tests.libcalico.documents import Refused, Taken, document

DEFAULT = "name: default"
ADVERTISED = "prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: ['1:1']}]"


def _config(id_: str, spec: str, path: str, rule: str, metadata: str = DEFAULT) -> Refused:
    text = document("BGPConfiguration", spec, metadata)
    return Refused(f"bgpconfig-{id_}", text, f"spec.{path}", rule)


def _peer(id_: str, spec: str, path: str, rule: str) -> Refused:
    return Refused(f"peer-{id_}", document("BGPPeer", spec), f"spec.{path}", rule)


def _filter(id_: str, rule: str, path: str, message: str, direction: str = "importV4") -> Refused:
    text = document("BGPFilter", f"{direction}: [{{{rule}}}]")
    return Refused(f"filter-{id_}", text, f"spec.{direction}[0]{path}", message)


def _operation(id_: str, operation: str, path: str, message: str) -> Refused:
    return _filter(id_, f"action: Accept, operations: [{operation}]", f".operations{path}", message)


REFUSED = [
    _config("level", "logSeverityScreen: Loud", "logSeverityScreen", "Warning"),
    _config("mesh-of-a-node", "nodeToNodeMeshEnabled: true", "nodeToNodeMeshEnabled", "default", ""),
    _config("as-of-a-node", "asNumber: 1", "asNumber", "default", "name: node.a"),
    _config("services-of-a-node", "serviceClusterIPs: [{cidr: 10.0.0.0/8}]", "serviceClusterIPs", "default", ""),
    _config("as", "asNumber: 4294967296", "asNumber", "4294967295"),
    _config("as-text", "asNumber: sixty", "asNumber", "AS number"),
    _config("as-dotted", "asNumber: '1.70000'", "asNumber", "AS number"),
    _config("as-fraction", "asNumber: 1.5", "asNumber", "whole number"),
    _config("port", "listenPort: 65536", "listenPort", "65535"),
    _config("port-negative", "listenPort: -1", "listenPort", "1 to 65535"),
    _config("service", "serviceClusterIPs: [{cidr: 10.0.0.1/8}]", "serviceClusterIPs[0].cidr", "behind"),
    _config("external", "serviceExternalIPs: [{cidr: x}]", "serviceExternalIPs[0].cidr", "CIDR"),
    _config("balancer", "serviceLoadBalancerIPs: [10.0.0.0/8]", "serviceLoadBalancerIPs[0]", "mapping"),
    _config("aggregation", "serviceLoadBalancerAggregation: 'On'", "serviceLoadBalancerAggregation", "Disabled"),
    _config("community", f"communities: [{{name: a, value: '1'}}], {ADVERTISED}", "communities[0].value", "aa:nn"),
    _config("community-digit", f"communities: [{{name: a, value: '１:1'}}], {ADVERTISED}", "communities[0].value", "aa:nn"),
    _config("community-16-bits", f"communities: [{{name: a, value: '65536:1'}}], {ADVERTISED}", "communities[0].value", "16 bits"),
    _config("community-name", f"communities: [{{name: A, value: '1:1'}}], {ADVERTISED}", "communities[0].name", "lower-case"),
    _config("community-unnamed", f"communities: [{{value: '1:1'}}], {ADVERTISED}", "communities[0].name", "required"),
    _config("communities-unused", "communities: [{name: a, value: '1:1'}]", "communities", "no prefixAdvertisement"),
    _config("advertisement-undefined", "prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: [b]}]", "prefixAdvertisements[0].communities[0]", "or a name"),
    _config("advertisement-none", "prefixAdvertisements: [{cidr: 10.0.0.0/8}]", "prefixAdvertisements[0].communities", "1 to 50"),
    _config("advertisement-cidr", "prefixAdvertisements: [{cidr: 10.0.0.1/8, communities: ['1:1']}]", "prefixAdvertisements[0].cidr", "behind"),
    _config("password-no-mesh", "nodeToNodeMeshEnabled: false, nodeMeshPassword: {secretKeyRef: {name: a, key: b}}", "nodeMeshPassword", "nodeToNodeMeshEnabled"),
    _config("restart-no-mesh", "nodeToNodeMeshEnabled: false, nodeMeshMaxRestartTime: 1s", "nodeMeshMaxRestartTime", "nodeToNodeMeshEnabled"),
    _config("password-key", "nodeMeshPassword: {secretKeyRef: {name: a}}", "nodeMeshPassword.secretKeyRef.key", "key"),
    _config("restart", "nodeMeshMaxRestartTime: 2 minutes", "nodeMeshMaxRestartTime", "duration"),
    _config("restart-number", "nodeMeshMaxRestartTime: 120", "nodeMeshMaxRestartTime", "text"),
    _config("bind", "bindMode: All", "bindMode", "NodeIP"),
    _config("interface", "ignoredInterfaces: [eth0, 'a b']", "ignoredInterfaces[1]", "interface"),
    _config("interface-all", "ignoredInterfaces: ['*']", "ignoredInterfaces[0]", "not alone"),
    _config("peering", "localWorkloadPeeringIPV4: 'fd00::1'", "localWorkloadPeeringIPV4", "IPv4"),
    _config("peering-v6", "localWorkloadPeeringIPV6: 10.0.0.1", "localWorkloadPeeringIPV6", "IPv6"),
    _config("routes", "programClusterRoutes: 'Yes'", "programClusterRoutes", "EnabledIPIPOnly"),
    _config("priority", "ipv4NormalRoutePriority: 0", "ipv4NormalRoutePriority", "1 to 2147483646"),
    _config("priority-v6", "ipv6NormalRoutePriority: 2147483647", "ipv6NormalRoutePriority", "1 to 2147483646"),
    _config("unknown", "meshEnabled: true", "meshEnabled", "no such field"),
    _peer("node-twice", "node: a, nodeSelector: has(b), peerIP: 1.2.3.4", "nodeSelector", "spec.node"),
    _peer("node-name", "node: Node_A, peerIP: 1.2.3.4", "node", "lower-case"),
    _peer("selector", "nodeSelector: b, peerIP: 1.2.3.4", "nodeSelector", "selector"),
    _peer("address", "peerIP: 1.2.3, asNumber: 1", "peerIP", "<ip>"),
    _peer("address-port", "peerIP: '1.2.3.4:70000'", "peerIP", "<ip>"),
    _peer("address-port-digit", "peerIP: '1.2.3.4:²'", "peerIP", "<ip>"),
    _peer("address-port-0", "peerIP: '1.2.3.4:0'", "peerIP", "<ip>"),
    _peer("address-brackets", "peerIP: '[fd00::1]'", "peerIP", "<ipv6>"),
    _peer("address-and-selector", "peerIP: 1.2.3.4, peerSelector: all()", "peerSelector", "spec.peerIP"),
    _peer("address-and-workload", "peerIP: 1.2.3.4, localWorkloadSelector: all(), asNumber: 1", "localWorkloadSelector", "spec.peerIP"),
    _peer("as-with-selector", "peerSelector: all(), asNumber: 1", "asNumber", "must be empty"),
    _peer("workload-as", "localWorkloadSelector: all()", "asNumber", "required"),
    _peer("as", "peerIP: 1.2.3.4, asNumber: -1", "asNumber", "4294967295"),
    _peer("local-as", "peerIP: 1.2.3.4, localASNumber: x", "localASNumber", "AS number"),
    _peer("hop-twice", "peerIP: 1.2.3.4, keepOriginalNextHop: true, nextHopMode: Keep", "nextHopMode", "keepOriginalNextHop"),
    _peer("hop", "peerIP: 1.2.3.4, nextHopMode: self", "nextHopMode", "Self"),
    _peer("source", "peerIP: 1.2.3.4, sourceAddress: NodeIP", "sourceAddress", "UseNodeIP"),
    _peer("reverse", "peerIP: 1.2.3.4, reversePeering: Never", "reversePeering", "Manual"),
    _peer("password", "peerIP: 1.2.3.4, password: {secretKeyRef: {name: a}}", "password.secretKeyRef.key", "key"),
    _peer("password-plain", "peerIP: 1.2.3.4, password: secret", "password", "mapping"),
    _peer("restart", "peerIP: 1.2.3.4, maxRestartTime: x", "maxRestartTime", "duration"),
    _peer("keepalive", "peerIP: 1.2.3.4, keepaliveTime: '30'", "keepaliveTime", "duration"),
    _peer("ttl", "peerIP: 1.2.3.4, ttlSecurity: 256", "ttlSecurity", "255"),
    _peer("reachable", "peerIP: 1.2.3.4, reachableBy: gw", "reachableBy", "IP address"),
    _peer("local-as-numbers", "peerIP: 1.2.3.4, numAllowedLocalASNumbers: -1", "numAllowedLocalASNumbers", "0 to"),
    _peer("reachable-host", "peerIP: 1.2.3.4, reachableBy: 0.0.0.0", "reachableBy", "a host"),
    _peer("reachable-family", "peerIP: 1.2.3.4, reachableBy: 'fd00::1'", "reachableBy", "family"),
    _peer("reachable-alone", "peerSelector: all(), reachableBy: 1.2.3.4", "reachableBy", "spec.peerIP"),
    _peer("filter", "peerIP: 1.2.3.4, filters: [a, B]", "filters[1]", "lower-case"),
    _filter("no-action", "cidr: 10.0.0.0/8, matchOperator: In", ".action", "Accept or Reject"),
    _filter("action", "action: accept", ".action", "Accept or Reject"),
    _filter("operator-alone", "action: Accept, matchOperator: In", ".cidr", "together"),
    _filter("cidr-alone", "action: Accept, cidr: 10.0.0.0/8", ".matchOperator", "together"),
    _filter("operator", "action: Accept, cidr: 10.0.0.0/8, matchOperator: Within", ".matchOperator", "NotIn"),
    _filter("cidr", "action: Accept, cidr: 10.0.0.1/8, matchOperator: In", ".cidr", "behind"),
    _filter("family", "action: Accept, cidr: 'fd00::/8', matchOperator: In", ".cidr", "IPv4"),
    _filter("family-v6", "action: Accept, cidr: 10.0.0.0/8, matchOperator: In", ".cidr", "IPv6", "exportV6"),
    _filter("length", "action: Accept, cidr: 10.0.0.0/8, matchOperator: In, prefixLength: {min: 33}", ".prefixLength.min", "0 to 32"),
    _filter("length-v6", "action: Accept, cidr: 'fd00::/8', matchOperator: In, prefixLength: {max: 129}", ".prefixLength.max", "0 to 128", "importV6"),
    _filter("length-alone", "action: Accept, prefixLength: {min: 8}", ".prefixLength", "cidr"),
    _filter("source", "action: Accept, source: Peers", ".source", "RemotePeers"),
    _filter("interface", "action: Accept, interface: a-very-long-name", ".interface", "15"),
    _filter("peer-type", "action: Accept, peerType: EBGP", ".peerType", "eBGP"),
    _filter("community", "action: Accept, communities: {values: ['1:65536']}", ".communities.values[0]", "16 bits"),
    _filter("community-zero", "action: Accept, communities: {values: ['01:2']}", ".communities.values[0]", "aa:nn"),
    _filter("communities-two", "action: Accept, communities: {values: ['1:1', '1:2']}", ".communities.values", "one community"),
    _filter("path", "action: Accept, asPathPrefix: [1, x]", ".asPathPrefix[1]", "AS number"),
    _filter("priority", "action: Accept, priority: 0", ".priority", "2147483646"),
    _filter("operations-reject", "action: Reject, operations: [{setPriority: {value: 1}}]", ".operations", "Accept"),
    _operation("operation-none", "{}", "[0]", "exactly one"),
    _operation("operation-two", "{setPriority: {value: 1}, addCommunity: {value: '1:1'}}", "[0]", "exactly one"),
    _operation("operation-community", "{addCommunity: {value: x}}", "[0].addCommunity.value", "aa:nn"),
    _operation("operation-prepend", "{prependASPath: {prefix: []}}", "[0].prependASPath.prefix", "1 to 10"),
    _operation("operation-prepend-11", f"{{prependASPath: {{prefix: {[1] * 11}}}}}", "[0].prependASPath.prefix", "1 to 10"),
    _operation("operation-priority", "{setPriority: {}}", "[0].setPriority.value", "required"),
    _operation("operation-priority-0", "{setPriority: {value: 0}}", "[0].setPriority.value", "1 to"),
    _operation("operations-11", ", ".join(["{setPriority: {value: 1}}"] * 11), "", "at most 10"),
]  # fmt: skip


def _good_config(id_: str, spec: str, metadata: str = DEFAULT) -> Taken:
    return Taken(f"bgpconfig-{id_}", document("BGPConfiguration", spec, metadata))


def _good_peer(id_: str, spec: str) -> Taken:
    return Taken(f"peer-{id_}", document("BGPPeer", spec))


def _good_filter(id_: str, spec: str) -> Taken:
    return Taken(f"filter-{id_}", document("BGPFilter", spec))


TAKEN = [
    _good_config("empty", ""),
    _good_config("of-a-node", "listenPort: 1179, logSeverityScreen: DEBUG", "name: node.a"),
    _good_config("as-text", "asNumber: '65000'"),
    _good_config("as-dotted", "asNumber: '1.10'"),
    _good_config("as-largest", "asNumber: 4294967295"),
    _good_config("service-address", "serviceExternalIPs: [{cidr: 10.0.0.1}]"),
    _good_config("large-community", "prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: ['4294967295:0:1']}]"),
    _good_config("community-by-name", "communities: [{name: a, value: '1:1'}, {name: b, value: '1:2'}], prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: [a]}]"),
    _good_config("interfaces", "ignoredInterfaces: ['cali*', kube-ipvs0, 'a.b_c']"),
    _good_config("restart", "nodeMeshMaxRestartTime: 2m0.5s"),
    _good_config("no-mesh", "nodeToNodeMeshEnabled: false"),
    _good_config("routes", "programClusterRoutes: EnabledNoEncapOnly, ipv4NormalRoutePriority: 2147483646"),
    _good_peer("global", "peerIP: 192.0.2.1, asNumber: 64512"),
    _good_peer("empty", ""),
    _good_peer("port", "peerIP: '192.0.2.1:1179'"),
    _good_peer("port-v6", "peerIP: '[fd00::1]:1179', reachableBy: 'fd00::2'"),
    _good_peer("nodes", "nodeSelector: has(rack), peerSelector: all(), asNumber: 0"),
    _good_peer("workloads", "localWorkloadSelector: has(bgp), asNumber: '1.1'"),
    _good_peer("keep", "peerIP: 1.2.3.4, keepOriginalNextHop: false, nextHopMode: Keep"),
    _good_peer("ttl", "peerIP: 1.2.3.4, ttlSecurity: 255, numAllowedLocalASNumbers: 0"),
    _good_peer("filters", "peerIP: 1.2.3.4, filters: [a.b, c-1]"),
    _good_filter("empty", ""),
    _good_filter("all", "importV4: [{action: Accept}], exportV6: [{action: Reject}]"),
    _good_filter("length-0", "importV4: [{action: Reject, cidr: 0.0.0.0/0, matchOperator: In, prefixLength: {min: 0, max: 0}}]"),
    _good_filter("matches", "exportV4: [{action: Accept, source: RemotePeers, interface: '*.cali', peerType: iBGP, asPathPrefix: ['1.10', 7], communities: {values: ['0:0']}, priority: 1}]"),
    _good_filter("operations", "exportV6: [{action: Accept, operations: [{addCommunity: {value: '1:2:4294967295'}}, {prependASPath: {prefix: [1, '1.1']}}, {setPriority: {value: 2147483646}}]}]"),
]  # fmt: skip
