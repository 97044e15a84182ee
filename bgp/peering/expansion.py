"""Peerings -> sessions of one node: the mesh, and what a BGPPeer gives it. Pure.

A BGPPeer selects nodes and names whom they peer with: an address, or nodes by selector. A
peering between nodes works from both its ends unless `reversePeering` is Manual. Tested in
tests/bgp/test_peering.py and test_peer_settings.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from bgp.cluster.view import ClusterView, NodeView
from bgp.peering import reflectors
from bgp.peering.passwords import SecretRef
from bgp.peering.planned import GLOBAL, MESH, NODE, Local, PlannedPeer
from bgp.routes import filters as bgp_filters
from bgp.routes.export_policy import NextHop
from bgp.routes.reflection import is_client
from bgp.speaker.interface import (
    BGP_PORT,
    DEFAULT_RESTART_TIME,
    Family,
    IPAddress,
    Peer,
)
from libcalico import durations
from libcalico.errors import MuslinError
from libcalico.host_address import A_HOST, is_host
from libcalico.model.resources.bgp import BGPPassword, BGPPeerSpec
from libcalico.selectors import selectors

DEFAULT_AS = 64512


class NotHeld(MuslinError):
    """The reason of a refusal."""


@dataclass(frozen=True, slots=True)
class _Target:
    """One end of a peering that is not ours; `node` is its name, if it is a node."""

    address: IPAddress
    port: int
    remote_as: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a peering asks of its sessions."""

    restart_time: int = DEFAULT_RESTART_TIME
    keepalive: int = 0
    password: str = ""
    local_as: int | None = None
    ttl_security: int = 0
    allowed_local_as: int = 0
    any_source: bool = False
    filters: tuple[str, ...] = ()
    next_hop: NextHop = NextHop.AUTO
    reachable_by: IPAddress | None = None


def passive(own: IPAddress, other: IPAddress) -> bool:
    """Whether we wait for a node of the cluster to dial (BGP-5). Calico compares text, too."""
    return str(other) > str(own)


def mesh(view: ClusterView, local: Local) -> list[PlannedPeer]:
    """The sessions of the node-to-node mesh, or with the reflectors that stand in for it."""
    if view.defaults.nodeToNodeMeshEnabled is False or local.node.cluster_id:
        return []
    chosen = {node.name for node in reflectors.automatic(view)}
    others = [
        node
        for node in view.nodes.values()
        if node.name != view.me
        and not node.cluster_id
        and (not chosen or node.name in chosen or view.me in chosen)
    ]
    if not others:
        return []
    terms = _Terms(
        restart_time=_seconds(
            "nodeMeshMaxRestartTime", view.defaults.nodeMeshMaxRestartTime, DEFAULT_RESTART_TIME
        ),
        password=_password("spec.nodeMeshPassword", view.defaults.nodeMeshPassword, local),
    )
    targets = [
        _Target(address, listen_port(view, node.name), as_of(view, node), node.name)
        for node in others
        for address in node.addresses
        if local.node.address(address.version) is not None
    ]
    return [_planned(local, target, MESH, terms) for target in targets]


def explicit(view: ClusterView, local: Local, spec: BGPPeerSpec) -> list[PlannedPeer]:
    """The sessions that one BGPPeer gives this node, from either end of it."""
    named = _selected(view, spec.node, spec.nodeSelector)
    if spec.localWorkloadSelector:
        if view.me in named:
            raise NotHeld("spec.localWorkloadSelector: peering with workloads is not served yet")
        return []
    targets = _targets(view, local, spec, named)
    if not targets:
        return []
    kind = NODE if spec.node or spec.nodeSelector else GLOBAL
    terms = _terms(view, local, spec)
    planned = []
    for target in targets:
        version = target.address.version
        if local.node.address(version) is None:
            if spec.peerSelector:
                continue
            missing = f"{target.address}: this node has no IPv{version} address"
            raise NotHeld(f"spec.peerIP: {missing}")
        if not target.remote_as:
            raise NotHeld("spec.asNumber: 0 is not valid: the AS number of the peer is needed")
        planned.append(_planned(local, target, kind, terms))
    return planned


def _targets(view: ClusterView, local: Local, spec: BGPPeerSpec, named: list[str]) -> list[_Target]:
    if not spec.peerSelector:
        if view.me not in named:
            return []
        address, port = parse_peer_ip(spec.peerIP)
        if address in local.node.addresses:
            return []
        owner = view.owner(address)
        remote_as = spec.asNumber or (as_of(view, owner) if owner else 0)
        return [_Target(address, port, remote_as, owner.name if owner else "")]
    chosen = _selected(view, "", spec.peerSelector)
    others = set(chosen) if view.me in named else set()
    if spec.reversePeering != "Manual" and view.me in chosen:
        others |= set(named)
    others.discard(view.me)
    return [
        _Target(address, listen_port(view, name), as_of(view, view.nodes[name]), name)
        for name in sorted(others)
        for address in view.nodes[name].addresses
    ]


def _terms(view: ClusterView, local: Local, spec: BGPPeerSpec) -> _Terms:
    """What a BGPPeer asks for. Raises `NotHeld` or `ValueError` for what cannot be (BGP-6)."""
    if spec.ttlSecurity and not 0 < spec.ttlSecurity < 255:
        raise NotHeld(f"spec.ttlSecurity: {spec.ttlSecurity} is not valid: 1 to 254 hops")
    for name in spec.filters:
        if name not in view.filters:
            raise NotHeld(f"spec.filters: there is no BGPFilter {name!r}")
        bgp_filters.compiled(name, view.filters[name])
    if spec.numAllowedLocalASNumbers is not None and spec.numAllowedLocalASNumbers < 0:
        value = spec.numAllowedLocalASNumbers  # it would refuse every path
        raise NotHeld(f"spec.numAllowedLocalASNumbers: {value} is not valid: 0 or more")
    keepalive = _seconds("keepaliveTime", spec.keepaliveTime, 0)
    return _Terms(
        restart_time=_seconds("maxRestartTime", spec.maxRestartTime, DEFAULT_RESTART_TIME),
        keepalive=keepalive,
        password=_password("spec.password", spec.password, local),
        local_as=spec.localASNumber,
        ttl_security=spec.ttlSecurity or 0,
        allowed_local_as=spec.numAllowedLocalASNumbers or 0,
        any_source=spec.sourceAddress == "None",
        filters=tuple(spec.filters),
        next_hop=_next_hop(spec),
        reachable_by=_reachable_by(spec),
    )


def _next_hop(spec: BGPPeerSpec) -> NextHop:
    if spec.keepOriginalNextHop and not spec.nextHopMode:
        return NextHop.KEEP_EXTERNAL
    try:
        return NextHop(spec.nextHopMode or "Auto")
    except ValueError:
        rule = "Auto, Self or Keep"
        raise NotHeld(f"spec.nextHopMode: {spec.nextHopMode!r} is not valid: {rule}") from None


def _reachable_by(spec: BGPPeerSpec) -> IPAddress | None:
    if not spec.reachableBy:
        return None
    gateway = ip_address(spec.reachableBy)
    if gateway.version != parse_peer_ip(spec.peerIP)[0].version:
        raise NotHeld(f"spec.reachableBy: {gateway} is not valid: must be of the peer's family")
    if not is_host(gateway):
        raise NotHeld(f"spec.reachableBy: {gateway} is not valid: must be {A_HOST}")
    return gateway


def _password(field: str, reference: BGPPassword | None, local: Local) -> str:
    """The password that a reference names; empty where there is none."""
    if reference is None:
        return ""
    if reference.secretKeyRef is None:
        raise NotHeld(f"{field}: names no secretKeyRef")
    ref = SecretRef(reference.secretKeyRef.name, reference.secretKeyRef.key)
    local.secrets.add(ref)
    if reference.secretKeyRef.optional and ref not in local.passwords.values:
        return ""
    try:
        return local.passwords.get(ref)
    except ValueError as error:
        raise NotHeld(f"{field}: {error}") from error


def _planned(local: Local, target: _Target, kind: str, terms: _Terms) -> PlannedPeer:
    own = local.node.address(target.address.version)
    if own is None:
        raise NotHeld(f"{target.address}: this node has no IPv{target.address.version} address")
    in_cluster = bool(target.node)
    peer = Peer(
        address=target.address,
        remote_as=target.remote_as,
        local_address=own,
        local_as=terms.local_as or local.asn,
        router_id=local.identifier,
        families=(Family.of(target.address),),
        passive=in_cluster and passive(own, target.address),
        port=target.port,
        listen_port=local.port,
        hold_time=local.hold_time,
        restart_time=terms.restart_time,
        keepalive=terms.keepalive,
        ttl_security=terms.ttl_security,
        max_prefixes=local.max_prefixes,
        any_source=terms.any_source,
        listen_any=local.listen_any or terms.any_source,
        password=terms.password,
    )
    own_cluster = local.clusters.get(local.node.name, "")
    return PlannedPeer(
        peer,
        kind,
        in_cluster,
        terms.allowed_local_as,
        node=target.node,
        filters=terms.filters,
        next_hop=terms.next_hop,
        client=is_client(own_cluster, local.clusters.get(target.node, ""), peer.internal),
        own_cluster=own_cluster,
        reachable_by=terms.reachable_by,
    )


def _selected(view: ClusterView, node: str, selector: str) -> list[str]:
    if node:
        return [node] if node in view.nodes else []
    parsed = selectors.parse(selector)
    return [name for name, each in view.nodes.items() if parsed.matches(each.labels)]


def as_of(view: ClusterView, node: NodeView) -> int:
    """The AS number of a node."""
    return node.asn or view.defaults.asNumber or DEFAULT_AS


def listen_port(view: ClusterView, node: str) -> int:
    """The port on which a node listens. A value that is no port counts as not set."""
    own = view.configurations.get(f"node.{node}")
    port: int = (own.listenPort if own is not None else 0) or view.defaults.listenPort or 0
    return port if 0 < port < 65536 else BGP_PORT


def parse_peer_ip(text: str) -> tuple[IPAddress, int]:
    """`ip`, `ip:port` or `[ipv6]:port` as address and port. Raises `ValueError`."""
    match = re.fullmatch(r"\[(.+)\]:(\d+)|([^:]+):(\d+)", text.strip())
    host, port = (match[1] or match[3], int(match[2] or match[4])) if match else (text, BGP_PORT)
    try:
        address = ip_address(host.strip())
    except ValueError:
        rule = "ip, ip:port or [ipv6]:port"
        raise ValueError(f"spec.peerIP: {text!r} is not valid: {rule}") from None
    if address.is_unspecified or address.is_multicast or "%" in str(address):
        # With a zone (fe80::1%eth0) ExaBGP would refuse the whole configuration.
        raise ValueError(f"spec.peerIP: {text!r} is not valid: a host's address without a zone")
    if not 0 < port < 65536:
        raise ValueError(f"spec.peerIP: {text!r} is not valid: a port is 1 to 65535")
    return address, port


def _seconds(field: str, text: str | None, default: int) -> int:
    """A Go duration in whole seconds, at least 1. Raises `ValueError`."""
    if not text:
        return default
    try:
        return max(1, int(durations.parse(text)))
    except ValueError as error:
        raise ValueError(f"{field}: {text!r} is not valid: {error}") from None
