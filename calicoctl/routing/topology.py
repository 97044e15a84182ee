"""Who peers with whom, as configured: nodes, external peers, and the sessions between them. Pure.

From the same decisions that the nodes make, one node at a time. A session between nodes that
only one of them holds is marked: it will not come up. Tested in
`tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bgp.cluster.view import ClusterView
from bgp.peering import peering, reflectors
from bgp.peering.compare import Assumed
from bgp.peering.expansion import DEFAULT_AS
from bgp.peering.peering import Settings
from bgp.peering.planned import MESH
from bgp.speaker.interface import IPAddress

FULL_MESH = 10
"""A mesh of more nodes is drawn as one hub: 100 nodes would be 4,950 lines."""


@dataclass(frozen=True, slots=True)
class Place:
    """A speaker. `node`: one of the cluster; `reflector`: its cluster id."""

    name: str
    asn: int
    node: bool = True
    reflector: str = ""
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A session. `near` is a node; `note`: what is unusual."""

    near: str
    far: str
    address: IPAddress
    kind: str
    asn: int
    note: str = ""


@dataclass(frozen=True)
class Topology:
    """All places and links; `refused`: peerings that are not held, with node and reason."""

    places: Sequence[Place]
    links: Sequence[Link]
    refused: Sequence[tuple[str, str, str]] = field(default=())


def topology(view: ClusterView) -> Topology:
    """The topology of a view."""
    passwords, settings = Assumed(), Settings()
    clusters = reflectors.cluster_ids(view)
    places: dict[str, Place] = {}
    links: list[Link] = []
    near_ends: set[tuple[str, IPAddress]] = set()
    refused: list[tuple[str, str, str]] = []
    for name, node in sorted(view.nodes.items()):
        if not node.addresses:
            continue
        asn = node.asn or view.defaults.asNumber or DEFAULT_AS
        places[name] = Place(name, asn, True, clusters.get(name, ""), node.draining)
        plan = peering.plan(replace(view, me=name), settings, passwords)
        refused += [(name, each.source, each.reason) for each in plan.refused]
        for each in plan.peers:
            peer = each.peer
            near_ends.add((name, peer.address))
            far = each.node or str(peer.address)
            if not each.node:
                places.setdefault(far, Place(far, peer.remote_as, node=False))
            note = "client" if each.client else ""
            links.append(Link(name, far, peer.address, each.kind, peer.remote_as, note))
    return Topology(list(places.values()), _paired(view, links, near_ends), refused)


def _paired(
    view: ClusterView, links: list[Link], near_ends: set[tuple[str, IPAddress]]
) -> list[Link]:
    """One link for a session that both its ends hold; a note where one end alone does."""
    paired, seen = [], set[tuple[frozenset[str], int]]()
    for link in links:
        far = view.nodes.get(link.far)
        if far is None:
            paired.append(link)
            continue
        mine = view.nodes[link.near].address(link.address.version)
        if mine is None or (link.far, mine) not in near_ends:
            paired.append(replace(link, note=f"{link.far} does not hold its end"))
            continue
        ends = frozenset((link.near, link.far)), link.address.version
        if ends not in seen:
            seen.add(ends)
            paired.append(link)
    return paired


def folded(whole: Topology) -> Topology:
    """The topology with a large full mesh as one place, to which its nodes are linked."""
    mesh = [link for link in whole.links if link.kind == MESH and not link.note]
    members = sorted({name for link in mesh for name in (link.near, link.far)})
    if len(members) <= FULL_MESH:
        return whole
    hub = f"full mesh of {len(members)} nodes"
    known = {place.name: place for place in whole.places}
    rest = [link for link in whole.links if link.kind != MESH or link.note]
    spokes = [Link(name, hub, mesh[0].address, MESH, known[name].asn) for name in members]
    places = [*whole.places, Place(hub, mesh[0].asn, node=False)]
    return Topology(places, [*spokes, *rest], whole.refused)
