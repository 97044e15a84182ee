"""The configured sessions of a cluster of any size: a large full mesh is never laid out in pairs.

Tested in tests/web/test_sessions.py.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as struct_replace

from bgp.cluster.view import ClusterView
from bgp.peering.planned import MESH
from calicoctl.routing.folding import FULL_MESH, hub_of, with_hub
from calicoctl.routing.topology import Link, Topology, topology


def sessions_of(view: ClusterView) -> Topology:
    """The topology; a mesh of more than `FULL_MESH` nodes is one place, its nodes linked to it.

    1,000 nodes in a mesh are 499,500 sessions: they are counted, not made. Nodes that are alike
    stay apart: each has a tile of its own.
    """
    members = mesh_members(view)
    if len(members) <= FULL_MESH or view.automatic:
        return with_hub(topology(view))
    spec = struct_replace(view.defaults, nodeToNodeMeshEnabled=False)
    without = replace(view, configurations={**view.configurations, "default": spec})
    rest = topology(without)
    asn = {place.name: place.asn for place in rest.places}
    hub = hub_of(len(members), asn[members[0]])
    address = view.nodes[members[0]].addresses[0]
    spokes = [Link(name, hub.name, address, MESH, asn[name]) for name in members]
    return Topology([*rest.places, hub], [*spokes, *rest.links], rest.refused)


def mesh_members(view: ClusterView) -> list[str]:
    """The nodes of the node-to-node mesh by name; none where it is switched off."""
    if view.defaults.nodeToNodeMeshEnabled is False:
        return []
    return sorted(
        name for name, node in view.nodes.items() if node.addresses and not node.cluster_id
    )
