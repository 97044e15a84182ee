"""What is believed: of nodes of the cluster, of reflectors, of external peers."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import ClusterView
from bgp.routes.bestpath import Candidate
from bgp.routes.prefix_search import inside
from bgp.routes.validity import Facts, doubt, neighbours_of, refusal
from bgp.speaker.interface import IPNetwork
from tests.bgp.make import block, claim, net, path, source, view_of

EXTERNAL = source(99, internal=False)


def picture() -> ClusterView:
    """Blocks .1 of n1 (this node), .2 of n2, .3 of n3; n3 holds one address of each."""
    view = view_of()
    for number in (1, 2, 3):
        claim(view, f"n{number}", f"10.65.{number}.0/26")
    block(view, "10.65.1.0/26", "n1", {1: "n1", 5: "n3"})
    block(view, "10.65.2.0/26", "n2", {1: "n2", 5: "n3"})
    return view


def facts(view: ClusterView, *reflectors: str) -> Facts:
    addresses = {node.name: node.addresses for node in view.nodes.values()}
    own = frozenset({ip_address("10.0.0.1"), ip_address("10.65.1.0")})
    return Facts(view, (net("10.96.0.0/12"),), frozenset(reflectors), own, addresses)


def why(prefix: str, sent: Candidate | None = None, *reflectors: str) -> str:
    return refusal(net(prefix), sent or path(), facts(picture(), *reflectors))


@pytest.mark.promise("ADV-8")
def test_a_node_announces_its_own() -> None:
    """Of n2: its block, parts of it, services; nothing of others, and no default route."""
    for good in ("10.65.2.0/26", "10.65.2.1/32", "10.65.2.32/27", "10.96.0.0/12", "10.96.1.1/32"):
        assert why(good) == ""
    assert "default route" in why("0.0.0.0/0")
    assert "to n3, not to n2" in why("10.65.3.0/26")
    assert "to n3, not to n2" in why("10.65.2.5/32")  # lent away
    assert "to no node" in why("10.65.9.0/26")
    assert "to no node" in why("10.65.0.0/16")
    assert "to no node" in why("192.0.2.0/24")


def test_borrowed_addresses() -> None:
    borrower = path(source(3))
    assert why("10.65.2.5/32", borrower) == ""
    assert why("10.65.1.5/32", borrower) == ""  # of our own block (VAL-2)
    assert "block of this node" in why("10.65.1.6/32", borrower)


def test_addresses_that_this_node_borrowed_are_its_own() -> None:
    view = picture()
    block(view, "10.65.2.0/26", "n2", {7: "n1"})
    for sender in (source(2), source(3), EXTERNAL):
        assert "of this node" in refusal(net("10.65.2.7/32"), path(sender), facts(view))


def test_a_block_that_two_nodes_want_is_taken_from_its_owner_alone() -> None:
    """Our own claim is pending: the address is believed of the other, not of anybody."""
    view = picture()
    claim(view, "n1", "10.65.2.0/26", "pending")
    assert refusal(net("10.65.2.9/32"), path(source(2)), facts(view)) == ""
    assert "not to n3" in refusal(net("10.65.2.9/32"), path(source(3)), facts(view))
    assert refusal(net("10.65.2.9/32"), path(EXTERNAL), facts(view)) == ""
    claim(view, "n1", "10.65.9.0/26", "pending")
    assert "of this node" in refusal(net("10.65.9.1/32"), path(source(3)), facts(view))


def test_a_range_of_services_gives_nobody_the_block_of_another() -> None:
    view = picture()
    wide = facts(view)
    wide = replace(wide, services=(net("10.0.0.0/8"),))
    assert refusal(net("10.66.0.1/32"), path(source(2)), wide) == ""
    assert refusal(net("10.65.2.0/26"), path(source(2)), wide) == ""
    assert "to n3, not to n2" in refusal(net("10.65.3.0/26"), path(source(2)), wide)


def test_external_peers_may_send_more() -> None:
    outside = path(EXTERNAL)
    for good in ("0.0.0.0/0", "10.65.3.0/26", "192.0.2.0/24", "10.65.0.0/16", "10.65.1.5/32"):
        assert why(good, outside) == ""
    for bad in ("10.65.1.0/26", "10.65.1.7/32", "10.0.0.1/32", "10.65.1.0/32"):
        assert why(bad, outside)
    for never in ("169.254.1.0/24", "127.0.0.1/32", "224.0.0.0/4", "fe80::/64", "::1/128"):
        assert why(never, outside)


@pytest.mark.promise("F-39")
def test_reflectors_speak_for_others_with_their_next_hop() -> None:
    reflected = path(source(2), "10.0.0.3")
    assert why("10.65.3.0/26", reflected)
    assert why("10.65.3.0/26", reflected, "n2") == ""
    assert why("10.65.2.5/32", reflected, "n2") == ""
    assert why("10.65.3.0/26", path(source(2), "10.0.0.2"), "n2") == ""  # nextHopMode Self
    assert why("10.65.3.0/26", path(source(2), "10.0.0.77"), "n2")
    assert why("10.65.9.0/26", reflected, "n2")
    assert "default route" in why("0.0.0.0/0", reflected, "n2")


LINKS = (net("10.0.0.0/24"), net("fd00::/64"))


def doubted(prefix: str, sender: Candidate | None = None, **more: Any) -> str:
    known = replace(facts(picture()), **more)
    return doubt(net(prefix), sender or path(EXTERNAL), known)


def test_what_an_external_peer_seldom_means() -> None:
    assert "broadcast" in doubted("255.255.255.255/32")
    assert "broadcast" in doubt(net("255.255.255.255/32"), path(EXTERNAL), None)
    assert "broadcast" in doubted("255.255.255.255/32", pools=(net("240.0.0.0/4"),))
    for reserved in ("240.0.0.0/4", "240.1.0.0/16", "255.255.255.0/24", "250.0.0.1/32"):
        assert "reserved" in doubted(reserved)
    assert doubted("240.1.0.0/16", pools=(net("240.0.0.0/8"),)) == ""
    assert "reserved" in doubted("241.1.0.0/16", pools=(net("240.0.0.0/8"),))
    assert doubted("255.255.255.255/32", path(source(2))) == ""  # `refusal` has its say there


def test_the_way_to_a_neighbour_is_the_link() -> None:
    view = picture()
    etcd = ip_address("10.0.0.250")
    on_link = neighbours_of(view, LINKS, [etcd, ip_address("192.0.2.1")])
    assert on_link == {
        ip_address("10.0.0.2"): "node n2",
        ip_address("10.0.0.3"): "node n3",
        etcd: "the datastore",
    }
    assert "node n2" in doubted("10.0.0.2/32", neighbours=on_link)
    assert "the datastore" in doubted("10.0.0.250/32", neighbours=on_link)
    for good in ("10.0.0.0/24", "10.0.0.2/31", "10.0.0.77/32"):
        assert doubted(good, neighbours=on_link) == ""
    # Nodes that have their addresses on no link are reached as the router says.
    for links in ((), (net("10.1.0.0/24"),)):
        assert neighbours_of(view, links, [etcd]) == {}


def test_no_path_leads_to_this_node() -> None:
    """VAL-3, whichever peer says it."""
    assert why("192.0.2.0/24", path(EXTERNAL, "10.0.0.1")) == "its next hop is this node"
    assert why("10.65.2.0/26", path(source(2), "10.0.0.1")) == "its next hop is this node"


prefixes = st.builds(
    lambda third, fourth, length: net(f"10.65.{third}.{fourth}/32").supernet(new_prefix=length),
    st.integers(0, 4),
    st.integers(0, 255),
    st.integers(0, 32),
)


@given(prefixes, st.sampled_from([path(), path(source(3)), path(EXTERNAL)]))
def test_nobody_takes_own_blocks(prefix: IPNetwork, sent: Candidate) -> None:
    """VAL-1, VAL-2 for any prefix and sender."""
    view = picture()
    if refusal(prefix, sent, facts(view)):
        return
    if prefix.subnet_of(net("10.65.1.0/26")):  # type: ignore[arg-type]
        assert view.ownership.owners(prefix) == {"n3"}
    if sent.source.in_cluster:
        assert prefix.prefixlen
        assert view.ownership.owners(prefix) == {sent.source.node}


def test_what_lies_inside_is_found_among_few_and_many() -> None:
    """Beside a thousand prefixes a network's pieces are looked up, beside few all are looked at."""
    within = {net("10.65.1.4/30"), net("10.65.1.6/31"), net("10.65.1.7/32")}
    near = {net("10.65.1.0/29"), net("10.65.1.8/30"), net("fd00::a41:104/126"), net("0.0.0.0/0")}
    crowd = {net(f"10.66.{number // 250}.{number % 250}/32") for number in range(1000)}
    for others in (set(), near, near | crowd):
        assert set(inside(within | others, net("10.65.1.4/30"))) == within
        assert inside(others, net("10.65.1.4/30")) == []
