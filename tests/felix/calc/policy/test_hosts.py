"""Host endpoints in the policy calculation: lists by stage, sets, profiles, conditions."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from felix.calc.policy_model import EndpointPolicy, TierView, Verb
from tests.felix.policy_objects import (
    Object,
    Packet,
    World,
    allow,
    deny,
    global_policy,
    host,
    host_key,
    namespace,
    pod,
    policy,
    profile,
    tier,
)

EDGE = {"role": "edge"}
OURS = host("ours", "eth0", EDGE, addresses=["192.0.2.1"])
BOTH = ["Ingress", "Egress"]


def on_edge(name: str, **spec: Any) -> Object:
    return global_policy(name, **{"selector": "role == 'edge'", "types": BOTH, **spec})


def lists(world: World, name: str = "ours") -> EndpointPolicy:
    return world.told.host_endpoints[host_key(name)].policy


def names(views: tuple[TierView, ...], direction: str = "ingress") -> list[tuple[str, list[str]]]:
    return [(view.name, [key.name for key in getattr(view, direction)]) for view in views]


def test_a_host_endpoint_without_policy_has_nothing_but_its_profiles() -> None:
    world = World(host("ours", "eth0", profiles=["p"]), profile("p"))
    told = world.told.host_endpoints[host_key("ours")]
    assert (told.interface, told.addresses) == ("eth0", frozenset())
    assert told.policy == EndpointPolicy(profiles=("p",))
    assert "p" in world.told.profiles


def test_each_stage_has_its_own_list() -> None:
    world = World(
        OURS,
        on_edge("normal", order=1),
        on_edge("forward", order=2, applyOnForward=True),
        on_edge("early", applyOnForward=True, doNotTrack=True),
        on_edge("dnat", applyOnForward=True, preDNAT=True, types=["Ingress"]),
    )
    told = lists(world)
    assert names(told.tiers) == [("default", ["normal", "forward"])]
    assert names(told.tiers, "egress") == [("default", ["normal", "forward"])]
    assert names(told.forward) == [("default", ["forward"])]
    assert names(told.untracked) == names(told.untracked, "egress") == [("default", ["early"])]
    assert names(told.pre_dnat) == [("default", ["dnat"])]
    assert names(told.pre_dnat, "egress") == [("default", [])]
    # Only what comes last says what happens to the rest.
    assert [v.ends_in_deny for v in (*told.untracked, *told.pre_dnat)] == [False, False]
    assert [v.ends_in_deny for v in (*told.tiers, *told.forward)] == [True, True]
    assert not world.engine.conditions


def test_tiers_are_ordered_within_each_stage() -> None:
    world = World(
        OURS,
        tier("late", 20.0, "Pass"),
        tier("soon", 10.0),
        on_edge("a", tier="late", applyOnForward=True),
        on_edge("b", tier="soon", applyOnForward=True),
        on_edge("c", tier="soon", order=1, applyOnForward=True, doNotTrack=True),
        on_edge("d", tier="late", applyOnForward=True, doNotTrack=True),
    )
    told = lists(world)
    assert names(told.forward) == names(told.tiers) == [("soon", ["b"]), ("late", ["a"])]
    assert [view.ends_in_deny for view in told.forward] == [True, False]
    assert names(told.untracked) == [("soon", ["c"]), ("late", ["d"])]


def test_workloads_see_the_normal_ones_only_and_nothing_else_is_active_for_them() -> None:
    world = World(
        namespace("default"),
        pod("a", "10.0.0.1", EDGE),
        on_edge("forward", applyOnForward=True),
        on_edge("early", applyOnForward=True, doNotTrack=True),
    )
    assert {key.name for key in world.told.policies} == {"forward"}
    [told] = world.told.endpoints.values()
    assert names(told.tiers) == [("default", ["forward"])]
    # The first host endpoint makes it active, the last one takes it along.
    world.put(OURS)
    assert {key.name for key in world.told.policies} == {"forward", "early"}
    world.remove(OURS[0])
    assert {key.name for key in world.told.policies} == {"forward"}
    assert not world.told.host_endpoints


def test_policies_of_namespaces_select_no_host_endpoint() -> None:
    claimed = {**EDGE, "projectcalico.org/namespace": "default"}
    world = World(host("ours", "eth0", claimed), policy("np", selector="role == 'edge'"))
    assert lists(world).tiers == ()


def test_labels_come_from_profiles_too() -> None:
    world = World(host("ours", "eth0", profiles=["p"]), profile("p", EDGE), on_edge("g"))
    assert names(lists(world).tiers) == [("default", ["g"])]
    world.put(profile("p"))
    assert lists(world).tiers == ()


def test_a_missing_profile_closes_and_is_named() -> None:
    world = World(host("ours", "eth0", profiles=["late"]))
    assert world.told.profiles["late"].missing
    assert "does not exist" in world.engine.conditions[profile("late")[0]]


def test_another_interface_is_told_though_policy_is_the_same() -> None:
    world = World(OURS)
    changes = world.put(host("ours", "eth1", EDGE, addresses=["192.0.2.1"]))
    told = changes.host_endpoints[host_key("ours")]
    assert told is not None
    assert told.interface == "eth1"
    changes = world.put(host("ours", "", EDGE, addresses=["192.0.2.1", "fd00::1"]))
    told = changes.host_endpoints[host_key("ours")]
    assert told is not None
    assert told.addresses == {ip_address("192.0.2.1"), ip_address("fd00::1")}
    assert not world.put(host("ours", "", EDGE, addresses=["fd00::1", "192.0.2.1"]))


def test_other_nodes_host_endpoints_are_members_of_sets_only() -> None:
    far = host(
        "far", "eth0", EDGE, node="n2", addresses=["192.0.2.2"], ports={"api": ("TCP", 6443)}
    )
    ports = {"selector": "role == 'edge'", "ports": ["api"]}
    world = World(
        namespace("default"),
        pod("a", "10.0.0.1", {"app": "a"}),
        OURS,
        far,
        policy(
            "np",
            selector="app == 'a'",
            types=BOTH,
            ingress=[allow(source={"selector": "role == 'edge'", "namespaceSelector": "global()"})],
            egress=[
                allow(protocol="TCP", destination={**ports, "namespaceSelector": "global()"}),
            ],
        ),
    )
    assert world.told.host_endpoints.keys() == {host_key("ours")}
    for address in ("192.0.2.1", "192.0.2.2"):
        assert world.into("a", Packet(address, "10.0.0.1"))
    assert not world.into("a", Packet("192.0.2.3", "10.0.0.1"))
    assert world.out_of("a", Packet("10.0.0.1", "192.0.2.2", port=6443))
    assert not world.out_of("a", Packet("10.0.0.1", "192.0.2.2", port=80))
    world.remove(far[0])
    assert not world.into("a", Packet("192.0.2.2", "10.0.0.1"))


def test_an_endpoint_that_moves_to_another_node_leaves_but_stays_a_member() -> None:
    world = World(
        namespace("default"),
        pod("a", "10.0.0.1"),
        OURS,
        policy(
            "np", ingress=[allow(source={"selector": "!has(no)", "namespaceSelector": "global()"})]
        ),
    )
    before = {name: set(members) for name, members in world.told.sets.items()}
    assert before
    changes = world.put(host("ours", "eth0", EDGE, node="n2", addresses=["192.0.2.1"]))
    assert changes.host_endpoints == {host_key("ours"): None}
    assert not changes.sets
    assert world.told.sets == before


def test_what_cannot_be_read_of_one_is_a_condition() -> None:
    world = World(host("ours", "eth0", EDGE, addresses=["x"]))
    assert "spec.expectedIPs: 'x'" in world.engine.conditions[host_key("ours")]
    world.remove(host_key("ours"))
    assert not world.engine.conditions


@pytest.mark.parametrize(
    ("fields", "stage", "told"),
    [
        ({"doNotTrack": True, "preDNAT": True, "types": ["Ingress"]}, "untracked", "doNotTrack"),
        ({"preDNAT": True, "types": BOTH}, "pre_dnat", "egress"),
        ({"preDNAT": True, "types": [], "egress": [deny()]}, "pre_dnat", "egress"),
    ],
)
def test_a_stage_that_contradicts_the_rest_closes_where_it_acts(
    fields: dict[str, Any], stage: str, told: str
) -> None:
    world = World(OURS, on_edge("g", ingress=[allow()], applyOnForward=True, **fields))
    key, _ = on_edge("g")
    assert names(getattr(lists(world), stage)) == [("default", ["g"])]
    assert [rule.verb for rule in world.told.policies[key].ingress] == [Verb.DENY]
    assert told in world.engine.conditions[key]
    assert world.engine.conditions[key].endswith("closed")


@pytest.mark.parametrize("field", ["doNotTrack", "preDNAT"])
def test_a_stage_without_apply_on_forward_is_applied_and_named(field: str) -> None:
    key, value = on_edge("g", ingress=[allow()], types=["Ingress"], **{field: True})
    world = World(OURS, (key, value))
    assert [rule.verb for rule in world.told.policies[key].ingress] == [Verb.ALLOW]
    assert "spec.applyOnForward: false: must be true" in world.engine.conditions[key]
    key, value = on_edge(
        "g", ingress=[allow()], types=["Ingress"], applyOnForward=True, **{field: True}
    )
    world.put((key, value))
    assert not world.engine.conditions
