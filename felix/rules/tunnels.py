"""Rules of tunnels: from whom they are taken, and by which address this node sends into them.

The inner packet of a tunnel may have any pod's source address. So tunnel packets are accepted from
addresses of the cluster's nodes only, before any other rule
(docs/reference/dataplane.md#raw-table, #nat-table, #filter-table). What the host itself sends into
a tunnel by another of its addresses could not be answered through it, so it gets the tunnel's own.

Invariants:
  TNR-1  A tunnel packet for this node from any address but another node's is dropped.
  TNR-2  On a node without tunnels there is no rule of this file.
Tested in tests/felix/rules/test_tunnels.py and, with packets, test_vxlan.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from felix.rules import names
from felix.rules.model import (
    Action,
    AddressType,
    Condition,
    Drop,
    InSet,
    Masquerade,
    NoTrack,
    OutInterface,
    Ports,
    Protocol,
    Rule,
    Side,
)
from felix.rules.nat import ALL_HOSTS

ALL_VTEPS = "all-vxlan-net"
IPIP, UDP = 4, 17
_LAST_PORT, _FIRST_PORT = 65535, 1024
_LOCAL = "LOCAL"


@dataclass(frozen=True, slots=True)
class TunnelRules:
    """The tunnels in use for one family.

    `vxlan_ports`: of its VXLAN devices, two while one replaces another. `sources`: devices that
    have an address of their own.
    """

    ipip: bool = False
    vxlan_ports: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


def untracked(used: TunnelRules) -> list[Rule]:
    """VXLAN is not tracked: its source ports differ in the two directions."""
    if not used.vxlan_ports:
        return []
    return [Rule(NoTrack(), _vxlan(used.vxlan_ports))]


def incoming(version: int, used: TunnelRules, allow: Action, deny: Action) -> list[Rule]:
    """Accept tunnel packets from nodes only (TNR-1)."""
    here = AddressType(Side.DESTINATION, _LOCAL)
    rules: list[Rule] = []
    if used.ipip:
        packet = Protocol(IPIP)
        allowed = (packet, _from(ALL_HOSTS, version), here)
        rules += [
            Rule(allow, allowed, ("Allow IPIP packets from Calico hosts",)),
            Rule(deny, (packet,), ("Drop IPIP packets from non-Calico hosts",)),
        ]
    if used.vxlan_ports:
        match = _vxlan(used.vxlan_ports)
        family = f"IPv{version} "
        allowed_vxlan = (*match, _from(ALL_VTEPS, version), here)
        rules += [
            Rule(allow, allowed_vxlan, (f"Allow {family}VXLAN packets from allowed hosts",)),
            Rule(
                Drop() if version == 4 else deny,
                (*match, here),
                (f"Drop {family}VXLAN packets from non-allowed hosts",),
            ),
        ]
    return rules


def outgoing(version: int, used: TunnelRules, allow: Action) -> list[Rule]:
    """What this node wraps itself no host policy holds up."""
    own = AddressType(Side.SOURCE, _LOCAL)
    rules: list[Rule] = []
    if used.ipip:
        match: tuple[Condition, ...] = (Protocol(IPIP), _to(ALL_HOSTS, version), own)
        rules.append(Rule(allow, match, ("Allow IPIP packets to other Calico hosts",)))
    if used.vxlan_ports:
        match = (*_vxlan(used.vxlan_ports), own, _to(ALL_VTEPS, version))
        said = (f"Allow IPv{version} VXLAN packets to other allowed hosts",)
        rules.append(Rule(allow, match, said))
    return rules


def own_source(used: TunnelRules, random_fully: bool) -> list[Rule]:
    """The host's packets leave by a tunnel with the tunnel's own address."""
    return [
        rule
        for device in used.sources
        for rule in _source_of(device, used.vxlan_ports, random_fully)
    ]


def _source_of(device: str, vxlan_ports: tuple[int, ...], random_fully: bool) -> Iterable[Rule]:
    match: tuple[Condition, ...] = (
        OutInterface(device),
        AddressType(Side.SOURCE, _LOCAL, negated=True, limit_out=True),
        AddressType(Side.SOURCE, _LOCAL),
    )
    if vxlan_ports:
        # Never VXLAN's own port: the reply would be unwrapped instead of delivered.
        yield Rule(Masquerade(_ports_beside(vxlan_ports), random_fully), (Protocol(UDP), *match))
    yield Rule(Masquerade(None, random_fully), match)


def _ports_beside(ports: tuple[int, ...]) -> tuple[int, int]:
    """The widest run of unprivileged ports without these."""
    edges = [_FIRST_PORT - 1, *(p for p in sorted(ports) if p >= _FIRST_PORT), _LAST_PORT + 1]
    runs = [(low + 1, high - 1) for low, high in pairwise(edges)]
    return max(runs, key=lambda run: (run[1] - run[0], run[1]))


def _vxlan(ports: tuple[int, ...]) -> tuple[Condition, ...]:
    return (Protocol(UDP), Ports(Side.DESTINATION, tuple((port, port) for port in ports)))


def _from(name: str, version: int) -> InSet:
    return InSet(Side.SOURCE, names.ip_set(name, version))


def _to(name: str, version: int) -> InSet:
    return InSet(Side.DESTINATION, names.ip_set(name, version))


NO_TUNNELS = TunnelRules()
