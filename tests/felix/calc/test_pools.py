"""A pool is routed as long as addresses of it are in use (PLR-1)."""

from __future__ import annotations

import ast
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.blocks import BlockFacts
from felix.calc.graph import Calculator
from felix.calc.learned_routes import RouteAcceptance, Via
from felix.calc.pools import Pool
from felix.calc.standalone_blocks import StandaloneBlocks
from felix.calc.tunnels import Kind, RemoteHop, TunnelSupport
from libcalico.model import (
    AffinityKey,
    BlockAffinity,
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from linux import prefixes

ROOT = Path(__file__).parents[3]
BLOCK, AFTER = ip_network("10.65.1.0/26"), ip_network("10.65.1.3/32")
NEAR, FAR = "10.99.1.2/24", "10.99.2.2/24"


def cluster(address: str = NEAR, **spec: Any) -> Calculator:
    """This node, another with a pod in a pool of these fields."""
    calc = Calculator("me")
    calc.in_sync = True
    for name, own, tunnel in (("me", "10.99.1.1/24", "10.65.0.1"), ("other", address, "10.65.3.1")):
        node = Node(
            metadata=Metadata(name=name),
            spec=NodeSpec(
                bgp=NodeBGPSpec(ipv4Address=own, ipv4IPIPTunnelAddr=tunnel),
                ipv4VXLANTunnelAddr=tunnel,
            ),
        )
        calc.update(ResourceKey("Node", name), node)
    pool(calc, **spec)
    block(calc, True)
    return calc


def pool(calc: Calculator, **spec: Any) -> None:
    value = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr="10.65.0.0/16", **spec))
    calc.update(ResourceKey("IPPool", "p"), value)


def block(calc: Calculator, claimed: bool) -> None:
    """The other node's block, with a pod in it; not claimed: as `calicoctl delete` leaves it."""
    endpoint(calc, "their", "other", str(AFTER))
    calc.update(AffinityKey("other", BLOCK), BlockAffinity() if claimed else None)


def endpoint(calc: Calculator, name: str, node: str, address: str) -> ResourceKey:
    key = ResourceKey("WorkloadEndpoint", f"{node}-k8s-{name}-eth0", "default")
    spec = WorkloadEndpointSpec(node=node, interfaceName=f"cali{name}", ipNetworks=[address])
    calc.update(key, WorkloadEndpoint(metadata=Metadata(key.name, namespace="default"), spec=spec))
    return key


def taken(calc: Calculator, text: str) -> str:
    via = Via((bytes((10, 99, 1, 2)),), False)
    return RouteAcceptance(calc.path_facts(frozenset())).refusal(prefixes.parse(text), via)


def everything(calc: Calculator, means: TunnelSupport) -> tuple[object, ...]:
    calc.cluster.settle(means)
    sets = calc.facts.pool_members(4), calc.facts.masqueraded_members(4)
    return dict(calc.cluster.ways), calc.path_facts(frozenset()), sets


@pytest.mark.parametrize("address", [NEAR, FAR])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("mode", ["Never", "Always", "CrossSubnet"])
@pytest.mark.parametrize("field", ["ipipMode", "vxlanMode"])
def test_disabled_changes_nothing_of_what_is_routed(
    field: str, mode: str, told: bool, address: str
) -> None:
    calc = cluster(address, natOutgoing=True, **{field: mode})
    before = everything(calc, TunnelSupport(told=told))
    pool(calc, natOutgoing=True, disabled=True, **{field: mode})
    assert everything(calc, TunnelSupport(told=told)) == before
    assert taken(calc, str(BLOCK)) == ""


def test_addresses_that_outlive_their_pool_are_taken_from_bgp_until_they_go() -> None:
    calc = cluster()
    version = calc.cluster_version
    calc.update(ResourceKey("IPPool", "p"), None)
    block(calc, False)
    assert taken(calc, str(AFTER)) == ""
    assert "in no pool" in taken(calc, "10.65.2.3/32")
    assert calc.facts.pool_members(4) == {str(BLOCK)}, "not translated on the way to them"
    assert calc.cluster_version > version
    version = calc.cluster_version
    key = ResourceKey("WorkloadEndpoint", "other-k8s-their-eth0", "default")
    calc.update(key, None)
    assert "in no pool" in taken(calc, str(AFTER))
    assert calc.facts.pool_members(4) == frozenset()
    assert calc.cluster_version > version


@pytest.mark.parametrize(
    ("address", "means", "wanted"),
    [
        (NEAR, TunnelSupport(), None),
        (NEAR, TunnelSupport(told=False), Kind.STRAIGHT),
        (FAR, TunnelSupport(told=False), Kind.VXLAN),
        (FAR, TunnelSupport(told=False, vxlan=frozenset()), None),
    ],
)
def test_without_bgp_they_have_a_way_where_one_can_be_known(
    address: str, means: TunnelSupport, wanted: Kind | None
) -> None:
    calc = cluster(address)
    calc.update(ResourceKey("IPPool", "p"), None)
    block(calc, False)
    calc.cluster.settle(means)
    way = calc.cluster.ways.get(AFTER)
    assert (way.kind if isinstance(way, RemoteHop) else None) is wanted
    said = "lies outside" in str(calc.cluster.complaints())
    assert said == (wanted is None and not means.told), "or it is said"


def test_pods_that_outlive_their_pool_are_named_with_what_they_lost() -> None:
    calc = cluster()
    for number, name in enumerate(("a", "b", "c")):
        endpoint(calc, name, "me", f"10.65.{2 * (number == 2)}.{3 + number}/32")
    calc.update(AffinityKey("me", ip_network("10.65.0.0/26")), BlockAffinity())
    for value in (BlockAffinity(), None):
        calc.update(AffinityKey("me", ip_network("10.65.2.0/26")), value)
    assert calc.poolless == {}
    calc.update(ResourceKey("IPPool", "p"), None)
    assert calc.poolless.keys() == {"block 10.65.0.0/26", "block 10.65.2.0/26"}, "not another's"
    assert "2 pod(s) of this node" in calc.poolless["block 10.65.0.0/26"]
    assert "natOutgoing" in calc.poolless["block 10.65.2.0/26"]
    pool(calc, disabled=True)
    assert calc.poolless == {}, "what the advice says ends it"


NETS = st.integers(0, 7).map(lambda number: ip_network((0x0A000000 + (number << 8), 24)))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("pool", "block")), NETS, st.sampled_from(("", "host:a", "virtual:x", None))
    ),
    max_size=20,
)


@given(STEPS)
def test_blocks_alone_are_what_a_fresh_look_finds(steps: list[tuple[str, Any, str | None]]) -> None:
    pools: dict[str, Pool] = {}
    blocks: dict[Any, BlockFacts] = {}
    alone = StandaloneBlocks(pools, blocks)
    for kind, net, owner in steps:
        before = alone.networks
        if kind == "pool":
            if owner is None:
                pools.pop(str(net), None)
            else:
                pools[str(net)] = Pool(net.supernet(new_prefix=22 + len(owner) % 3), False)
            alone.pools_changed()
        else:
            if owner is None:
                blocks.pop(net, None)
            else:
                blocks[net] = BlockFacts(owner, frozenset())
            assert alone.block_changed(net) == (alone.networks != before)
        assert alone.networks == {
            cidr
            for cidr, facts in blocks.items()
            if not facts.owner.startswith("virtual:")
            and not any(cidr.subnet_of(each.network) for each in pools.values())
        }


@pytest.mark.parametrize("room", ["felix", "bgp"])
def test_rooms_that_route_cannot_ask_whether_a_pool_is_disabled(room: str) -> None:
    asked = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "disabled"
    ]
    assert asked == []
