"""Rules of BGPConfiguration and BGPPeer (docs/reference/data-model.md#bgpconfiguration, #bgppeer).

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from libcalico.model.base.numorstring import MAX_AS_NUMBER
from libcalico.model.resources.bgp import BGPConfiguration, BGPPassword, BGPPeer
from libcalico.model.validation.checks import CLUSTER_ROUTES, INTERFACE_PATTERN, Problems, indexed

LOG_LEVELS = ("Trace", "Debug", "Info", "Warning", "Error", "Fatal")
COMMUNITY = re.compile(r"\d+:\d+(:\d+)?", re.ASCII)
LOCAL_AS_NUMBERS = (0, 2**31 - 1)
MAX_PRIORITY = 2_147_483_646
MAX_COMMUNITIES = MAX_ADVERTISEMENTS = 500
DEFAULT_ONLY = (
    "nodeToNodeMeshEnabled",
    "asNumber",
    "serviceLoadBalancerIPs",
    "serviceExternalIPs",
    "serviceClusterIPs",
    "nodeMeshPassword",
    "nodeMeshMaxRestartTime",
)


def as_number(problems: Problems, field: str, value: int | None) -> None:
    """An AS number, where set."""
    problems.limits(field, value, 0, MAX_AS_NUMBER)


def check_configuration(config: BGPConfiguration, problems: Problems) -> None:
    """Check BGP settings."""
    spec = config.spec
    problems.word("spec.logSeverityScreen", spec.logSeverityScreen, LOG_LEVELS)
    if config.metadata.name != "default":
        for field in DEFAULT_ONLY:
            value = getattr(spec, field)
            if value not in (None, []):
                rule = "only the BGPConfiguration named default may set it"
                problems.add(f"spec.{field}", value if isinstance(value, int) else "...", rule)
    as_number(problems, "spec.asNumber", spec.asNumber)
    if spec.listenPort:
        problems.limits("spec.listenPort", spec.listenPort, 1, 65535)
    for field in ("serviceLoadBalancerIPs", "serviceExternalIPs", "serviceClusterIPs"):
        for where, block in indexed(f"spec.{field}", getattr(spec, field)):
            if block.cidr:
                problems.network(f"{where}.cidr", block.cidr)
    aggregation = spec.serviceLoadBalancerAggregation
    problems.one_of("spec.serviceLoadBalancerAggregation", aggregation, ("Enabled", "Disabled"))
    _communities(config, problems)
    mesh_off = spec.nodeToNodeMeshEnabled is False
    for field in ("nodeMeshPassword", "nodeMeshMaxRestartTime"):
        if mesh_off and getattr(spec, field) is not None:
            problems.add(f"spec.{field}", "...", "only with nodeToNodeMeshEnabled")
    _password(problems, "spec.nodeMeshPassword", spec.nodeMeshPassword)
    problems.duration("spec.nodeMeshMaxRestartTime", spec.nodeMeshMaxRestartTime)
    problems.one_of("spec.bindMode", spec.bindMode, ("None", "NodeIP"))
    for where, pattern in indexed("spec.ignoredInterfaces", spec.ignoredInterfaces):
        if pattern == "*" or not INTERFACE_PATTERN.fullmatch(pattern):
            rule = "must be an interface's name, with * for any characters but not alone"
            problems.add(where, pattern, rule)
    problems.address("spec.localWorkloadPeeringIPV4", spec.localWorkloadPeeringIPV4, 4)
    problems.address("spec.localWorkloadPeeringIPV6", spec.localWorkloadPeeringIPV6, 6)
    problems.one_of("spec.programClusterRoutes", spec.programClusterRoutes, CLUSTER_ROUTES)
    for version in (4, 6):
        field = f"ipv{version}NormalRoutePriority"
        problems.limits(f"spec.{field}", getattr(spec, field), 1, MAX_PRIORITY)


def _communities(config: BGPConfiguration, problems: Problems) -> None:
    spec = config.spec
    problems.entries("spec.communities", spec.communities, MAX_COMMUNITIES)
    problems.entries("spec.prefixAdvertisements", spec.prefixAdvertisements, MAX_ADVERTISEMENTS)
    if spec.communities and not spec.prefixAdvertisements:
        rule = "are used by no prefixAdvertisement"
        problems.add("spec.communities", f"{len(spec.communities)} communities", rule)
    names = set()
    for where, community in indexed("spec.communities", spec.communities):
        problems.name(f"{where}.name", community.name, "a name is required")
        check_community(problems, f"{where}.value", community.value)
        names.add(community.name)
    for where, advertisement in indexed("spec.prefixAdvertisements", spec.prefixAdvertisements):
        problems.network(f"{where}.cidr", advertisement.cidr)
        if not 1 <= len(advertisement.communities) <= 50:
            problems.add(
                f"{where}.communities", len(advertisement.communities), "1 to 50 communities"
            )
        for field, text in indexed(f"{where}.communities", advertisement.communities):
            if text not in names:
                check_community(problems, field, text, otherwise=" or a name of spec.communities")


def check_community(
    problems: Problems,
    field: str,
    value: str | None,
    pattern: re.Pattern[str] = COMMUNITY,
    otherwise: str = "",
) -> None:
    """Check a standard or large community; `otherwise` names what else is allowed."""
    parts = [int(part) for part in value.split(":")] if value and pattern.fullmatch(value) else []
    if not parts or max(parts) > (0xFFFF if len(parts) == 2 else 0xFFFFFFFF):
        rule = f"must be aa:nn (16 bits each) or aa:nn:mm (32 bits each){otherwise}"
        problems.add(field, value, rule)


def _password(problems: Problems, field: str, password: BGPPassword | None) -> None:
    if password is not None and password.secretKeyRef is not None and not password.secretKeyRef.key:
        problems.add(f"{field}.secretKeyRef.key", "", "must name a key of the secret")


def check_peer(peer: BGPPeer, problems: Problems) -> None:
    """Check a peering."""
    spec = peer.spec
    problems.name("spec.node", spec.node)
    if spec.node and spec.nodeSelector:
        problems.add("spec.nodeSelector", spec.nodeSelector, "not together with spec.node")
    problems.selector("spec.nodeSelector", spec.nodeSelector)
    problems.selector("spec.peerSelector", spec.peerSelector)
    problems.selector("spec.localWorkloadSelector", spec.localWorkloadSelector)
    peers = [
        name for name in ("peerIP", "peerSelector", "localWorkloadSelector") if getattr(spec, name)
    ]
    if len(peers) > 1:
        problems.add(
            f"spec.{peers[1]}", getattr(spec, peers[1]), f"not together with spec.{peers[0]}"
        )
    peer_ip = peer_address(spec.peerIP) if spec.peerIP else None
    if spec.peerIP and peer_ip is None:
        problems.add("spec.peerIP", spec.peerIP, "must be <ip>, <ipv4>:<port> or [<ipv6>]:<port>")
    as_number(problems, "spec.asNumber", spec.asNumber)
    as_number(problems, "spec.localASNumber", spec.localASNumber)
    if spec.peerSelector and spec.asNumber:
        problems.add("spec.asNumber", spec.asNumber, "must be empty with spec.peerSelector")
    if spec.localWorkloadSelector and not spec.asNumber:
        problems.add("spec.asNumber", spec.asNumber, "is required with spec.localWorkloadSelector")
    problems.one_of("spec.nextHopMode", spec.nextHopMode, ("Auto", "Self", "Keep"))
    if spec.keepOriginalNextHop and spec.nextHopMode:
        problems.add("spec.nextHopMode", spec.nextHopMode, "not together with keepOriginalNextHop")
    problems.one_of("spec.sourceAddress", spec.sourceAddress, ("UseNodeIP", "None"))
    problems.one_of("spec.reversePeering", spec.reversePeering, ("Auto", "Manual"))
    _password(problems, "spec.password", spec.password)
    problems.duration("spec.maxRestartTime", spec.maxRestartTime)
    problems.duration("spec.keepaliveTime", spec.keepaliveTime)
    local = spec.numAllowedLocalASNumbers
    problems.limits("spec.numAllowedLocalASNumbers", local, *LOCAL_AS_NUMBERS)
    for where, name in indexed("spec.filters", spec.filters):
        problems.name(where, name, "must name a BGPFilter")
    problems.limits("spec.ttlSecurity", spec.ttlSecurity, 0, 255)
    if spec.reachableBy:
        problems.host("spec.reachableBy", spec.reachableBy)
        if not spec.peerIP:
            problems.add("spec.reachableBy", spec.reachableBy, "needs spec.peerIP")
        elif peer_ip is not None and (":" in peer_ip[0]) != (":" in spec.reachableBy):
            problems.add(
                "spec.reachableBy", spec.reachableBy, "must be of the family of spec.peerIP"
            )


def peer_address(text: str) -> tuple[str, int] | None:
    """Address and port (0: none given) of a `peerIP`, or None when it is not one."""
    address, port = text, ""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or not rest.startswith(":"):
            return None
        port = rest[1:]
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        ip_address(address)
    except ValueError:
        return None
    if "%" in address:
        return None
    if text != address and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        return None
    return address, int(port or 0)
