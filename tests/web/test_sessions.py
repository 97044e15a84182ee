"""The configured sessions, of a small cluster and of a large mesh."""

from __future__ import annotations

from calicoctl.routing.folding import PLACES, with_hub
from calicoctl.routing.topology import topology
from tests.bgp.make import node, put, view_of
from web.facts.sessions import mesh_members, sessions_of


def test_a_small_cluster_is_as_calicoctl_draws_it() -> None:
    view = view_of(4)
    assert sessions_of(view) == with_hub(topology(view))


def test_a_large_mesh_is_the_same_as_if_it_had_been_laid_out_and_folded() -> None:
    view = view_of(14)
    node(view, 20, routeReflectorClusterID="224.0.0.1")
    put(view, "BGPPeer", "tor", {"node": "n3", "peerIP": "10.0.9.9", "asNumber": 64999})
    quick, slow = sessions_of(view), with_hub(topology(view))
    assert {place.name for place in quick.places} == {place.name for place in slow.places}
    assert {(one.near, one.far, one.kind) for one in quick.links} == {
        (one.near, one.far, one.kind) for one in slow.links
    }
    assert mesh_members(view) == sorted(f"n{number}" for number in range(1, 15))


def test_a_thousand_nodes_make_a_thousand_links() -> None:
    assert len(sessions_of(view_of(250)).links) == 250


def test_each_node_of_a_large_cluster_with_a_router_has_its_own_session() -> None:
    """`calicoctl bgp topology` draws nodes that are alike as one; a map has a tile for each."""
    view = view_of(PLACES + 5)
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    put(view, "BGPPeer", "tor", {"peerIP": "10.0.9.9", "asNumber": 64999})
    assert {link.near for link in sessions_of(view).links} == set(view.nodes)
