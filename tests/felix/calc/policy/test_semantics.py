"""What policies mean, packet by packet, through what the calculation told."""

from __future__ import annotations

from typing import Any

import pytest

from libcalico.model import Rule
from libcalico.model.resources.profile import DEFAULT_ALLOW
from libcalico.model.resources.rules import HTTPMatch, ICMPFields, ServiceAccountMatch, ServiceMatch
from tests.felix.policy_objects import (
    ALLOW,
    Object,
    Packet,
    World,
    account,
    allow,
    deny,
    global_network_set,
    global_policy,
    namespace,
    network_set,
    pod,
    pod_key,
    policy,
    profile,
    rule,
    tier,
)

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
OUTSIDE = "192.0.2.1"
PASS = Rule(action="Pass")
LOG = Rule(action="Log")
WEB = ServiceMatch(name="web")


def cluster(*more: Object) -> World:
    """Pod `a` is here; `b` is its neighbour in another node, `c` lives in another namespace."""
    return World(
        namespace("default", team="red"),
        namespace("other", team="blue"),
        account("web", role="front"),
        tier("default", 1_000_000),
        pod("a", A, {"app": "a"}),
        pod("b", B, {"app": "b"}, node="n2", account="web",
            profiles=["kns.default", "ksa.default.web"],
            ports={"http": ("TCP", 8080), "dns": ("UDP", 53)}),
        pod("c", C, {"app": "c"}, namespace="other", node="n2"),
        *more,
    )  # fmt: skip


def ingress(*rules: Rule) -> Object:
    fields: dict[str, Any] = {"selector": "app == 'a'", "types": ["Ingress"]}
    return policy("p", ingress=list(rules), **fields)


def egress(*rules: Rule) -> Object:
    return policy("p", selector="app == 'a'", types=["Egress"], egress=list(rules))


@pytest.mark.promise("M-117")
def test_without_policy_the_profile_decides() -> None:
    world = cluster()
    assert world.into("a", Packet(B, A))
    assert world.out_of("a", Packet(A, B))


@pytest.mark.promise("M-117")
def test_a_policy_denies_what_it_does_not_allow_in_its_direction_only() -> None:
    world = cluster(ingress())
    assert not world.into("a", Packet(B, A))
    assert world.out_of("a", Packet(A, B))


def test_a_policy_without_types_works_both_ways() -> None:
    world = cluster(policy("p", selector="app == 'a'", ingress=ALLOW))
    assert world.into("a", Packet(B, A))
    assert not world.out_of("a", Packet(A, B))


def test_profiles_are_read_in_order_and_the_first_verdict_counts() -> None:
    closing = profile("closing", ingress=[deny(protocol="TCP")], egress=[])
    pods = pod("d", "10.0.0.9", profiles=["closing", "kns.default"])
    world = cluster(closing, pods)
    assert not world.into("d", Packet(B, "10.0.0.9"))
    assert world.into("d", Packet(B, "10.0.0.9", protocol=17))


def test_no_profile_is_closed_and_the_built_in_profile_is_open() -> None:
    world = cluster(
        pod("d", "10.0.0.9", profiles=[]), pod("e", "10.0.0.10", profiles=[DEFAULT_ALLOW])
    )
    assert not world.into("d", Packet(B, "10.0.0.9"))
    assert world.into("e", Packet(B, "10.0.0.10"))


@pytest.mark.parametrize(
    ("rules", "passes"),
    [
        ([allow(source={"selector": "app == 'b'"})], {B}),
        ([allow(source={"selector": "app != 'b'"})], {A}),
        ([allow(source={"notSelector": "app == 'b'"})], {A}),
        ([allow(source={"selector": "all()", "notSelector": "app == 'a'"})], {B}),
        ([allow(source={"selector": "app == 'c'"})], set()),
        ([allow(source={"namespaceSelector": "all()"})], {A, B, C}),
        ([allow(source={"namespaceSelector": "team == 'blue'"})], {C}),
        ([allow(source={"namespaceSelector": "team == 'red'", "selector": "has(app)"})], {A, B}),
        ([allow(source={"namespaceSelector": "team == 'red'", "notSelector": "app == 'a'"})], {B}),
        ([allow(source={"serviceAccounts": ServiceAccountMatch(names=["web"])})], {B}),
        ([allow(source={"serviceAccounts": ServiceAccountMatch(selector="role == 'front'")})], {B}),
        ([allow(source={"serviceAccounts": ServiceAccountMatch(names=["no"])})], set()),
        ([allow(source={"nets": ["10.0.0.0/30"]})], {A, B, C}),
        ([allow(source={"nets": ["10.0.0.2/31", "192.0.2.0/24"]})], {B, C, OUTSIDE}),
        ([allow(source={"notNets": ["10.0.0.0/8"]})], {OUTSIDE}),
        ([allow(source={"nets": ["10.0.0.0/8"], "notNets": ["10.0.0.2/32"]})], {A, C}),
        ([allow()], {A, B, C, OUTSIDE}),
        ([deny(source={"selector": "app == 'b'"}), allow()], {A, C, OUTSIDE}),
        ([LOG, allow(source={"selector": "app == 'b'"})], {B}),
        ([LOG], set()),
        ([rule("Pass", source={"selector": "app == 'b'"}), deny()], {B}),
        ([allow(ipVersion=6)], set()),
        ([allow(ipVersion=4, source={"selector": "app == 'b'"})], {B}),
        ([allow(http=HTTPMatch(methods=["GET"]))], set()),
        ([allow(source={"services": WEB})], set()),
        ([rule("Pass", source={"services": WEB}), allow()], set()),
        ([deny(source={"services": WEB, "nets": ["10.0.0.2/32"]}), allow()],
         {A, C, OUTSIDE}),
    ],
)  # fmt: skip
def test_whom_ingress_rules_let_in(rules: list[Rule], passes: set[str]) -> None:
    world = cluster(ingress(*rules))
    found = {a for a in (A, B, C, OUTSIDE) if world.into("a", Packet(a, A))}
    assert found == passes


@pytest.mark.parametrize(
    ("rules", "passes"),
    [
        ([allow(protocol="TCP")], {(6, 80), (6, 443), (6, 8080)}),
        ([allow(protocol=6, destination={"ports": [80]})], {(6, 80)}),
        ([allow(protocol="TCP", destination={"ports": ["80:443"]})], {(6, 80), (6, 443)}),
        ([allow(protocol="TCP", destination={"ports": [80, 8080]})], {(6, 80), (6, 8080)}),
        ([allow(protocol="TCP", destination={"notPorts": [80]})], {(6, 443), (6, 8080)}),
        ([allow(protocol="TCP", destination={"ports": ["http"]})], {(6, 8080)}),
        ([allow(destination={"ports": ["http"]})], {(6, 8080)}),
        ([allow(protocol="UDP", destination={"ports": ["dns"]})], {(17, 53)}),
        ([allow(protocol="UDP", destination={"ports": ["http"]})], set()),
        ([allow(protocol="TCP", destination={"ports": ["http", 80]})], {(6, 80), (6, 8080)}),
        ([allow(protocol="TCP", destination={"ports": ["http", 80], "selector": "app == 'b'"})],
         {(6, 80), (6, 8080)}),
        ([allow(protocol="TCP", destination={"ports": ["http"], "selector": "app == 'a'"})], set()),
        ([allow(protocol="TCP", destination={"ports": ["http"], "notSelector": "app == 'b'"})],
         set()),
        ([allow(protocol="TCP", destination={"notPorts": ["http"]})], {(6, 80), (6, 443)}),
        ([allow(notProtocol="TCP")], {(17, 53), (132, 9), (1, 0)}),
        ([allow(protocol="SCTP")], {(132, 9)}),
        ([allow(protocol="ICMP")], {(1, 0)}),
        ([allow(protocol="ICMP", icmp=ICMPFields(type=8, code=0))], {(1, 0)}),
        ([allow(protocol="ICMP", icmp=ICMPFields(type=8))], {(1, 0)}),
        ([allow(protocol="ICMP", icmp=ICMPFields(type=3))], set()),
        ([allow(protocol="ICMP", notICMP=ICMPFields(type=8))], set()),
        ([allow(protocol="ICMP", notICMP=ICMPFields(type=3))], {(1, 0)}),
        ([allow(protocol="UDP", notICMP=ICMPFields(type=8))], {(17, 53)}),
        ([allow(notICMP=ICMPFields(type=8))],
         {(6, 80), (6, 443), (6, 8080), (17, 53), (132, 9)}),
        ([allow(notICMP=ICMPFields(type=3))],
         {(6, 80), (6, 443), (6, 8080), (17, 53), (132, 9), (1, 0)}),
        ([allow(notProtocol="TCP", notICMP=ICMPFields(type=3))], set()),
        ([deny(notProtocol="TCP", notICMP=ICMPFields(type=3)), allow()],
         {(6, 80), (6, 443), (6, 8080)}),
        ([allow(protocol="ICMP", notICMP=ICMPFields())], set()),
    ],
)  # fmt: skip
def test_what_egress_rules_let_out(rules: list[Rule], passes: set[tuple[int, int]]) -> None:
    world = cluster(egress(*rules))
    kinds = [(6, 80), (6, 443), (6, 8080), (17, 53), (132, 9), (1, 0)]
    found = {k for k in kinds if world.out_of("a", Packet(A, B, *k))}
    assert found == passes


def test_network_sets_are_selected_by_their_labels() -> None:
    world = cluster(
        ingress(allow(source={"selector": "kind == 'office'"})),
        network_set("mine", ["192.0.2.0/25"], {"kind": "office"}),
        network_set("theirs", ["192.0.2.128/25"], {"kind": "office"}, namespace="other"),
        global_network_set("all", ["198.51.100.0/24"], {"kind": "office"}),
    )
    assert world.into("a", Packet("192.0.2.1", A))
    assert not world.into("a", Packet("192.0.2.129", A))
    assert not world.into("a", Packet("198.51.100.1", A))


def test_global_selects_what_lies_in_no_namespace() -> None:
    world = cluster(
        ingress(allow(source={"selector": "kind == 'office'", "namespaceSelector": "global()"})),
        network_set("mine", ["192.0.2.0/24"], {"kind": "office"}),
        global_network_set("all", ["198.51.100.0/24"], {"kind": "office"}),
    )
    assert world.into("a", Packet("198.51.100.1", A))
    assert not world.into("a", Packet("192.0.2.1", A))


def test_a_network_set_of_everything_is_everything_of_its_family() -> None:
    world = cluster(
        ingress(allow(source={"selector": "kind == 'any'"})),
        network_set("any", ["0.0.0.0/0"], {"kind": "any"}),
    )
    assert world.into("a", Packet("192.0.2.1", A))
    assert world.into("a", Packet("8.8.8.8", A))
    assert not world.into("a", Packet("2001:db8::1", "fd00::1"))


def test_a_global_policy_selects_across_namespaces() -> None:
    other = pod("d", "10.0.0.9", {"app": "a"}, namespace="other")
    world = cluster(other, global_policy("g", selector="app == 'a'", types=["Ingress"]))
    assert not world.into("a", Packet(B, A))
    assert not world.into("d", Packet(B, "10.0.0.9"), namespace="other")


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({"namespaceSelector": "team == 'red'"}, {"a"}),
        ({"namespaceSelector": "team == 'blue'"}, {"d"}),
        ({"namespaceSelector": "all()", "selector": "app == 'a'"}, {"a"}),
        ({"serviceAccountSelector": "role == 'front'"}, {"e"}),
        ({"serviceAccountSelector": "all()"}, {"e"}),
        ({}, {"a", "d", "e"}),
        ({"selector": "app == 'nobody'"}, set()),
    ],
)
def test_whom_a_global_policy_selects(spec: dict[str, str], closed: set[str]) -> None:
    world = cluster(
        pod("d", "10.0.0.8", namespace="other"),
        pod("e", "10.0.0.9", account="web", namespace="third",
            profiles=[DEFAULT_ALLOW, "ksa.default.web"]),
        global_policy("g", types=["Ingress"], **spec),
    )  # fmt: skip
    places = {"a": "default", "d": "other", "e": "third"}
    shut = {n for n, ns in places.items() if not world.into(n, Packet(OUTSIDE, A), ns)}
    assert shut == closed


def test_a_namespaced_policy_stays_in_its_namespace() -> None:
    world = cluster(
        pod("d", "10.0.0.9", {"app": "a"}, namespace="other"),
        policy("p", selector="all()", types=["Ingress"]),
    )
    assert not world.into("a", Packet(B, A))
    assert world.into("d", Packet(B, "10.0.0.9"), namespace="other")


def test_a_pod_cannot_claim_another_namespace_by_a_label() -> None:
    liar = pod("d", "10.0.0.9", {"projectcalico.org/namespace": "default", "app": "b"},
               namespace="other", node="n2")  # fmt: skip
    world = cluster(liar, ingress(allow(source={"selector": "app == 'b'"})))
    assert world.into("a", Packet(B, A))
    assert not world.into("a", Packet("10.0.0.9", A))


def test_pass_goes_on_with_the_next_tier_and_after_the_last_with_the_profiles() -> None:
    first, second = tier("first", 1), tier("second", 2)
    one = global_policy("one", tier="first", selector="app == 'a'", types=["Ingress"],
                        ingress=[PASS])  # fmt: skip
    world = cluster(first, second, one)
    assert world.into("a", Packet(B, A))
    world.put(global_policy("two", tier="second", selector="app == 'a'", types=["Ingress"]))
    assert not world.into("a", Packet(B, A))
    world.put(tier("second", 2, "Pass"))
    assert world.into("a", Packet(B, A))
    world.put(tier("second", 0.5, "Deny"))
    assert not world.into("a", Packet(B, A))


def test_an_allow_in_an_early_tier_is_final() -> None:
    spec = {"selector": "app == 'a'", "types": ["Ingress"]}
    world = cluster(
        tier("early", 1),
        tier("late", 2),
        global_policy("yes", tier="early", ingress=[allow(protocol="TCP"), PASS], **spec),
        global_policy("no", tier="late", ingress=[deny()], **spec),
    )
    assert world.into("a", Packet(B, A))
    assert not world.into("a", Packet(B, A, protocol=17))


def test_a_tier_without_policies_in_a_direction_is_skipped_there() -> None:
    world = cluster(
        tier("early", 1),
        global_policy("out", tier="early", selector="all()", types=["Egress"]),
    )
    assert world.into("a", Packet(B, A))
    assert not world.out_of("a", Packet(A, B))


def test_both_families_of_a_pod_count() -> None:
    world = cluster(
        pod("d", [B[:-1] + "7", "fd00::7"], {"app": "d"}, node="n2"),
        ingress(allow(source={"selector": "app == 'd'"})),
    )
    assert world.into("a", Packet("fd00::7", "fd00::1"))
    assert world.into("a", Packet("10.0.0.7", A))
    assert not world.into("a", Packet("fd00::8", "fd00::1"))


def test_policies_for_host_endpoints_never_touch_a_workload() -> None:
    for field in ("doNotTrack", "preDNAT"):
        key, value = global_policy(
            "g", selector="all()", types=["Ingress"], applyOnForward=True, **{field: True}
        )
        world = cluster((key, value))
        assert world.into("a", Packet(B, A))
        assert key not in world.told.policies
        assert key not in world.engine.conditions


def test_a_missing_profile_closes_and_is_named() -> None:
    world = cluster(pod("d", "10.0.0.9", profiles=["kns.default", "ksa.default.late"]))
    late, _ = account("late")
    assert "does not exist" in world.engine.conditions[late]
    assert world.told.profiles["ksa.default.late"].missing
    # It denies only what the profiles before it have not decided.
    assert world.into("d", Packet(B, "10.0.0.9"))
    world.remove(namespace("default")[0])
    assert not world.into("d", Packet(B, "10.0.0.9"))
    world.put(namespace("default"), account("late"))
    assert world.into("d", Packet(B, "10.0.0.9"))
    assert late not in world.engine.conditions


def test_the_last_endpoint_takes_its_policies_and_sets_along() -> None:
    world = cluster(ingress(allow(source={"selector": "app == 'b'"})))
    assert world.told.sets
    world.remove(pod_key("a"))
    assert not world.told.sets
    assert not world.told.policies
    assert not world.told.profiles
    assert not world.told.endpoints
