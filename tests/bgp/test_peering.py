"""Sessions of a node from the objects of the datastore: mesh, global, node-specific, selectors."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import ClusterView
from bgp.peering import peer_terms, peering
from bgp.peering.peering import GLOBAL, MESH, NODE, Plan, Settings
from bgp.speaker.interface import Family
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import ResourceKey


def put(view: ClusterView, kind: str, name: str, spec: dict[str, Any], **labels: str) -> None:
    tree = {
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
    view.apply(ResourceKey(kind, name), resource_from_tree(tree))


def node(view: ClusterView, number: int, **more: Any) -> None:
    labels = more.pop("labels", {})
    bgp = {"ipv4Address": f"10.0.0.{number}/24", **more}
    put(view, "Node", f"n{number}", {"bgp": bgp}, **labels)


def cluster(me: str = "n1", count: int = 3) -> ClusterView:
    view = ClusterView(me)
    for number in range(1, count + 1):
        node(view, number, labels={"rack": "a" if number < 3 else "b"})
    return view


def plan(view: ClusterView, **settings: Any) -> Plan:
    return peering.plan(view, Settings(**settings))


def table(view: ClusterView) -> dict[str, tuple[str, int, bool]]:
    """address -> kind, remote AS, passive."""
    return {
        str(each.peer.address): (each.kind, each.peer.remote_as, each.peer.passive)
        for each in plan(view).peers
    }


@pytest.mark.promise("F-38")
def test_mesh_is_the_default() -> None:
    view = cluster("n2")
    assert table(view) == {"10.0.0.1": (MESH, 64512, False), "10.0.0.3": (MESH, 64512, True)}
    first = plan(view, hold_time=9).peers[0].peer
    assert (first.local_address, first.router_id) == (ip_address("10.0.0.2"),) * 2
    assert (first.local_as, first.hold_time, first.restart_time) == (64512, 9, 120)
    assert first.families == (Family.IPV4,)


def test_mesh_switched_off_and_settings() -> None:
    view = cluster()
    put(view, "BGPConfiguration", "default", {"asNumber": 65001, "listenPort": 1790})
    put(view, "BGPConfiguration", "node.n2", {"listenPort": 1791})
    node(view, 3, asNumber="1.10")
    found = {str(each.peer.address): each.peer for each in plan(view).peers}
    assert found["10.0.0.2"].port == 1791
    assert found["10.0.0.2"].listen_port == 1790
    assert found["10.0.0.2"].internal
    assert found["10.0.0.3"].remote_as == 65546
    assert not found["10.0.0.3"].internal
    put(view, "BGPConfiguration", "default", {"nodeMeshMaxRestartTime": "1m30s"})
    assert {each.peer.restart_time for each in plan(view).peers} == {90}
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    assert plan(view).peers == ()


def test_route_reflectors_leave_the_mesh() -> None:
    view = cluster()
    node(view, 3, routeReflectorClusterID="1.0.0.1")
    assert set(table(view)) == {"10.0.0.2"}
    view.me = "n3"
    assert table(view) == {}


def test_no_node_no_sessions() -> None:
    view = cluster("n7")
    assert plan(view) == Plan()
    put(view, "Node", "n7", {})
    assert plan(view) == Plan()


def test_ipv6_has_sessions_of_its_own() -> None:
    view = ClusterView("n1")
    put(view, "Node", "n1", {"bgp": {"ipv4Address": "10.0.0.1/24", "ipv6Address": "fd00::1/64"}})
    put(view, "Node", "n2", {"bgp": {"ipv4Address": "10.0.0.2/24", "ipv6Address": "fd00::2/64"}})
    put(view, "Node", "n3", {"bgp": {"ipv6Address": "fd00::3/64"}})
    peers = plan(view).peers
    assert [str(each.peer.address) for each in peers] == ["10.0.0.2", "fd00::2", "fd00::3"]
    assert [each.peer.families for each in peers] == [
        (Family.IPV4,),
        (Family.IPV6,),
        (Family.IPV6,),
    ]
    view.me = "n3"
    assert {str(each.peer.router_id) for each in plan(view).peers} == {"135.33.214.100"}
    assert {str(each.peer.router_id) for each in plan(view, router_id="9.8.7.6").peers} == {
        "9.8.7.6"
    }


def test_explicit_peers() -> None:
    view = cluster()
    put(view, "BGPPeer", "tor", {"peerIP": "10.0.0.254", "asNumber": 64500})
    put(view, "BGPPeer", "mine", {"node": "n1", "peerIP": "10.9.9.9:1790", "asNumber": 65000})
    put(view, "BGPPeer", "other", {"node": "n2", "peerIP": "10.9.9.8", "asNumber": 65000})
    put(
        view,
        "BGPPeer",
        "rack",
        {"nodeSelector": "rack == 'a'", "peerIP": "10.9.9.7", "asNumber": 1},
    )
    found = table(view)
    assert found["10.0.0.254"] == (GLOBAL, 64500, False)
    assert found["10.9.9.9"] == (NODE, 65000, False)
    assert found["10.9.9.7"] == (NODE, 1, False)
    assert "10.9.9.8" not in found
    by_address = {str(each.peer.address): each for each in plan(view).peers}
    assert by_address["10.9.9.9"].peer.port == 1790
    assert not by_address["10.0.0.254"].in_cluster
    assert by_address["10.0.0.2"].in_cluster


def test_global_beats_node_specific_beats_mesh() -> None:
    view = cluster()
    put(view, "BGPPeer", "a", {"node": "n1", "peerIP": "10.0.0.2", "maxRestartTime": "5s"})
    found = {str(each.peer.address): each for each in plan(view).peers}["10.0.0.2"]
    assert (found.kind, found.peer.restart_time, found.in_cluster) == (NODE, 5, True)
    put(view, "BGPPeer", "b", {"peerIP": "10.0.0.2"})
    assert table(view)["10.0.0.2"] == (GLOBAL, 64512, True)
    put(view, "BGPPeer", "self", {"peerIP": "10.0.0.1"})
    assert "10.0.0.1" not in table(view)


def test_two_peerings_that_ask_for_different_things_of_one_address_are_named() -> None:
    """Silently held without the second one's filter it would be told too much (BGP-6)."""
    view = cluster()
    put(view, "BGPFilter", "none", {"exportV4": [{"action": "Reject"}]})
    tor = {"peerIP": "10.0.0.254", "asNumber": 64500}
    put(view, "BGPPeer", "a", tor)
    put(view, "BGPPeer", "same", tor)
    assert plan(view).refused == ()
    put(view, "BGPPeer", "z", {**tor, "filters": ["none"]})
    found = plan(view)
    assert [each.source for each in found.refused] == ["BGPPeer(z)"]
    assert "BGPPeer(a) asks for other settings" in found.refused[0].reason
    put(view, "BGPPeer", "z", {**tor, "filters": ["none"], "node": "n1"})
    assert plan(view).refused == (), "a global peer wins, as in Calico"


@pytest.mark.parametrize("spec", [{}, {"peerSelector": "all()"}], ids=["mesh", "selector"])
def test_of_two_nodes_with_one_address_the_first_by_name_is_held(spec: dict[str, Any]) -> None:
    """A host that was renamed has two Nodes for a while. No order of events counts."""
    for names in (["n2", "renamed"], ["renamed", "n2"]):
        view = ClusterView("n1")
        node(view, 1)
        for name in names:
            put(view, "Node", name, {"bgp": {"ipv4Address": "10.0.0.2/24"}})
        if spec:
            put(view, "BGPPeer", "all", spec)
        found = plan(view)
        assert [each.node for each in found.peers] == ["n2"]
        reason = "10.0.0.2: node n2 has it as well as renamed, and is held"
        assert [each.reason for each in found.refused] == [reason] * (1 + bool(spec))
        owner = view.owner(ip_address("10.0.0.2"))
        assert owner is not None
        assert owner.name == "n2"


@pytest.mark.parametrize("spec", [{}, {"peerSelector": "all()"}], ids=["mesh", "selector"])
def test_no_session_with_ourselves_under_an_older_name(spec: dict[str, Any]) -> None:
    """Each start would wait a minute for it; Calico skips such a Node, too."""
    view = cluster()
    put(view, "Node", "n1-before", {"bgp": {"ipv4Address": "10.0.0.1/24"}})
    if spec:
        put(view, "BGPPeer", "all", spec)
    assert set(table(view)) == {"10.0.0.2", "10.0.0.3"}
    assert plan(view).refused == ()


def test_peer_selector_works_from_both_ends() -> None:
    view = cluster("n1", 4)
    put(view, "BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
    spec = {"nodeSelector": "rack == 'a'", "peerSelector": "rack == 'b'"}
    put(view, "BGPPeer", "cross", spec)
    assert set(table(view)) == {"10.0.0.3", "10.0.0.4"}
    view.me = "n3"
    assert set(table(view)) == {"10.0.0.1", "10.0.0.2"}
    put(view, "BGPPeer", "cross", {**spec, "reversePeering": "Manual"})
    assert table(view) == {}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"peerIP": "10.1.1.1", "asNumber": 1, "filters": ["f"]}, "spec.filters"),
        ({"peerIP": "10.1.1.1", "asNumber": 1, "password": {}}, "spec.password"),
        ({"peerIP": "10.1.1.1"}, "spec.asNumber"),
        ({"peerIP": "fd00::1", "asNumber": 1}, "no IPv6 address"),
        ({"peerIP": "10.1.1", "asNumber": 1}, "spec.peerIP"),
        ({"peerIP": "10.1.1.1:0", "asNumber": 1}, "a port is 1 to 65535"),
        ({"peerIP": "10.1.1.1", "asNumber": 1, "maxRestartTime": "soon"}, "maxRestartTime"),
        ({"nodeSelector": "a ||", "peerIP": "10.1.1.1", "asNumber": 1}, "selector"),
        ({"localWorkloadSelector": "all()", "asNumber": 1}, "spec.localWorkloadSelector"),
        ({"peerIP": "10.1.1.1", "asNumber": 1, "ttlSecurity": 255}, "spec.ttlSecurity"),
    ],
)
def test_refused_aloud(spec: dict[str, Any], words: str) -> None:
    """BGP-6: what cannot be honoured in full is not held; the others are."""
    view = cluster()
    put(view, "BGPPeer", "odd", spec)
    found = plan(view)
    assert [each.source for each in found.refused] == ["BGPPeer(odd)"]
    assert words in found.refused[0].reason
    assert {each.kind for each in found.peers} == {MESH}


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("10.0.0.1", "10.0.0.1", 179),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("fd00::1", "fd00::1", 179),
        ("[fd00::1]:180", "fd00::1", 180),
    ],
)
def test_peer_ip(text: str, address: str, port: int) -> None:
    assert peer_terms.parse_peer_ip(text) == (ip_address(address), port)


@given(st.sets(st.integers(1, 254), min_size=2, max_size=8))
def test_exactly_one_end_dials(numbers: set[int]) -> None:
    """BGP-5, for every pair of nodes and from both sides."""
    view = ClusterView("")
    for number in numbers:
        node(view, number)
    dials: dict[frozenset[str], int] = {}
    for number in numbers:
        view.me = f"n{number}"
        for each in plan(view).peers:
            pair = frozenset({f"10.0.0.{number}", str(each.peer.address)})
            dials[pair] = dials.get(pair, 0) + (not each.peer.passive)
    addresses = [f"10.0.0.{number}" for number in numbers]
    assert dials == {frozenset(pair): 1 for pair in combinations(addresses, 2)}


@pytest.mark.parametrize("text", ["fe80::1%eth0", "[fe80::1%eth0]:179", "0.0.0.0", "224.0.0.5"])
def test_what_no_session_can_be_held_with_is_refused_alone(text: str) -> None:
    """One such address in its configuration would cost ExaBGP all sessions."""
    view = cluster()
    node(view, 1, ipv6Address="fd00::1/64")
    put(view, "BGPPeer", "odd", {"peerIP": text, "asNumber": 64500})
    put(view, "BGPConfiguration", "node.n2", {"listenPort": 70000})
    found = plan(view)
    assert {str(each.peer.address): each.peer.port for each in found.peers} == {
        "10.0.0.2": 179,
        "10.0.0.3": 179,
    }
    assert "host's address" in found.refused[0].reason
