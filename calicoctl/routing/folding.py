"""A topology small enough to draw: a large full mesh as one hub, equal nodes as one place. Pure.

A session that is down is never folded away: it is drawn between its own two ends. Tested in
`tests/calicoctl/test_bgp_topology.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from bgp.peering.planned import MESH
from calicoctl.routing.topology import Link, Place, Topology
from calicoctl.status.values import DOWN, UNKNOWN, UP

FULL_MESH = 10
"""A mesh of more nodes is drawn as one hub: 100 nodes would be 4,950 lines."""
PLACES = 40
"""Nodes that are drawn one by one at most; then those with the same neighbours are one place."""
DEAD = 30
"""Sessions of a folded mesh that are drawn though they are down, at most."""


def folded(whole: Topology) -> Topology:
    """The topology with a large full mesh as one place, and nodes that are alike as one."""
    return _grouped(with_hub(whole))


def hub_of(nodes: int, asn: int) -> Place:
    """The place that stands for a full mesh of so many nodes."""
    return Place(f"full mesh of {nodes} nodes", asn, node=False, hub=True)


def with_hub(whole: Topology) -> Topology:
    """The topology with a large full mesh as one place, and each node as its own."""
    mesh = [link for link in whole.links if link.kind == MESH and not link.note]
    members = sorted({name for link in mesh for name in (link.near, link.far)})
    if len(members) <= FULL_MESH:
        return whole
    known = {place.name: place for place in whole.places}
    dead = [link for link in mesh if link.state == DOWN]
    drawn = dead[:DEAD]
    rest = [link for link in whole.links if link.kind != MESH or link.note]
    ends: dict[str, list[Link]] = {name: [] for name in members}
    for link in mesh:
        ends[link.near].append(link)
        ends[link.far].append(link)
    hub = hub_of(len(members), mesh[0].asn)
    spokes = [_spoke(name, hub.name, ends[name], known[name].asn) for name in members]
    places = [*whole.places, hub]
    return Topology(places, [*spokes, *drawn, *rest], whole.refused)


def _spoke(name: str, hub: str, mesh: Sequence[Link], asn: int) -> Link:
    """A node's sessions of a mesh as one link: down only when none is up."""
    up = sum(link.state == UP for link in mesh)
    down = sum(link.state == DOWN for link in mesh)
    state = UP if up else DOWN if down else UNKNOWN
    why = f"{down} of {len(mesh)} sessions are down" if down else ""
    return Link(name, hub, mesh[0].address, MESH, asn, state=state, why=why)


def _grouped(whole: Topology) -> Topology:
    nodes = [place for place in whole.places if place.node and not place.reflector]
    if len(nodes) <= PLACES:
        return whole
    linked: dict[str, list[Hashable]] = {place.name: [] for place in nodes}
    for link in whole.links:
        for end, other in ((link.near, link.far), (link.far, link.near)):
            if end in linked:
                linked[end].append((other, link.kind, link.state, link.note, link.why))
    alike: dict[Hashable, list[Place]] = {}
    for place in nodes:
        ends = tuple(sorted(linked[place.name], key=str))
        alike.setdefault((place.asn, place.draining, ends), []).append(place)
    into: dict[str, str] = {}
    places = [place for place in whole.places if not (place.node and not place.reflector)]
    for members in alike.values():
        names = tuple(place.name for place in members)
        if len(names) > 1:
            one = replace(members[0], name=f"{len(names)} nodes: {names[0]} ... {names[-1]}")
            places.append(replace(one, members=names))
            into |= dict.fromkeys(names, one.name)
        else:
            places.append(members[0])
    links: dict[Hashable, Link] = {}
    for link in whole.links:
        near, far = into.get(link.near, link.near), into.get(link.far, link.far)
        key = (near, far, link.kind, link.state, link.note, link.why)
        links.setdefault(key, replace(link, near=near, far=far))
    return Topology(places, list(links.values()), whole.refused)
