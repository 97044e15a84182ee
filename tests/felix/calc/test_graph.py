"""The calculation: objects in any order, the same result; bad ones named."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.graph import CLUSTER, Calculator
from felix.calc.pools import members
from libcalico.model import (
    AffinityKey,
    BlockAffinity,
    ClusterInformation,
    ClusterInformationSpec,
    FelixConfiguration,
    FelixConfigurationSpec,
    IPPool,
    IPPoolSpec,
    Key,
    Metadata,
    Node,
    NodeAddress,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

BLOCK = ip_network("10.65.0.0/26")


def pool(cidr: str, **spec: Any) -> IPPool:
    return IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr=cidr, **spec))


def endpoint(
    node: str, address: str = "10.65.0.1/32", interface: str = "cali1"
) -> WorkloadEndpoint:
    return WorkloadEndpoint(
        metadata=Metadata(name="w"),
        spec=WorkloadEndpointSpec(node=node, interfaceName=interface, ipNetworks=[address]),
    )


def cluster(ready: bool | None) -> ClusterInformation:
    return ClusterInformation(
        metadata=Metadata(name="default"), spec=ClusterInformationSpec(datastoreReady=ready)
    )


OBJECTS: list[tuple[Key, Any]] = [
    (CLUSTER, cluster(True)),
    (ResourceKey("IPPool", "nat"), pool("10.65.0.0/16", natOutgoing=True)),
    (ResourceKey("IPPool", "plain"), pool("fd65::/48")),
    (ResourceKey("IPPool", "off"), pool("10.66.0.0/16", disabled=True)),
    (ResourceKey("Node", "me"), Node(metadata=Metadata(name="me"),
        spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address="10.99.1.1/24")))),
    (ResourceKey("Node", "other"), Node(metadata=Metadata(name="other"),
        spec=NodeSpec(addresses=[NodeAddress("10.99.1.2", "InternalIP")]))),
    (AffinityKey("other", ip_network("10.67.1.0/26")), BlockAffinity()),
    (AffinityKey("me", BLOCK), BlockAffinity()),
    (AffinityKey("other", ip_network("10.65.1.0/26")), BlockAffinity()),
    (ResourceKey("WorkloadEndpoint", "mine", "default"), endpoint("me")),
    (ResourceKey("WorkloadEndpoint", "theirs", "default"), endpoint("other", "10.65.0.0/32")),
    (ResourceKey("WorkloadEndpoint", "lost", "default"), endpoint("other", "10.68.0.1/32")),
]  # fmt: skip


def result(calc: Calculator) -> object:
    return (
        calc.endpoints.active(),
        calc.blackholes(),
        calc.path_facts(frozenset()),
        [calc.facts.pool_members(v) for v in (4, 6)],
        [calc.facts.masqueraded_members(v) for v in (4, 6)],
        calc.facts.host_members(4),
    )


def calculated(objects: list[tuple[Key, Any]]) -> Calculator:
    calc = Calculator("me")
    for key, value in objects:
        calc.update(key, value)
    calc.in_sync = True
    return calc


def test_what_a_node_should_have() -> None:
    calc = calculated(OBJECTS)
    assert calc.ready
    active, shadowed = calc.endpoints.active()
    assert [e.key.name for e in active.values()] == ["mine"]
    assert shadowed == {}
    assert calc.blackholes() == {BLOCK}
    assert calc.facts.pool_members(4) == {"10.65.0.0/16", "10.66.0.0/16", "10.67.1.0/26"}
    assert calc.facts.pool_members(6) == {"fd65::/48"}
    assert calc.facts.masqueraded_members(4) == {"10.65.0.0/16"}
    assert calc.facts.masqueraded_members(6) == frozenset()
    assert calc.facts.host_members(4) == {"10.99.1.1", "10.99.1.2"}
    facts = calc.path_facts(frozenset())
    assert facts.routed == set(
        map(ip_network, ("10.65.0.0/16", "10.66.0.0/16", "fd65::/48", "10.67.1.0/26"))
    )
    assert {str(address) for address in facts.lent} == {"10.65.0.0"}


@given(st.permutations(OBJECTS), st.lists(st.sampled_from(OBJECTS), max_size=6), st.booleans())
def test_the_order_of_events_does_not_matter(
    order: list[tuple[Key, Any]], flaps: list[tuple[Key, Any]], early: bool
) -> None:
    calc = Calculator("me")
    calc.in_sync = early
    for key, value in flaps:
        calc.update(key, value)
        calc.update(key, None)
    for key, value in order:
        calc.update(key, value)
        assert not calc.update(key, value) or calc.policy.dirty, "the same again is no change"
    calc.in_sync = True
    assert result(calc) == result(calculated(OBJECTS))
    for key, _ in order:
        calc.update(key, None)
    assert result(calc) == result(Calculator("me"))


def test_not_ready_before_the_snapshot_nor_without_the_flag() -> None:
    calc = Calculator("me")
    calc.update(CLUSTER, cluster(True))
    assert not calc.ready
    calc.in_sync = True
    assert calc.ready
    for value in (cluster(False), cluster(None), None):
        calc.update(CLUSTER, value)
        assert not calc.ready


def test_a_bad_object_is_named_and_counts_as_absent() -> None:
    calc = calculated(OBJECTS)
    mine = ResourceKey("WorkloadEndpoint", "mine", "default")
    assert calc.update(mine, endpoint("me", "10.65.0.0/24"))
    assert "must be a /32 or /128" in calc.broken[mine]
    assert calc.endpoints.active() == ({}, {})
    calc.update(mine, endpoint("me"))
    assert calc.broken == {}
    calc.update(ResourceKey("IPPool", "nat"), pool("10.65/16x"))
    assert calc.facts.masqueraded_members(4) == frozenset()
    assert len(calc.broken) == 1


def test_an_endpoint_that_moved_away_goes() -> None:
    calc = calculated(OBJECTS)
    calc.update(ResourceKey("WorkloadEndpoint", "mine", "default"), endpoint("other"))
    assert calc.endpoints.active() == ({}, {})


def test_parameters_are_kept_by_name() -> None:
    calc = Calculator("me")
    value = FelixConfiguration(
        metadata=Metadata(name="default"), spec=FelixConfigurationSpec(ipv6Support=False)
    )
    calc.update(ResourceKey("FelixConfiguration", "default"), value)
    assert calc.felix_configurations["default"]["spec"] == {"ipv6Support": False}


def test_members_are_spelled_as_the_kernel_does() -> None:
    networks = [ip_network(text) for text in ("10.0.0.1/32", "0.0.0.0/0", "fd00::1/128")]
    assert members(4, networks) == {"10.0.0.1", "0.0.0.0/1", "128.0.0.0/1"}
    assert members(6, networks) == {"fd00::1"}


def test_why_nothing_new_is_programmed_is_said() -> None:
    calc = Calculator("n1")
    key = ResourceKey("ClusterInformation", "default")
    assert calc.held_up == "", "nothing was read yet"
    calc.in_sync = True
    assert calc.held_up.startswith("does not exist")
    for ready in (True, False):
        spec = ClusterInformationSpec(datastoreReady=ready)
        calc.update(key, ClusterInformation(metadata=Metadata("default"), spec=spec))
        assert calc.held_up.startswith("" if ready else "datastoreReady is false")
        assert bool(calc.held_up) != ready
    calc.update(key, None)
    assert calc.held_up.startswith("does not exist")
