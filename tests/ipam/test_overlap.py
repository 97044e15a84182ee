"""What a new pool may not cover, and the free networks that are offered instead."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipam.admin.overlap import Facts, Taken, candidates, check, node_networks, problems
from ipam.records.pools import Pool
from libcalico.errors import InvalidValue
from libcalico.model import IPPool, IPPoolSpec, Metadata, Node
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.node import NodeAddress, NodeBGPSpec, NodeInterface, NodeSpec


def pool(cidr: str, name: str = "new", **spec: object) -> IPPool:
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(cidr=cidr, **spec))  # type: ignore[arg-type]


def node(**spec: object) -> Node:
    return Node(metadata=Metadata(name="n1"), spec=NodeSpec(**spec))  # type: ignore[arg-type]


HOST = Taken(ip_network("10.99.1.0/24"), "the network 10.99.1.0/24 of Node(n1)")
SERVICES = Taken(ip_network("10.16.0.0/12"), "the service range 10.16.0.0/12")
LOAD = Taken(ip_network("10.50.0.0/24"), "the load-balancer addresses 10.50.0.0/24")
FACTS = Facts(
    pools=(Pool("old", ip_network("10.65.0.0/16"), 26),),
    blocks=(ip_network("10.65.0.0/26"), ip_network("10.70.0.0/28")),
    hosts=(HOST,),
    services=(SERVICES,),
    advertised=(LOAD,),
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("10.99.0.0/16", HOST.what),
        ("10.99.1.128/26", HOST.what),
        ("10.20.0.0/16", SERVICES.what),
        ("10.50.0.0/16", LOAD.what),
        ("10.65.128.0/17", "IPPool(old) of 10.65.0.0/16"),
    ],
)
@pytest.mark.promise("PAIN-6")
def test_what_belongs_to_somebody_is_refused_and_named(text: str, named: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check(pool(text), FACTS)
    assert refused.value.field == "spec.cidr"
    assert named in refused.value.rule
    assert refused.value.rule.partition("free are ")[2].partition(" (")[0].count("/") == 3


def test_a_free_network_is_accepted_and_so_is_what_was_offered() -> None:
    check(pool("10.66.0.0/16"), FACTS)
    for offered in candidates(ip_network("10.99.0.0/16"), FACTS):
        check(pool(str(offered)), FACTS)


def test_allow_overlap_overrides_all_but_the_rule_of_block_sizes() -> None:
    check(pool("10.99.0.0/16"), FACTS, allow_overlap=True)
    check(pool("10.65.128.0/17", blockSize=26), FACTS, allow_overlap=True)
    with pytest.raises(InvalidValue, match="overlaps IPPool"):
        check(pool("10.65.128.0/17", blockSize=28), FACTS, allow_overlap=True)
    with pytest.raises(InvalidValue, match="of another size"):
        check(pool("10.70.0.0/16", blockSize=26), FACTS, allow_overlap=True)


@pytest.mark.promise("PAIN-5")
def test_blocks_of_a_former_pool_must_fit_the_new_one() -> None:
    with pytest.raises(InvalidValue, match="of another size"):
        check(pool("10.70.0.0/16", blockSize=26), FACTS)
    check(pool("10.70.0.0/16", blockSize=28), FACTS)


def test_a_disabled_pool_marks_what_is_not_to_be_translated() -> None:
    assert problems(pool("10.99.0.0/16", disabled=True), FACTS) == []
    assert problems(pool("10.65.0.0/24", disabled=True), FACTS)


def test_a_load_balancer_pool_may_lie_in_the_network_of_the_nodes() -> None:
    assert problems(pool("10.99.1.64/26", allowedUses=["LoadBalancer"]), FACTS) == []
    assert problems(pool("10.50.0.0/24", allowedUses=["LoadBalancer"]), FACTS) == []
    assert problems(pool("10.16.1.0/26", allowedUses=["LoadBalancer"]), FACTS) == [SERVICES.what]


def test_a_node_says_which_networks_it_is_in() -> None:
    full = node(
        bgp=NodeBGPSpec(ipv4Address="10.0.1.5/24", ipv6Address="fd00::5/64"),
        addresses=[NodeAddress("10.0.1.5/24"), NodeAddress("node1.example")],
        interfaces=[NodeInterface("eth1", ["192.0.2.7", "fe80::1", "127.0.0.1"])],
    )
    assert {str(taken.cidr) for taken in node_networks(full)} == {
        "10.0.1.0/24",
        "fd00::/64",
        "192.0.2.7/32",
    }


def test_a_tunnel_address_out_of_a_block_is_no_obstacle_to_its_own_pool() -> None:
    tunnel = node(bgp=NodeBGPSpec(ipv4IPIPTunnelAddr="10.65.0.1"))
    assert [str(taken.cidr) for taken in node_networks(tunnel)] == ["10.65.0.1/32"]
    assert node_networks(tunnel, [ip_network("10.65.0.0/26")]) == []


def networks(low: int, high: int) -> st.SearchStrategy[IPNetwork]:
    def build(pair: tuple[int, int]) -> IPNetwork:
        value, length = pair
        return ip_network((value >> (32 - length) << (32 - length), length))

    base = st.sampled_from([0x0A000000, 0xAC100000, 0xC0A80000, 0x64400000])
    value = st.tuples(base, st.integers(0, 0xFFFFF)).map(lambda pair: pair[0] + pair[1])
    return st.tuples(value, st.integers(low, high)).map(build)


@given(st.lists(networks(8, 32), max_size=12), networks(9, 28))
def test_an_offered_network_is_free_and_as_large(busy: list[IPNetwork], asked: IPNetwork) -> None:
    facts = Facts(hosts=tuple(Taken(net, "taken") for net in busy))
    offered = candidates(asked, facts)
    assert len(set(offered)) == len(offered) <= 3
    for free in offered:
        assert free.prefixlen == asked.prefixlen
        assert free.is_private or free.subnet_of(ip_network("100.64.0.0/10"))  # type: ignore[arg-type]
        assert not any(free.overlaps(net) for net in busy)


@pytest.mark.parametrize("length", [32, 48, 64, 112, 122])
def test_free_ipv6_networks_are_unique_local(length: int) -> None:
    asked = ip_network(f"fd00::/{length}")
    offered = candidates(asked, FACTS)
    assert len(offered) == 3
    again = candidates(asked, Facts(hosts=tuple(Taken(net, "taken") for net in offered)))
    assert not set(again) & set(offered)
    for free in offered:
        assert free.prefixlen == length
        assert free.subnet_of(ip_network("fd00::/8"))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["fc00::/8", "::/4"])
def test_of_the_widest_ipv6_networks_there_is_one_to_offer(text: str) -> None:
    assert candidates(ip_network(text), FACTS) == [ip_network("fd00::/8")]
