"""Which sessions this node holds. Pure: nodes, BGP settings and peers in, a plan out.

Three sources, as in Calico (dataplane reference 5.6): the node-to-node mesh, global peers
and peers for some nodes; the latter two name an address, or nodes by selector. When two
name the same address, a global peer beats a node-specific one, and both beat the mesh.

  BGP-5  Toward a node of the cluster exactly one end dials: the one whose address is
         greater as text. Two ends that both dial collide again and again.
  BGP-6  A peering with a setting that we cannot honour is refused and named, never held
         with less than was asked (a filter left out would announce too much).
Tested in tests/bgp/test_peering.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Any

from bgp.speaker.interface import (
    BGP_PORT,
    DEFAULT_HOLD_TIME,
    DEFAULT_RESTART_TIME,
    Family,
    IPAddress,
    Peer,
)
from bgp.view import ClusterView, NodeView, router_id
from libcalico import durations, selectors
from libcalico.errors import MuslinError

DEFAULT_AS = 64512

MESH, GLOBAL, NODE = "node-to-node mesh", "global", "node specific"
_RANK = {GLOBAL: 0, NODE: 1, MESH: 2}


@dataclass(frozen=True, slots=True)
class PlannedPeer:
    """A session and what it is: `kind` as `calicoctl node status` names it.

    `in_cluster`: the peer is a node of this cluster (felix allows its routes less).
    `allowed_local_as`: how often our AS number may stand in a path from it.
    """

    peer: Peer
    kind: str
    in_cluster: bool
    allowed_local_as: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A peering that is configured and not held, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All sessions of this node, ordered by address; and what was refused."""

    peers: tuple[PlannedPeer, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What comes from the process environment. Times are seconds."""

    hold_time: int = DEFAULT_HOLD_TIME
    router_id: str = ""


@dataclass(frozen=True, slots=True)
class _Local:
    """This node's side of every session."""

    node: NodeView
    asn: int
    port: int
    identifier: IPv4Address
    hold_time: int


class _NotHeld(MuslinError):
    """The reason of a refusal."""


def plan(view: ClusterView, settings: Settings) -> Plan:
    """The sessions of node `view.me`. A node without BGP addresses has none."""
    me = view.nodes.get(view.me)
    if me is None or not me.addresses:
        return Plan()
    local = _Local(
        node=me,
        asn=me.asn or _global(view, "asNumber") or DEFAULT_AS,
        port=_listen_port(view, me.name),
        identifier=router_id(me, settings.router_id),
        hold_time=settings.hold_time,
    )
    found: dict[IPAddress, PlannedPeer] = {}
    refused: list[Refused] = []

    def collect(source: str, make: Callable[[], Iterable[PlannedPeer]]) -> None:
        try:
            for planned in make():
                known = found.get(planned.peer.address)
                if known is None or _RANK[planned.kind] < _RANK[known.kind]:
                    found[planned.peer.address] = planned
        except (MuslinError, ValueError) as error:
            refused.append(Refused(source, str(error)))

    collect("BGPConfiguration(default)", lambda: _mesh(view, local))
    for name, spec in sorted(view.peers.items()):
        collect(f"BGPPeer({name})", lambda spec=spec: _explicit(view, local, spec))  # type: ignore[misc]
    peers = sorted(found.values(), key=lambda each: _order(each.peer.address))
    return Plan(tuple(peers), tuple(refused))


def passive(own: IPAddress, other: IPAddress) -> bool:
    """Whether we wait for a node of the cluster to dial (BGP-5). Calico compares text, too."""
    return str(other) > str(own)


def _mesh(view: ClusterView, local: _Local) -> Iterable[PlannedPeer]:
    if _global(view, "nodeToNodeMeshEnabled") is False or local.node.cluster_id:
        return []
    others = [node for node in view.nodes.values() if node.name != view.me and not node.cluster_id]
    if others and _global(view, "nodeMeshPassword"):
        raise _NotHeld("spec.nodeMeshPassword: passwords from a Secret are not read yet")
    restart_time = _seconds(_global(view, "nodeMeshMaxRestartTime"), DEFAULT_RESTART_TIME)
    return [
        _planned(
            local,
            address,
            own,
            remote_as=_as_of(view, node),
            kind=MESH,
            in_cluster=True,
            port=_listen_port(view, node.name),
            restart_time=restart_time,
        )
        for node in others
        for address in node.addresses
        if (own := local.node.address(address.version)) is not None
    ]


def _explicit(view: ClusterView, local: _Local, spec: Any) -> Iterable[PlannedPeer]:
    """The sessions that one BGPPeer gives this node, from either end of it."""
    named = _selected(view, spec.node, spec.nodeSelector)
    kind = NODE if spec.node or spec.nodeSelector else GLOBAL
    if spec.localWorkloadSelector:
        if view.me in named:
            raise _NotHeld("spec.localWorkloadSelector: peering with workloads is not served yet")
        return []
    if not spec.peerSelector:
        if view.me not in named:
            return []
        _check_settings(spec)
        address, port = parse_peer_ip(spec.peerIP)
        if address in local.node.addresses:
            return []
        owner = _owner(view, address)
        remote_as = spec.asNumber or (_as_of(view, owner) if owner else 0)
        targets = [(address, port, remote_as, owner is not None)]
    else:
        chosen = _selected(view, "", spec.peerSelector)
        others = set(chosen) if view.me in named else set()
        if spec.reversePeering != "Manual" and view.me in chosen:
            others |= set(named)
        others.discard(view.me)
        if others:
            _check_settings(spec)
        targets = [
            (address, _listen_port(view, name), _as_of(view, view.nodes[name]), True)
            for name in sorted(others)
            for address in view.nodes[name].addresses
        ]
    planned = []
    for address, port, remote_as, in_cluster in targets:
        own = local.node.address(address.version)
        if own is None:
            if spec.peerSelector:
                continue
            raise _NotHeld(f"spec.peerIP: {address}: this node has no IPv{address.version} address")
        if not remote_as:
            raise _NotHeld("spec.asNumber: 0 is not valid: the AS number of the peer is needed")
        planned.append(
            _planned(
                local,
                address,
                own,
                remote_as=remote_as,
                kind=kind,
                in_cluster=in_cluster,
                port=port,
                restart_time=_seconds(spec.maxRestartTime, DEFAULT_RESTART_TIME),
                local_as=spec.localASNumber,
                ttl_security=spec.ttlSecurity or 0,
                allowed_local_as=spec.numAllowedLocalASNumbers or 0,
            )
        )
    return planned


def _check_settings(spec: Any) -> None:
    if spec.password is not None:
        raise _NotHeld("spec.password: passwords from a Secret are not read yet")
    if spec.filters:
        raise _NotHeld("spec.filters: BGPFilters are not applied yet")
    if spec.ttlSecurity and not 0 < spec.ttlSecurity < 255:
        raise _NotHeld(f"spec.ttlSecurity: {spec.ttlSecurity} is not valid: 1 to 254 hops")


def _planned(
    local: _Local,
    address: IPAddress,
    own: IPAddress,
    *,
    remote_as: int,
    kind: str,
    in_cluster: bool,
    port: int,
    restart_time: int,
    local_as: int | None = None,
    ttl_security: int = 0,
    allowed_local_as: int = 0,
) -> PlannedPeer:
    peer = Peer(
        address=address,
        remote_as=remote_as,
        local_address=own,
        local_as=local_as or local.asn,
        router_id=local.identifier,
        families=(Family.of(address),),
        passive=in_cluster and passive(own, address),
        port=port,
        listen_port=local.port,
        hold_time=local.hold_time,
        restart_time=restart_time,
        ttl_security=ttl_security,
    )
    return PlannedPeer(peer, kind, in_cluster, allowed_local_as)


def _selected(view: ClusterView, node: str, selector: str) -> list[str]:
    if node:
        return [node] if node in view.nodes else []
    wanted = selectors.parse(selector)
    return [name for name, each in view.nodes.items() if wanted.matches(each.labels)]


def _owner(view: ClusterView, address: IPAddress) -> NodeView | None:
    return next((node for node in view.nodes.values() if address in node.addresses), None)


def _global(view: ClusterView, name: str) -> Any:
    spec = view.configurations.get("default")
    return getattr(spec, name) if spec is not None else None


def _as_of(view: ClusterView, node: NodeView) -> int:
    return node.asn or _global(view, "asNumber") or DEFAULT_AS


def _listen_port(view: ClusterView, node: str) -> int:
    own = view.configurations.get(f"node.{node}")
    return (own.listenPort if own is not None else 0) or _global(view, "listenPort") or BGP_PORT


def parse_peer_ip(text: str) -> tuple[IPAddress, int]:
    """`ip`, `ip:port` or `[ipv6]:port` as address and port. Raises `ValueError`."""
    found = re.fullmatch(r"\[(.+)\]:(\d+)|([^:]+):(\d+)", text.strip())
    host, port = (found[1] or found[3], int(found[2] or found[4])) if found else (text, BGP_PORT)
    try:
        address = ip_address(host.strip())
    except ValueError:
        rule = "ip, ip:port or [ipv6]:port"
        raise ValueError(f"spec.peerIP: {text!r} is not valid: {rule}") from None
    if not 0 < port < 65536:
        raise ValueError(f"spec.peerIP: {text!r} is not valid: a port is 1 to 65535")
    return address, port


def _seconds(text: str | None, default: int) -> int:
    """A Go duration in whole seconds, at least 1. Raises `ValueError`."""
    if not text:
        return default
    try:
        return max(1, int(durations.parse(text)))
    except ValueError as error:
        raise ValueError(f"maxRestartTime: {text!r} is not valid: {error}") from None


def _order(address: IPAddress) -> tuple[int, int]:
    return address.version, int(address)
