"""Objects that cannot be understood, or not enforced in full, never widen access (NWA-1 to 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from felix.calc.policy_model import Verb
from libcalico.model import ResourceKey, Rule
from libcalico.model.resources.rules import ICMPFields, ServiceMatch
from libcalico.model.salvage import salvage
from tests.felix.policy_objects import (
    Object,
    Packet,
    World,
    allow,
    deny,
    global_policy,
    namespace,
    network_set,
    pod,
    policy,
    profile,
    rule,
    tier,
)

A, B, D = "10.0.0.1", "10.0.0.2", "10.0.0.9"


def cluster(*more: Object) -> World:
    return World(
        namespace("default"),
        namespace("other"),
        tier("default", 1_000_000),
        pod("a", A, {"app": "a"}),
        pod("b", B, {"app": "b"}),
        pod("d", D, {"app": "d"}, namespace="other"),
        *more,
    )


def shut(world: World) -> set[str]:
    """The pods that nothing reaches."""
    places = {"a": "default", "b": "default", "d": "other"}
    return {n for n, ns in places.items() if not world.into(n, Packet("192.0.2.1", A), ns)}


BAD_RULES = [
    rule("Permit"),
    rule(""),
    allow(protocol="QUIC"),
    allow(protocol=0),
    allow(ipVersion=5),
    allow(source={"nets": ["10.0.0.0/33"]}),
    allow(source={"nets": ["10.0.0.0/255.0.0.0"]}),
    allow(source={"notNets": ["somewhere"]}),
    allow(source={"selector": "app = 'b'"}),
    allow(source={"selector": "app == 'x') || (all()"}),
    allow(source={"notSelector": "app =="}),
    allow(source={"namespaceSelector": "&&"}),
    allow(destination={"ports": [80]}),
    allow(protocol="TCP", destination={"ports": ["99999"]}),
    allow(protocol="TCP", destination={"ports": ["90:80"]}),
    allow(protocol="TCP", destination={"ports": ["1234567890"]}),
    allow(protocol="TCP", destination={"notPorts": ["a b"]}),
    allow(protocol="ICMP", destination={"ports": [80]}),
    allow(protocol="ICMP", destination={"ports": ["http"]}),
    allow(protocol="TCP", icmp=ICMPFields(type=8)),
    allow(protocol="ICMP", icmp=ICMPFields(type=999)),
    allow(protocol="ICMP", icmp=ICMPFields(code=0)),
    allow(protocol="ICMP", ipVersion=6, icmp=ICMPFields(type=8)),
]


@pytest.mark.parametrize("bad", BAD_RULES)
def test_a_rule_that_nobody_understands_closes_its_policy(bad: Rule) -> None:
    world = cluster()
    assert shut(world) == set()
    key, value = policy("p", selector="app == 'a'", types=["Ingress"], ingress=[allow(), bad])
    world.put((key, value))
    assert shut(world) == {"a"}
    assert "spec.ingress[1]" in world.engine.conditions[key]
    assert world.out_of("a", Packet(A, B))


def test_a_bad_egress_rule_closes_ingress_too() -> None:
    types = ["Ingress", "Egress"]
    world = cluster(
        policy("p", selector="app == 'a'", types=types, ingress=[allow()], egress=[rule("No")])
    )
    assert shut(world) == {"a"}
    assert not world.out_of("a", Packet(A, B))


def test_a_direction_that_nobody_understands_closes_both() -> None:
    key, value = policy("p", selector="app == 'a'", types=["Sideways"], ingress=[allow()])
    world = cluster((key, value))
    assert shut(world) == {"a"}
    assert not world.out_of("a", Packet(A, B))
    assert "spec.types" in world.engine.conditions[key]


@pytest.mark.parametrize("bad", ["app = 'a'", "app == 'a') || (app == 'd'", "?", "app =="])
def test_a_bad_selector_closes_the_namespace_and_no_more(bad: str) -> None:
    key, value = policy("p", selector=bad, types=["Ingress"], ingress=[allow()])
    world = cluster((key, value))
    assert shut(world) == {"a", "b"}
    assert "spec.selector" in world.engine.conditions[key]
    world.put(policy("p", selector="app == 'a'", types=["Ingress"], ingress=[allow()]))
    assert shut(world) == set()
    assert key not in world.engine.conditions


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({"selector": "app = 'a'"}, {"a", "b", "d"}),
        ({"selector": "app == 'a'", "namespaceSelector": "=="}, {"a"}),
        ({"selector": "app = 'a'", "namespaceSelector": "projectcalico.org/name == 'other'"},
         {"d"}),
        ({"selector": "app == 'a'", "serviceAccountSelector": "=="}, {"a"}),
    ],
)  # fmt: skip
def test_a_bad_global_selector_closes_what_the_rest_selects(
    spec: dict[str, str], closed: set[str]
) -> None:
    key, value = global_policy("g", types=["Ingress"], ingress=[allow()], **spec)
    world = cluster((key, value))
    assert shut(world) == closed
    assert "no selector" in world.engine.conditions[key]


@pytest.mark.parametrize("levels", range(120, 131))
def test_selectors_that_are_too_deep_close(levels: int) -> None:
    deep = "(" * levels + "app == 'a'" + ")" * levels
    world = cluster(policy("p", selector=deep, types=["Ingress"]))
    assert shut(world) >= {"a"}
    spread = {"selector": deep, "serviceAccountSelector": "name != 'x'"}
    world = cluster(global_policy("g", namespaceSelector="all()", types=["Ingress"], **spread))
    assert shut(world) >= {"a"}
    joined = {"selector": deep, "notSelector": "app == 'none'", "namespaceSelector": "all()"}
    rules = [deny(source=joined), allow()]
    world = cluster(policy("p", selector="app == 'a'", types=["Ingress"], ingress=rules))
    assert not world.into("a", Packet(A, A))


def test_what_cannot_be_enforced_is_left_out_of_allows_and_of_the_matches_of_denies() -> None:
    web = {"services": ServiceMatch(name="web")}
    for first, verb in ((allow(source=web), Verb.ALLOW), (deny(source=web), Verb.DENY),
                        (rule("Pass", source=web), Verb.DENY)):  # fmt: skip
        key, value = policy("p", selector="app == 'a'", types=["Ingress"],
                            ingress=[first, allow()])  # fmt: skip
        world = cluster((key, value))
        told = world.told.policies[key].ingress
        assert [one.verb for one in told] == [verb, Verb.ALLOW]
        assert told[0].unenforced == ("source.services",)
        assert "spec.ingress[0].source.services" in world.engine.conditions[key]
        assert (shut(world) == {"a"}) == (verb is Verb.DENY)
    log = cluster(policy("p", selector="app == 'a'", ingress=[rule("Log", source=web)]))
    assert log.told.policies[key].ingress == ()


STORED = {
    "kind": "NetworkPolicy",
    "apiVersion": "projectcalico.org/v3",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "selector": "app == 'a'",
        "types": ["Ingress"],
        "order": 10,
        "ingress": [{"action": "Allow"}],
    },
}


@pytest.mark.parametrize(
    ("change", "closed"),
    [
        ({"ingress": [{"action": "Allow", "protocol": "TCP",
                       "destination": {"ports": ["99999"]}}]}, {"a"}),
        ({"ingress": [{"action": "Allow"}, {"action": 7}]}, {"a"}),
        ({"ingress": "all"}, {"a"}),
        ({"order": "first"}, {"a"}),
        ({"tier": 5}, {"a"}),
        ({"types": 5}, {"a"}),
        ({"selector": 5}, {"a", "b"}),
        ({"serviceAccountSelector": []}, {"a"}),
    ],
)  # fmt: skip
def test_bytes_of_the_wrong_shape_close(change: dict[str, Any], closed: set[str]) -> None:
    key = ResourceKey("NetworkPolicy", "p", "default")
    stored = {**STORED, "spec": {**STORED["spec"], **change}}  # type: ignore[dict-item]
    found = salvage(key, json.dumps(stored).encode())
    # Even a policy that came first and would let all pass does not help.
    first = policy("first", selector="all()", order=20, types=["Ingress"], ingress=[allow()])
    world = cluster(first, (key, found))
    assert shut(world) == closed
    assert world.engine.conditions[key]


def test_bytes_that_are_no_json_close_the_namespace() -> None:
    key = ResourceKey("NetworkPolicy", "p", "default")
    world = cluster((key, salvage(key, b"not json")))
    assert shut(world) == {"a", "b"}


def test_a_global_policy_of_garbage_closes_everybody_and_is_named() -> None:
    key = ResourceKey("GlobalNetworkPolicy", "g")
    world = cluster((key, salvage(key, b"not json")))
    assert shut(world) == {"a", "b", "d"}
    assert world.engine.conditions[key]
    world.remove(key)
    assert shut(world) == set()


def test_a_profile_with_a_bad_rule_closes_and_still_hands_down_its_labels() -> None:
    key, value = profile("kns.default", {"pcns.team": "red"}, ingress=[rule("Permit")])
    world = cluster((key, value), global_policy("g", namespaceSelector="team == 'red'",
                                                types=["Egress"]))  # fmt: skip
    assert shut(world) == {"a", "b"}
    assert not world.out_of("a", Packet(A, B))
    assert "Permit" in world.engine.conditions[key]


def test_a_network_set_keeps_the_nets_that_can_be_read() -> None:
    key, value = network_set("bad", ["192.0.2.0/24", "nowhere", "10.0.0.0/99"], {"kind": "bad"})
    closing = policy("p", selector="app == 'a'", types=["Ingress"],
                     ingress=[deny(source={"selector": "kind == 'bad'"}), allow()])  # fmt: skip
    world = cluster((key, value), closing)
    assert shut(world) == {"a"}
    assert "'nowhere'" in world.engine.conditions[key]
    world.remove(key)
    assert key not in world.engine.conditions
    assert shut(world) == set()
