"""What each session is told: pools, filters, reflection, next hops, priorities, drain."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import PoolView
from bgp.routes.audiences import Manner, NextHop, audiences
from bgp.routes.bestpath import Candidate
from bgp.routes.communities import Tags
from bgp.routes.export_policy import SECOND_HAND_MED, Terms, offers
from bgp.routes.filters import local_pref_of
from bgp.routes.import_policy import GRACEFUL_SHUTDOWN
from bgp.routes.local_routes import Kind
from bgp.speaker.interface import Family, IPAddress, Origin, Route
from tests.bgp.make import net, path, rules, source

BOTH = (Family.IPV4, Family.IPV6)
INTERNAL, EXTERNAL, CLIENT = (ip_address(f"10.0.0.{n}") for n in (2, 99, 50))
POOLS = (
    PoolView(net("10.65.0.0/16"), exported=True),
    PoolView(net("10.67.0.0/16"), exported=False),
)
BLOCK = net("10.65.1.0/26")


def terms(*, internal: Any = (), external: Any = (), client: Any = None, **more: Any) -> Terms:
    """An internal and an external session, and a client if asked; fields of their manners."""
    sessions = [
        (INTERNAL, Manner(BOTH, internal=True, **dict(internal))),
        (EXTERNAL, Manner(BOTH, internal=False, **dict(external))),
    ]
    if client is not None:
        sessions.append((CLIENT, Manner(BOTH, internal=True, client=True, **client)))
    return Terms(audiences(sessions), POOLS, **more)


def told(
    prefix: str, own: Kind | None, sent: Candidate | None, wanted: Terms
) -> dict[IPAddress, Route]:
    """Peer -> its route; OFF-1 on the way."""
    found: dict[Any, Route] = {}
    for route in offers(net(prefix), own, sent, wanted):
        for peer in route.peers or ():
            assert peer not in found
            found[peer] = route
    return found


@pytest.mark.parametrize(
    ("prefix", "own", "goes"),
    [
        ("10.65.1.0/26", Kind.BLOCK, True),
        ("10.99.1.0/26", Kind.BLOCK, True),  # a pool may go before its last pods
        ("10.67.1.0/26", Kind.BLOCK, False),  # disableBGPExport
        ("10.65.1.7/32", Kind.HOST, True),
        ("10.99.1.7/32", Kind.HOST, True),
        ("10.67.1.7/32", Kind.HOST, False),
        ("10.96.0.0/12", Kind.SERVICE, True),
        ("10.0.0.0/24", Kind.CONNECTED, False),
        ("10.65.200.0/24", Kind.CONNECTED, True),
    ],
)
def test_own_routes_and_pools(prefix: str, own: Kind, goes: bool) -> None:
    found = told(prefix, own, None, terms())
    assert set(found) == ({INTERNAL, EXTERNAL} if goes else set())
    assert all(route.next_hop is None for route in found.values())
    yes = {"filters": ("yes",)}
    allowed = terms(external=yes, filters={"yes": rules(exportV4=[{"action": "Accept"}])})
    assert EXTERNAL in told(prefix, own, None, allowed)


@pytest.mark.promise("F-44")
@pytest.mark.promise("F-45")
def test_filters_are_of_one_peering() -> None:
    operations: list[dict[str, Any]] = [
        {"addCommunity": {"value": "7:8"}},
        {"prependASPath": {"prefix": [64512, 64512]}},
    ]
    accept = rules(exportV4=[{"action": "Accept", "operations": operations}])
    wanted = terms(
        external={"filters": ("f",)},
        filters={"f": accept},
        tags=Tags(((net("10.65.0.0/16"), ("1:2",)),)),
    )
    found = told(str(BLOCK), Kind.BLOCK, None, wanted)
    assert found[INTERNAL] == Route(BLOCK, peers=frozenset({INTERNAL}), communities=("1:2",))
    assert found[EXTERNAL].communities == ("7:8",)
    assert found[EXTERNAL].as_path == (64512, 64512)
    reject = terms(
        external={"filters": ("f",)}, filters={"f": rules(exportV4=[{"action": "Reject"}])}
    )
    assert set(told(str(BLOCK), Kind.BLOCK, None, reject)) == {INTERNAL}
    missing = terms(external={"filters": ("gone",)})
    assert set(told(str(BLOCK), Kind.BLOCK, None, missing)) == {INTERNAL}


def test_learned_paths_of_an_ordinary_node() -> None:
    """Internal ones go outside with a MED, external ones to all; only inside pools."""
    inside = path(source(3), communities=("5:5",), origin=Origin.EGP)
    found = told("10.65.3.0/26", None, inside, terms())
    assert set(found) == {EXTERNAL}
    assert (found[EXTERNAL].next_hop, found[EXTERNAL].med) == (None, SECOND_HAND_MED)
    assert (found[EXTERNAL].communities, found[EXTERNAL].origin) == (("5:5",), Origin.EGP)
    outside = path(source(98, internal=False), "10.0.0.98", as_path=(64500,), med=9)
    found = told("10.65.4.0/26", None, outside, terms())
    assert (found[INTERNAL].next_hop, found[INTERNAL].med) == (IPv4Address("10.0.0.98"), 9)
    assert (found[EXTERNAL].next_hop, found[EXTERNAL].med) == (None, None)
    assert found[EXTERNAL].as_path == found[INTERNAL].as_path == (64500,)
    for elsewhere in ("0.0.0.0/0", "10.200.0.0/24", "10.67.9.0/24"):
        assert told(elsewhere, None, outside, terms()) == {}


def _on_link(what: Any) -> str:
    """This node's one network."""
    return "eth0" if what in ip_network("10.0.0.0/24") else ""


def test_a_router_is_told_of_no_way_that_leads_back_to_it() -> None:
    """OFF-5: a ToR that lost the owner's session would send packets here, and get them back."""
    block, away = "10.65.3.0/26", path(source(3), "10.1.0.3")
    ours = terms(interface=_on_link)
    assert told(block, None, away, ours) == {}
    # A neighbour's block, a router behind others, a kept next hop, a tunnel: as before.
    assert set(told(block, None, path(source(3)), ours)) == {EXTERNAL}
    assert set(told(block, None, away, terms())) == {EXTERNAL}
    far = replace(ours, audiences=audiences([(ip_address("10.9.9.9"), Manner(BOTH, False))]))
    assert len(told(block, None, away, far)) == 1
    kept = terms(external={"next_hop": NextHop.KEEP}, interface=_on_link)
    assert told(block, None, away, kept)[EXTERNAL].next_hop == ip_address("10.1.0.3")
    pools = tuple(replace(pool, tunnelled=True) for pool in POOLS)
    assert set(told(block, None, away, replace(ours, pools=pools))) == {EXTERNAL}
    # What came from outside goes inside, whoever sent it.
    outside = path(source(98, internal=False), "10.1.0.98", as_path=(64500,))
    assert INTERNAL in told(block, None, outside, ours)
    assert EXTERNAL in told(block, Kind.BLOCK, None, ours)


def _on_either(what: Any) -> str:
    """A node between two networks."""
    nets = {"eth0": "10.0.0.0/24", "eth1": "10.1.0.0/24"}
    return next((name for name, net in nets.items() if what in ip_network(net)), "")


@pytest.mark.parametrize("hop", ["10.0.0.3", "10.1.0.3", "10.2.0.3"])
def test_a_node_between_two_networks_leads_no_packet_in_a_circle(hop: str) -> None:
    """OFF-5 with a router on each: who is told sends to us, and we to the owner or its router."""
    here, there = ip_address("10.0.0.99"), ip_address("10.1.0.99")
    both = audiences([(router, Manner(BOTH, internal=False)) for router in (here, there)])
    ours = replace(terms(interface=_on_either), audiences=both)
    hearers = set(told("10.65.3.0/26", None, path(source(3), hop), ours))
    # An owner on a network of ours is handed the packet by ourselves, whoever sent it.
    assert hearers == ({here, there} if _on_either(ip_address(hop)) else set())
    # With one network the other router is far: what we hand on goes to the near one, not to it.
    single = replace(ours, interface=_on_link)
    near = set(told("10.65.3.0/26", None, path(source(3), "10.1.0.3"), single))
    assert near == {there}


def test_a_successor_hears_nothing_at_second_hand_of_who_leaves() -> None:
    """OFF-4: a router would prefer our word, and never tell us its own way (two racks)."""
    inside = path(source(3))
    mesh = inside.source.peer
    leaving = replace(terms(), leaving=frozenset({mesh}), successors=frozenset({EXTERNAL}))
    assert told("10.65.3.0/26", None, inside, leaving) == {}
    assert set(told(str(BLOCK), Kind.BLOCK, None, leaving)) == {INTERNAL, EXTERNAL}
    for other in (replace(leaving, leaving=frozenset()), replace(leaving, successors=frozenset())):
        assert set(told("10.65.3.0/26", None, inside, other)) == {EXTERNAL}


def test_a_successor_hears_what_is_reflected_of_who_leaves() -> None:
    """OFF-4: a new reflector has no session yet with nodes that hear of the change later."""
    sent = path(source(50, client=True))
    wanted = terms(client={}, cluster_id="1.0.0.1")
    leaving = replace(
        wanted, leaving=frozenset({sent.source.peer}), successors=frozenset({INTERNAL, EXTERNAL})
    )
    assert set(told("10.65.3.0/26", None, sent, wanted)) == {INTERNAL, EXTERNAL}
    assert set(told("10.65.3.0/26", None, sent, leaving)) == {INTERNAL}


@pytest.mark.promise("F-39")
def test_a_reflector_keeps_the_next_hop_and_marks() -> None:
    wanted = terms(client={}, cluster_id="1.0.0.1", services=(net("198.51.100.0/24"),))
    sent = path(source(50, client=True), local_pref=77)
    found = told("10.65.3.0/26", None, sent, wanted)
    assert set(found) == {INTERNAL, EXTERNAL}  # OFF-2: not back to the client
    route = found[INTERNAL]
    assert route.next_hop == IPv4Address("10.0.0.50")
    assert route.originator_id == IPv4Address("1.1.1.50")
    assert (route.cluster_list, route.local_pref) == (("1.0.0.1",), 77)
    assert found[EXTERNAL].originator_id is None
    from_other = path(source(3), local_pref=77)
    assert set(told("10.65.3.0/26", None, from_other, wanted)) == {CLIENT, EXTERNAL}
    assert set(told("198.51.100.7/32", None, sent, wanted)) == {INTERNAL, EXTERNAL}
    assert told("192.0.2.7/32", None, sent, wanted) == {}


def test_next_hop_modes() -> None:
    outside = path(source(98, internal=False), "10.0.0.98")
    hop = IPv4Address("10.0.0.98")
    for mode, inward, outward in (
        (NextHop.AUTO, hop, None),
        (NextHop.SELF, None, None),
        (NextHop.KEEP, hop, hop),
        (NextHop.KEEP_EXTERNAL, hop, hop),
    ):
        manner = {"next_hop": mode}
        found = told("10.65.4.0/26", None, outside, terms(internal=manner, external=manner))
        assert (found[INTERNAL].next_hop, found[EXTERNAL].next_hop) == (inward, outward)


@pytest.mark.promise("F-45")
def test_priorities_travel_inside_the_as_only() -> None:
    coded = terms(priorities={4: 1024})
    found = told(str(BLOCK), Kind.BLOCK, None, coded)
    assert (found[INTERNAL].local_pref, found[EXTERNAL].local_pref) == (2_147_482_623, None)
    assert told(str(BLOCK), Kind.BLOCK, None, terms())[INTERNAL].local_pref is None
    set_512 = rules(
        exportV4=[{"action": "Accept", "operations": [{"setPriority": {"value": 512}}]}]
    )
    chosen = terms(internal={"filters": ("f",)}, filters={"f": set_512})
    assert told(str(BLOCK), Kind.BLOCK, None, chosen)[INTERNAL].local_pref == local_pref_of(512)


def test_a_draining_node_says_so() -> None:
    """OFF-3."""
    found = told(str(BLOCK), Kind.BLOCK, None, terms(draining=True, priorities={4: 9}))
    assert (found[INTERNAL].local_pref, found[EXTERNAL].local_pref) == (0, None)
    assert {route.communities for route in found.values()} == {(GRACEFUL_SHUTDOWN,)}


def test_a_mesh_costs_one_decision() -> None:
    manner = Manner((Family.IPV4,), internal=True)
    peers = [IPv4Address(number) for number in range(1, 300)]
    groups = audiences((peer, manner) for peer in peers)
    assert len(groups) == 1
    (route,) = offers(BLOCK, Kind.BLOCK, None, Terms(groups))
    assert route.peers == frozenset(peers)
    assert offers(net("fd65::/64"), Kind.BLOCK, None, Terms(groups)) == ()


senders = st.sampled_from(
    [
        path(source(2)),
        path(source(50, client=True)),
        path(source(99, internal=False), as_path=(64500,)),
        path(source(98, internal=False), as_path=(64500,)),
    ]
)


@given(senders, st.sampled_from(["", "1.0.0.1"]), st.sampled_from(NextHop))
def test_nothing_goes_back_or_from_internal_to_internal(
    sent: Candidate, cluster: str, mode: NextHop
) -> None:
    """OFF-2, RFL-2 for every sender and mode."""
    manner = {"next_hop": mode}
    wanted = terms(internal=manner, external=manner, client=manner, cluster_id=cluster)
    found = told("10.65.3.0/26", None, sent, wanted)
    assert sent.source.peer not in found
    if sent.source.internal and not cluster:
        assert set(found) <= {EXTERNAL}
    for peer, route in found.items():
        marked = sent.source.internal and peer != EXTERNAL
        assert (route.originator_id is not None) is marked
        assert route.cluster_list == ((cluster,) if marked else ())
