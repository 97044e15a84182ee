"""Rules of Node and CalicoNodeStatus (docs/reference/data-model.md#node, #caliconodestatus).

Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from libcalico.model.resources.node import Node
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from libcalico.model.validation import bgp as validate_bgp
from libcalico.model.validation.checks import Problems, indexed

ADDRESS_TYPES = ("CalicoNodeIP", "InternalIP", "ExternalIP")
CLASSES = ("Agent", "BGP", "Routes")
MAX_PERIOD = 86_400
DAEMON_STATES = ("Ready", "NotReady")
PEER_TYPES = ("NodeMesh", "NodePeer", "GlobalPeer")
PEER_STATES = (
    "Idle",
    "Connect",
    "Active",
    "OpenSent",
    "OpenConfirm",
    "Established",
    "Close",
)
ROUTE_SOURCES = ("Kernel", "Static", "Direct", "NodeMesh", "BGPPeer")


def check(node: Node, problems: Problems) -> None:
    """Check a node."""
    spec, status = node.spec, node.status
    bgp = spec.bgp
    if bgp is not None:
        if bgp == type(bgp)():
            problems.add("spec.bgp", "{}", "must not be empty: leave it out")
        validate_bgp.as_number(problems, "spec.bgp.asNumber", bgp.asNumber)
        for version, address in ((4, bgp.ipv4Address), (6, bgp.ipv6Address)):
            if address:
                problems.network(f"spec.bgp.ipv{version}Address", address, version, host_bits=True)
        problems.address("spec.bgp.ipv4IPIPTunnelAddr", bgp.ipv4IPIPTunnelAddr, 4)
        problems.address("spec.bgp.routeReflectorClusterID", bgp.routeReflectorClusterID, 4)
    problems.address("spec.ipv4VXLANTunnelAddr", spec.ipv4VXLANTunnelAddr, 4)
    problems.address("spec.ipv6VXLANTunnelAddr", spec.ipv6VXLANTunnelAddr, 6)
    problems.mac("spec.vxlanTunnelMACAddr", spec.vxlanTunnelMACAddr)
    problems.mac("spec.vxlanTunnelMACAddrV6", spec.vxlanTunnelMACAddrV6)
    if spec.wireguard is not None:
        wireguard = spec.wireguard
        problems.address("spec.wireguard.interfaceIPv4Address", wireguard.interfaceIPv4Address, 4)
        problems.address("spec.wireguard.interfaceIPv6Address", wireguard.interfaceIPv6Address, 6)
    for where, row in indexed("spec.addresses", spec.addresses):
        problems.network(f"{where}.address", row.address, host_bits=True)
        problems.one_of(f"{where}.type", row.type, ADDRESS_TYPES)
    problems.wireguard_key("status.wireguardPublicKey", status.wireguardPublicKey)
    problems.wireguard_key("status.wireguardPublicKeyV6", status.wireguardPublicKeyV6)


def check_status(report: CalicoNodeStatus, problems: Problems) -> None:
    """Check a request for a node's report, and the report itself."""
    spec = report.spec
    problems.name("spec.node", spec.node, "must name a node")
    if not spec.classes:
        problems.add("spec.classes", [], "must name at least one of " + ", ".join(CLASSES))
    problems.each_once("spec.classes", spec.classes, CLASSES)
    if spec.updatePeriodSeconds is None:
        problems.add("spec.updatePeriodSeconds", None, f"is required: 0 to {MAX_PERIOD}")
    problems.limits("spec.updatePeriodSeconds", spec.updatePeriodSeconds, 0, MAX_PERIOD)
    _report(report, problems)


def _report(report: CalicoNodeStatus, problems: Problems) -> None:
    status = report.status
    for family in ("V4", "V6"):
        daemon = getattr(status.agent, f"bird{family}")
        problems.one_of(f"status.agent.bird{family}.state", daemon.state, DAEMON_STATES)
        peers = getattr(status.bgp, f"peers{family}")
        for where, peer in indexed(f"status.bgp.peers{family}", peers):
            problems.address(f"{where}.peerIP", peer.peerIP)
            problems.one_of(f"{where}.type", peer.type, PEER_TYPES)
            problems.one_of(f"{where}.state", peer.state, PEER_STATES)
        routes = getattr(status.routes, f"routes{family}")
        for where, route in indexed(f"status.routes.routes{family}", routes):
            source = route.learnedFrom
            problems.one_of(f"{where}.type", route.type, ("FIB", "RIB"))
            problems.one_of(f"{where}.learnedFrom.sourceType", source.sourceType, ROUTE_SOURCES)
            problems.address(f"{where}.learnedFrom.peerIP", source.peerIP)
