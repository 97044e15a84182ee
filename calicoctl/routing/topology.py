"""Who peers with whom, as configured: nodes, external peers, and the sessions between them. Pure.

From the same decisions that the nodes make, one node at a time. A session between nodes that
only one of them holds is marked: it will not come up. Tested in
`tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from bgp.cluster.view import ClusterView
from bgp.peering import peering, reflectors
from bgp.peering.compare import Assumed
from bgp.peering.expansion import DEFAULT_AS
from bgp.peering.peering import Settings
from bgp.speaker.interface import IPAddress
from calicoctl.status.values import UNKNOWN

ONE_SIDED = "does not hold its end"


@dataclass(frozen=True, slots=True)
class Place:
    """A speaker. `node`: one of the cluster; `reflector`: its cluster id.

    `members`: the nodes that a drawing shows as this one place; `hub`: a full mesh as one place.
    """

    name: str
    asn: int
    node: bool = True
    reflector: str = ""
    draining: bool = False
    members: tuple[str, ...] = ()
    hub: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A session. `near` is a node; `note`: what is unusual; `state` and `why` as in
    `calicoctl.status.values`: unknown until `states.with_states` has said it."""

    near: str
    far: str
    address: IPAddress
    kind: str
    asn: int
    note: str = ""
    state: str = UNKNOWN
    why: str = ""

    @property
    def one_sided(self) -> bool:
        """Whether only one of two nodes holds it."""
        return ONE_SIDED in self.note


@dataclass(frozen=True)
class Topology:
    """All places and links; `refused`: peerings that are not held, with node and reason."""

    places: Sequence[Place]
    links: Sequence[Link]
    refused: Sequence[tuple[str, str, str]] = field(default=())

    @property
    def hubs(self) -> frozenset[str]:
        """The names of the places that stand for full meshes."""
        return frozenset(place.name for place in self.places if place.hub)


def topology(view: ClusterView, only: Collection[str] | None = None) -> Topology:
    """The topology of a view.

    `only`: what these nodes hold and nothing else; then each of their ends is a link, and no
    session is said to be one-sided.
    """
    passwords, settings = Assumed(), Settings()
    clusters = reflectors.cluster_ids(view)
    places: dict[str, Place] = {}
    links: list[Link] = []
    near_ends: set[tuple[str, IPAddress]] = set()
    refused: list[tuple[str, str, str]] = []
    for name, node in sorted(view.nodes.items()):
        if not node.addresses or (only is not None and name not in only):
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
    paired = links if only is not None else _paired(view, links, near_ends)
    return Topology(list(places.values()), paired, refused)


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
            paired.append(replace(link, note=f"{link.far} {ONE_SIDED}"))
            continue
        ends = frozenset((link.near, link.far)), link.address.version
        if ends not in seen:
            seen.add(ends)
            paired.append(link)
    return paired
