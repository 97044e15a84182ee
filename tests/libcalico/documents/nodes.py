"""Node, CalicoNodeStatus, WorkloadEndpoint, HostEndpoint (docs/reference/data-model.md#node,
#workloadendpoint, #hostendpoint, #caliconodestatus)."""

# A case is a line, however long.
# ruff: noqa: E501
from __future__ import annotations

from tests.libcalico.documents import Refused, Taken, document

WEP = (
    "orchestrator: k8s, node: n1, pod: web, endpoint: eth0, interfaceName: cali1,"
    " ipNetworks: [10.0.0.1/32]"
)
WEP_NAME = "name: n1-k8s-web-eth0"
KEY = "A" * 43 + "="
GOOD_STATUS = "node: n1, classes: [BGP], updatePeriodSeconds: 10"


def _node(id_: str, spec: str, path: str, rule: str, tail: str = "") -> Refused:
    return Refused(f"node-{id_}", document("Node", spec, tail=tail), path, rule)


def _wep(id_: str, spec: str, path: str, rule: str, base: str = WEP) -> Refused:
    text = document("WorkloadEndpoint", f"{base}, {spec}".rstrip(", "), WEP_NAME)
    return Refused(f"wep-{id_}", text, path, rule)


def _hep(id_: str, spec: str, path: str, rule: str) -> Refused:
    return Refused(f"hep-{id_}", document("HostEndpoint", spec), path, rule)


def _status(id_: str, spec: str, path: str, rule: str) -> Refused:
    return Refused(f"status-{id_}", document("CalicoNodeStatus", spec), path, rule)


def _reported(id_: str, status: str, path: str, rule: str) -> Refused:
    text = document("CalicoNodeStatus", GOOD_STATUS, tail=f"status: {{{status}}}")
    return Refused(f"status-{id_}", text, path, rule)


REFUSED = [
    _node("bgp-empty", "bgp: {}", "spec.bgp", "not be empty"),
    _node("address", "bgp: {ipv4Address: 10.0.0.300}", "spec.bgp.ipv4Address", "IPv4"),
    _node("address-family", "bgp: {ipv6Address: 10.0.0.1/24}", "spec.bgp.ipv6Address", "IPv6"),
    _node("as", "bgp: {asNumber: -1, ipv4Address: 10.0.0.1}", "spec.bgp.asNumber", "4294967295"),
    _node("tunnel", "bgp: {ipv4IPIPTunnelAddr: 10.0.0.1/32}", "spec.bgp.ipv4IPIPTunnelAddr", "IPv4"),
    _node("cluster-id", "bgp: {routeReflectorClusterID: '1'}", "spec.bgp.routeReflectorClusterID", "IPv4"),
    _node("vxlan", "ipv4VXLANTunnelAddr: 'fd00::1'", "spec.ipv4VXLANTunnelAddr", "IPv4"),
    _node("vxlan-v6", "ipv6VXLANTunnelAddr: 10.0.0.1", "spec.ipv6VXLANTunnelAddr", "IPv6"),
    _node("mac", "vxlanTunnelMACAddr: '66:00:00:00:00'", "spec.vxlanTunnelMACAddr", "MAC"),
    _node("mac-v6", "vxlanTunnelMACAddrV6: '66-00:00:00:00:00'", "spec.vxlanTunnelMACAddrV6", "MAC"),
    _node("wireguard", "wireguard: {interfaceIPv4Address: x}", "spec.wireguard.interfaceIPv4Address", "IPv4"),
    _node("address-type", "addresses: [{address: 10.0.0.1, type: Internal}]", "spec.addresses[0].type", "InternalIP"),
    _node("address-none", "addresses: [{type: InternalIP}]", "spec.addresses[0].address", "CIDR"),
    _node("orchestrator", "orchRefs: [{orchestrator: [k8s]}]", "spec.orchRefs[0].orchestrator", "text"),
    _node("key", "", "status.wireguardPublicKey", "32 bytes", "status: {wireguardPublicKey: AAAA}"),
    _node("key_text", "", "status.wireguardPublicKey", "base64", "status: {wireguardPublicKey: ä}"),
    _node("unknown", "hostname: a", "spec.hostname", "no such field"),
    _wep("name", "", "metadata.name", "n1-k8s-db-eth0", WEP.replace("pod: web", "pod: db")),
    _wep("node", "", "spec.node", "empty", WEP.replace("node: n1", "node: ''")),
    _wep("interface", "", "spec.interfaceName", "1 to 15", WEP.replace("cali1", "a-long-interface")),
    _wep("network", "", "spec.ipNetworks[0]", "single address", WEP.replace("10.0.0.1/32", "10.0.0.0/24")),
    _wep("network-text", "", "spec.ipNetworks[0]", "CIDR", WEP.replace("10.0.0.1/32", "x")),
    _wep("container", "containerID: a_b", "spec.containerID", "digits"),
    _wep("account", "serviceAccountName: A", "spec.serviceAccountName", "lower-case"),
    _wep("nat", "ipNATs: [{internalIP: 10.0.0.2, externalIP: 192.0.2.1}]", "spec.ipNATs[0].internalIP", "ipNetworks"),
    _wep("nat-family", "ipNATs: [{internalIP: 10.0.0.1, externalIP: 'fd00::1'}]", "spec.ipNATs[0].externalIP", "family"),
    _wep("gateway", "ipv4Gateway: 'fd00::1'", "spec.ipv4Gateway", "IPv4"),
    _wep("gateway-v6", "ipv6Gateway: 10.0.0.1", "spec.ipv6Gateway", "IPv6"),
    _wep("profile", "profiles: [kns.Default]", "spec.profiles[0]", "lower-case"),
    _wep("mac", "mac: zz", "spec.mac", "MAC"),
    _wep("port-protocol", "ports: [{name: a, protocol: ICMP, port: 1}]", "spec.ports[0].protocol", "SCTP"),
    _wep("port-0", "ports: [{name: a, protocol: TCP, port: 0}]", "spec.ports[0].port", "1 to 65535"),
    _wep("port-name", "ports: [{name: A, protocol: TCP, port: 1}]", "spec.ports[0].name", "lower-case"),
    _wep("port-unnamed", "ports: [{protocol: TCP, port: 1}]", "spec.ports[0].name", "hostPort"),
    _wep("port-host-ip", "ports: [{name: a, protocol: TCP, port: 1, hostIP: x}]", "spec.ports[0].hostIP", "CIDR"),
    _wep("spoofing", "allowSpoofedSourcePrefixes: [x]", "spec.allowSpoofedSourcePrefixes[0]", "CIDR"),
    _wep("dscp", "qosControls: {dscp: 64}", "spec.qosControls.dscp", "0 to 63"),
    _wep("dscp-name", "qosControls: {dscp: AF44}", "spec.qosControls.dscp", "AF41"),
    _wep("qos", "qosControls: {ingressBandwidth: 1M}", "spec.qosControls.ingressBandwidth", "whole number"),
    _hep("nothing", "node: n1", "spec.interfaceName", "interfaceName or expectedIPs"),
    _hep("no-node", "interfaceName: eth0", "spec.node", "must name"),
    _hep("node", "node: N1, interfaceName: eth0", "spec.node", "lower-case"),
    _hep("interface", "node: n1, interfaceName: 'eth*'", "spec.interfaceName", "* for all"),
    _hep("interface-long", "node: n1, interfaceName: abcdefghijklmnop", "spec.interfaceName", "1 to 15"),
    _hep("address", "node: n1, expectedIPs: [10.0.0.0/24]", "spec.expectedIPs[0]", "IP address"),
    _hep("profile", "node: n1, interfaceName: '*', profiles: ['-a']", "spec.profiles[0]", "lower-case"),
    _hep("port-unnamed", "node: n1, interfaceName: '*', ports: [{protocol: TCP, port: 1}]", "spec.ports[0].name", "needs a name"),
    _hep("port-name", "node: n1, interfaceName: '*', ports: [{name: '80', protocol: TCP, port: 1}]", "spec.ports[0].name", "one letter"),
    _hep("port", "node: n1, interfaceName: '*', ports: [{name: a, protocol: TCP, port: 65536}]", "spec.ports[0].port", "65535"),
    _hep("port-protocol", "node: n1, interfaceName: '*', ports: [{name: a, protocol: tcp, port: 1}]", "spec.ports[0].protocol", "TCP"),
    _status("node", "classes: [BGP], updatePeriodSeconds: 10", "spec.node", "name a node"),
    _status("classes", "node: n1, updatePeriodSeconds: 10", "spec.classes", "at least one"),
    _status("class", "node: n1, classes: [bgp], updatePeriodSeconds: 10", "spec.classes[0]", "Routes"),
    _status("class-twice", "node: n1, classes: [BGP, BGP], updatePeriodSeconds: 10", "spec.classes[1]", "already"),
    _status("period", "node: n1, classes: [BGP], updatePeriodSeconds: 86401", "spec.updatePeriodSeconds", "86400"),
    _status("period-none", "node: n1, classes: [BGP]", "spec.updatePeriodSeconds", "required"),
    _status("period-text", "node: n1, classes: [BGP], updatePeriodSeconds: 10s", "spec.updatePeriodSeconds", "whole number"),
]  # fmt: skip


def _good(kind: str, id_: str, spec: str, metadata: str = "", tail: str = "") -> Taken:
    return Taken(f"{kind}-{id_}", document(kind, spec, metadata, tail))


REPORTED = [
    _reported("daemon", "agent: {birdV4: {state: Up}}", "status.agent.birdV4.state", "NotReady"),
    _reported("peer-address", "bgp: {peersV4: [{peerIP: here}]}", "status.bgp.peersV4[0].peerIP", "IP address"),
    _reported("peer-type", "bgp: {peersV6: [{peerIP: 'fd00::1', type: Peer}]}", "status.bgp.peersV6[0].type", "NodeMesh"),
    _reported("peer-state", "bgp: {peersV4: [{peerIP: 10.0.0.1, state: Up}]}", "status.bgp.peersV4[0].state", "Established"),
    _reported("route-type", "routes: {routesV4: [{type: Kernel}]}", "status.routes.routesV4[0].type", "FIB"),
    _reported("route-source", "routes: {routesV6: [{type: FIB, learnedFrom: {sourceType: Mesh}}]}", "status.routes.routesV6[0].learnedFrom.sourceType", "NodeMesh"),
    _reported("route-peer", "routes: {routesV4: [{learnedFrom: {peerIP: here}}]}", "status.routes.routesV4[0].learnedFrom.peerIP", "IP address"),
]  # fmt: skip
"""Status, which an API server takes by itself only."""

TAKEN = [
    _good("Node", "empty", ""),
    _good("Node", "bgp", "bgp: {asNumber: '64512', ipv4Address: 10.0.0.5/24, ipv6Address: 'fd00::5'}"),
    _good("Node", "route-reflector", "bgp: {routeReflectorClusterID: 244.0.0.1}"),
    _good("Node", "macs", "vxlanTunnelMACAddr: '66:AB:cd:00:00:01', vxlanTunnelMACAddrV6: 66ab.cd00.0001"),
    _good("Node", "mac-64", "vxlanTunnelMACAddr: '02-00-5e-10-00-00-00-01'"),
    _good("Node", "address-of-an-interface", "addresses: [{address: 10.0.0.5/24, type: CalicoNodeIP}]"),
    _good("Node", "interfaces", "interfaces: [{name: eth0, addresses: [10.0.0.1]}, {}]"),
    _good("Node", "key", "", "", f"status: {{wireguardPublicKey: {KEY}, podCIDRs: [10.0.0.0/24]}}"),
    _good("WorkloadEndpoint", "plain", WEP, WEP_NAME),
    _good("WorkloadEndpoint", "bare-address", WEP.replace("/32", ""), WEP_NAME),
    _good("WorkloadEndpoint", "named-by-default", WEP, "name: n1-k8s-web-eth0"),
    _good("WorkloadEndpoint", "host-port", f"{WEP}, ports: [{{protocol: 17, port: 53, hostPort: 53}}]", WEP_NAME),
    _good("WorkloadEndpoint", "spoofing", f"{WEP}, allowSpoofedSourcePrefixes: [10.0.0.1/8, '::1']", WEP_NAME),
    _good("WorkloadEndpoint", "qos", f"{WEP}, qosControls: {{egressPacketRate: 1, dscp: ef}}", WEP_NAME),
    _good("WorkloadEndpoint", "container", f"{WEP}, containerID: 0aF-9", WEP_NAME),
    _good("HostEndpoint", "all", "node: n1, interfaceName: '*', ports: [{name: http-1, protocol: 6, port: 65535}]"),
    _good("HostEndpoint", "by-address", "node: n1, expectedIPs: [10.0.0.1, 'fd00::1']"),
    _good("CalicoNodeStatus", "frozen", "node: n1, classes: [Agent, BGP, Routes], updatePeriodSeconds: 0"),
]  # fmt: skip
