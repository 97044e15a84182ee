"""Peerings -> sessions of one node: the mesh, and what a BGPPeer gives it. Pure.

A BGPPeer selects nodes and names their peers: an address, or nodes by selector. A
peering between nodes works from both its ends unless `reversePeering` is Manual. Tested in
tests/bgp/test_peering.py and test_peer_settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from bgp.cluster.nodes import NodeView
from bgp.cluster.view import ClusterView
from bgp.peering import reflectors
from bgp.peering.peer_terms import NotHeld, PeerTerms, parse_peer_ip, password_of, seconds, terms_of
from bgp.peering.planned import GLOBAL, MESH, NODE, Local, PlannedPeer
from bgp.routes.reflection import is_client
from bgp.speaker.interface import (
    BGP_PORT,
    DEFAULT_RESTART_TIME,
    Family,
    IPAddress,
    Peer,
)
from libcalico.model.resources.bgp import BGPPeerSpec
from libcalico.selectors import selectors

DEFAULT_AS = 64512


@dataclass(frozen=True, slots=True)
class _Target:
    """One end of a peering that is not ours; `node` is its name, if it is a node."""

    address: IPAddress
    port: int
    remote_as: int
    node: str = ""


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
        for _, node in sorted(view.nodes.items())
        if node.name != view.me
        and not node.cluster_id
        and (not chosen or node.name in chosen or view.me in chosen)
    ]
    if not others:
        return []
    terms = PeerTerms(
        restart_time=seconds(
            "nodeMeshMaxRestartTime", view.defaults.nodeMeshMaxRestartTime, DEFAULT_RESTART_TIME
        ),
        password=password_of("spec.nodeMeshPassword", view.defaults.nodeMeshPassword, local),
    )
    targets = [
        _Target(address, listen_port(view, node.name), as_of(view, node), node.name)
        for node in others
        for address in _others(node, local)
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
    terms = terms_of(view, local, spec)
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
        for address in _others(view.nodes[name], local)
    ]


def _others(node: NodeView, local: Local) -> tuple[IPAddress, ...]:
    """A node's addresses that are not ours: the old Node of a host that was renamed has ours."""
    return tuple(each for each in node.addresses if each not in local.node.addresses)


def _planned(local: Local, target: _Target, kind: str, terms: PeerTerms) -> PlannedPeer:
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
    me, other = local.node.name, target.node
    own_cluster, other_cluster = local.clusters.get(me, ""), local.clusters.get(other, "")
    joins = not local.fresh.isdisjoint((me, other))
    if joins or (me in local.former) != (other in local.former):
        other_cluster = ""  # one of them takes the other's place, or joins it (RFL-6)
    return PlannedPeer(
        peer,
        kind,
        in_cluster,
        terms.allowed_local_as,
        node=target.node,
        filters=terms.filters,
        next_hop=terms.next_hop,
        client=is_client(own_cluster, other_cluster, peer.internal),
        own_cluster=own_cluster,
        reachable_by=terms.reachable_by,
        joins=me in local.fresh,
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
