"""Which sessions this node holds. Pure: nodes, BGP settings and peers in, a plan out.

Three sources, as in Calico (docs/reference/dataplane.md#peerings): the node-to-node mesh (or the
reflectors that stand in for it, `bgp.peering.reflectors`), global peers and peers for some nodes;
the latter two name an address, or nodes by selector (`bgp.peering.expansion`). When two name the
same address, a global peer beats a node-specific one, and both beat the mesh; of two of a kind that
ask for different things the first by name is held, and the other named.

  BGP-5  Toward a node of the cluster exactly one end dials: the one whose address is
         greater as text. Two ends that both dial collide again and again.
  BGP-6  A peering with a setting that we cannot honour is refused and named, never held
         with less than was asked (a filter left out would announce too much).
Tested in tests/bgp/test_peering.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bgp.cluster.nodes import router_id
from bgp.cluster.view import ClusterView
from bgp.peering import expansion, reflectors
from bgp.peering.expansion import DEFAULT_AS
from bgp.peering.passwords import Passwords, SecretRef
from bgp.peering.planned import GLOBAL, MESH, NODE, Local, PlannedPeer
from bgp.speaker.interface import DEFAULT_HOLD_TIME, DEFAULT_MAX_PREFIXES, IPAddress
from libcalico.errors import MuslinError

__all__ = ["GLOBAL", "MESH", "NODE", "Plan", "PlannedPeer", "Refused", "Settings", "plan"]

_RANK = {GLOBAL: 0, NODE: 1, MESH: 2}


@dataclass(frozen=True, slots=True)
class Refused:
    """A peering that is configured and not held, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The sessions of this node, ordered by address, and the refused peerings.

    `secrets`: the passwords that the plan needs, known or not. `local_as`: this node's AS
    number, which a single session may replace (`localASNumber`).
    """

    peers: tuple[PlannedPeer, ...] = ()
    refused: tuple[Refused, ...] = ()
    secrets: frozenset[SecretRef] = frozenset()
    local_as: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the process environment. Times are seconds.

    `max_prefixes`: paths taken of one peer. `cluster_ips`: CALICO_ADVERTISE_CLUSTER_IPS.
    """

    hold_time: int = DEFAULT_HOLD_TIME
    router_id: str = ""
    max_prefixes: int = DEFAULT_MAX_PREFIXES
    cluster_ips: str = ""


def plan(view: ClusterView, settings: Settings, passwords: Passwords | None = None) -> Plan:
    """The sessions of node `view.me`. A node without BGP addresses has none."""
    me = view.nodes.get(view.me)
    if me is None or not me.addresses:
        return Plan()
    local = Local(
        node=me,
        asn=me.asn or view.defaults.asNumber or DEFAULT_AS,
        port=expansion.listen_port(view, me.name),
        identifier=router_id(me, settings.router_id),
        hold_time=settings.hold_time,
        max_prefixes=settings.max_prefixes,
        listen_any=view.defaults.bindMode == "None",
        clusters=reflectors.cluster_ids(view),
        former=frozenset(view.former),
        fresh=frozenset(view.fresh),
        passwords=passwords or Passwords(),
    )
    chosen: dict[IPAddress, PlannedPeer] = {}
    asked: dict[IPAddress, str] = {}
    refused: list[Refused] = []

    def collect(source: str, make: Callable[[], Iterable[PlannedPeer]]) -> None:
        try:
            for planned in make():
                address = planned.peer.address
                known = chosen.get(address)
                if known is None or _RANK[planned.kind] < _RANK[known.kind]:
                    chosen[address], asked[address] = planned, source
                elif planned != known and planned.kind == known.kind:
                    why = f"{asked[address]} asks for other settings, and is held"
                    if planned.node != known.node:
                        why = f"node {known.node} has it as well as {planned.node}, and is held"
                    refused.append(Refused(source, f"{address}: {why}"))
        except (MuslinError, ValueError) as error:
            refused.append(Refused(source, str(error)))

    try:
        reflectors.requested(view.automatic)
    except ValueError as error:
        refused.append(Refused("BGPConfiguration(default)", str(error)))
    collect("BGPConfiguration(default)", lambda: expansion.mesh(view, local))
    for name, spec in sorted(view.peers.items()):
        collect(f"BGPPeer({name})", lambda spec=spec: expansion.explicit(view, local, spec))  # type: ignore[misc]
    peers = sorted(chosen.values(), key=lambda each: order(each.peer.address))
    return Plan(tuple(peers), tuple(refused), frozenset(local.secrets), local.asn)


def order(address: IPAddress) -> tuple[int, int]:
    """A key to sort addresses of both versions by."""
    return address.version, int(address)
