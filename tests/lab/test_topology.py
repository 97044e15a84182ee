"""The plan of a lab is pure data: addresses, racks, what the router's and machines' ip(8) does."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from lab import network, router
from lab.errors import LabError
from lab.topology import plan

UNDERLAY = IPv4Network("10.99.0.0/16")


def test_racks_put_two_nodes_in_the_first_rack_and_the_rest_in_the_second() -> None:
    made = plan(4, "racks")
    assert [str(node.address) for node in made.nodes] == [
        "10.99.1.1/24",
        "10.99.1.2/24",
        "10.99.2.3/24",
        "10.99.2.4/24",
    ]
    assert [segment.bridge for segment in made.segments] == ["mgmt", "rack1", "rack2"]
    assert made.etcd_endpoint == "http://10.99.0.1:2379"


def test_flat_puts_every_node_in_one_rack_and_keeps_the_router() -> None:
    made = plan(5, "flat")
    assert {node.segment.number for node in made.nodes} == {1}
    assert [segment.bridge for segment in made.segments] == ["mgmt", "rack1"]
    assert "addr add 10.99.1.254/24 dev rack1" in network.router_lines(made, "x")


@pytest.mark.parametrize("nodes", [1, 3, 200])
def test_addresses_are_unique_and_inside_the_underlay(nodes: int) -> None:
    made = plan(nodes, "racks")
    addresses = [host.address.ip for host in made.hosts]
    assert len(set(addresses)) == len(addresses)
    assert all(address in UNDERLAY for address in addresses)


@pytest.mark.parametrize(("nodes", "topology"), [(0, "racks"), (201, "flat"), (3, "ring")])
def test_impossible_plans_are_refused_with_what_is_allowed(nodes: int, topology: str) -> None:
    with pytest.raises(LabError, match="allowed are"):
        plan(nodes, topology)


def test_interface_names_fit_the_kernel() -> None:
    assert max(len(host.port) for host in plan(200, "racks").hosts) <= 15


def test_bird_has_one_neighbour_per_node_with_hold_time_and_graceful_restart() -> None:
    text = router.configuration(plan(3, "racks"))
    for number, address in (1, "10.99.1.1"), (2, "10.99.1.2"), (3, "10.99.2.3"):
        assert f"protocol bgp node{number} from tor {{ neighbor {address} as 64512; }}" in text
    assert "local as 64500; hold time 9; graceful restart on;" in text


def test_each_rack_of_tors_has_a_router_of_its_own() -> None:
    made = plan(3, "tors")
    assert [(s.name, s.as_number) for s in made.switches] == [
        ("router", 64500),
        ("tor1", 64501),
        ("tor2", 64502),
    ]
    assert [node.as_number for node in made.nodes] == [64601, 64602, 64603]
    texts = {switch.name: router.configuration(made, switch) for switch in made.switches}
    assert "protocol bgp tor2 from tor { neighbor 10.99.9.2 as 64502; }" in texts["router"]
    assert "node" not in texts["router"]
    assert "protocol bgp spine from tor { neighbor 10.99.9.254 as 64500; }" in texts["tor2"]
    assert "protocol bgp node3 from tor { neighbor 10.99.2.3 as 64603; }" in texts["tor2"]
    assert "node1" not in texts["tor2"]
    assert network.ways_to_racks(made)[0] == "route add 10.99.1.0/24 via 10.99.9.1"
    assert network.ways_to_racks(plan(3, "racks")) == []


def test_in_dual_every_node_has_two_cables_and_both_ways_out() -> None:
    made = plan(2, "dual")
    lines = network.host_lines(made.nodes[1], made)
    assert "addr add 10.99.1.2/24 dev eth0" in lines
    assert "addr add 10.99.2.2/24 dev eth1" in lines
    hops = "nexthop via 10.99.1.254 dev eth0 nexthop via 10.99.2.254 dev eth1"
    assert f"route add default {hops}" in lines
    assert "neighbor 10.99.2.2 as 64512" in router.configuration(made, made.switches[2])


def test_without_ipv4_nothing_has_an_address_of_it() -> None:
    made = plan(2, "flat", ipv6_only=True)
    lines = [*network.router_lines(made, "x"), *network.host_lines(made.nodes[0], made)]
    assert not [line for line in lines if "10.99." in line]
    assert made.etcd_endpoint == "http://[fd99::1]:2379"
    assert "neighbor fd99:0:0:1::1 as 64512" in router.configuration(made)
    with pytest.raises(LabError, match="certificates"):
        plan(2, "flat", ipv6_only=True, tls=True)


def test_a_reflector_has_a_client_per_node() -> None:
    made = plan(2, "flat", reflectors=2)
    assert [str(each.address) for each in made.reflectors] == ["10.99.0.11/24", "10.99.0.12/24"]
    text = router.reflector_configuration(made, made.reflectors[1])
    assert "local 10.99.0.12 as 64512" in text
    assert text.count("from ours { neighbor 10.99.1.") == 2
    with pytest.raises(LabError, match="allowed are"):
        plan(2, "flat", reflectors=10)


def test_birds_tables_are_read() -> None:
    routes = """BIRD 2.0.12 ready.
Table master4:
10.65.1.0/26         unicast [node1 17:25:28.472] * (100) [AS64512i]
\tvia 10.99.1.1 on rack1
                     unicast [node2 17:25:29.472] (100) [AS64512i]
\tvia 10.99.1.2 on rack1
10.65.2.0/26         unicast [node3 17:25:28.472] * (100) [AS64512i]
\tvia 10.99.2.3 on rack2
"""
    assert router.learned(routes) == {
        "10.65.1.0/26": [("node1", "10.99.1.1"), ("node2", "10.99.1.2")],
        "10.65.2.0/26": [("node3", "10.99.2.3")],
    }
    protocols = """BIRD 2.0.12 ready.
Name       Proto      Table      State  Since         Info
device1    Device     ---        up     17:25:28.470
node1      BGP        ---        up     17:25:28.470  Established
node2      BGP        ---        start  17:25:28.470  Active        Socket: Connection refused
"""
    assert router.sessions(protocols) == {"node1": "Established", "node2": "Active"}
