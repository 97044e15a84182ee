"""ClusterNetworkPolicy as Calico's policy: every feature, and what cannot be said in full."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico.conversion import NodeAddresses, convert
from libcalico.conversion.cluster_policy import cluster_policy, speaks_of_nodes
from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model import EntityRule, GlobalNetworkPolicy, Rule, RuleMetadata
from libcalico.model.codec import shown_value
from libcalico.model.defaults import apply_defaults
from libcalico.model.validation.validate import problems
from tests.size import examples

PODS = "projectcalico.org/orchestrator == 'k8s'"
NODES = [
    NodeAddresses({"zone": "a"}, ("192.168.0.2", "fd00::2")),
    NodeAddresses({"zone": "b"}, ("192.168.0.1",)),
]
SPACE: dict[str, Any] = {"namespaces": {"matchLabels": {"team": "a"}}}
END = EntityRule(selector=PODS, namespaceSelector="team == 'a'")


def policy(tier: str = "Admin", subject: Any = SPACE, **rules: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "fence"},
        "spec": {"tier": tier, "priority": 7, "subject": subject, **rules},
    }


def made(nodes: Any = NODES, **rules: Any) -> tuple[list[Rule], list[Rule], list[str]]:
    conversion = convert(policy(**rules), nodes)
    resource = conversion.resource
    assert isinstance(resource, GlobalNetworkPolicy)
    assert problems(apply_defaults(resource)) == []
    return resource.spec.ingress, resource.spec.egress, [one.field for one in conversion.dropped]


def egress(*peers: Any, action: str = "Accept", **more: Any) -> list[dict[str, Any]]:
    return [{"action": action, "to": list(peers), **more}]


@pytest.mark.promise("F-72")
@pytest.mark.parametrize(("tier", "ours"), [("Admin", "kube-admin"), ("Baseline", "kube-baseline")])
def test_tier_priority_subject_and_directions(tier: str, ours: str) -> None:
    converted, dropped = cluster_policy(policy(tier, egress=egress(SPACE)))
    assert not dropped
    assert converted.metadata.name == "kcnp.fence"
    spec = converted.spec
    assert (spec.tier, spec.order, spec.types) == (ours, 7, ["Egress"])
    assert (spec.namespaceSelector, spec.selector) == ("team == 'a'", PODS)
    subject = {
        "pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}},
    }
    converted, _ = cluster_policy(policy(tier, subject, ingress=[]))
    assert (converted.spec.namespaceSelector, converted.spec.selector) == (
        "all()",
        f"{PODS} && app == 'web'",
    )
    assert converted.spec.types == []


def test_actions_and_names_of_rules_in_their_order() -> None:
    rules = [
        {"action": action, "from": [SPACE], **({"name": "first"} if action == "Pass" else {})}
        for action in ("Pass", "Deny", "Accept")
    ]
    ingress, _, dropped = made(ingress=rules)
    assert not dropped
    assert [rule.action for rule in ingress] == ["Pass", "Deny", "Allow"]
    assert ingress[0].metadata == RuleMetadata(annotations={"name": "first"})
    assert all(rule.source == END for rule in ingress)
    assert ingress[1].metadata is None


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        ([{"tcp": {}}], [("TCP", [])]),
        ([{"udp": {"destinationPort": {"number": 53}}}], [("UDP", [53])]),
        (
            [
                {"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}},
                {"sctp": {"destinationPort": {"number": 9}}},
                {"tcp": {"destinationPort": {"number": 91}}},
            ],
            [("SCTP", [9]), ("TCP", ["80:91"])],
        ),
        ([{"tcp": {}}, {"tcp": {"destinationPort": {"number": 1}}}], [("TCP", [])]),
        ([{"destinationNamedPort": "web"}], [(p, ["web"]) for p in ("SCTP", "TCP", "UDP")]),
    ],
)
def test_protocols_and_ports(protocols: Any, expected: Any) -> None:
    _, rules, dropped = made(egress=egress(SPACE, protocols=protocols))
    assert not dropped
    assert [(rule.protocol, rule.destination.ports) for rule in rules] == expected


def test_networks_of_both_families_are_rules_of_one_family() -> None:
    nets = ["10.0.0.0/8", "fd00::1/64", "10.0.0.0/8"]
    _, rules, dropped = made(egress=egress({"networks": nets}))
    assert not dropped
    assert [rule.destination.nets for rule in rules] == [["10.0.0.0/8"], ["fd00::/64"]]


def test_nodes_are_their_addresses() -> None:
    everywhere = egress({"nodes": {}})
    _, rules, _ = made(egress=everywhere)
    assert [rule.destination.nets for rule in rules] == [
        ["192.168.0.1/32", "192.168.0.2/32"],
        ["fd00::2/128"],
    ]
    some = egress({"nodes": {"matchLabels": {"zone": "b"}}})
    _, rules, _ = made(egress=some)
    assert [rule.destination.nets for rule in rules] == [["192.168.0.1/32"]]
    _, rules, dropped = made(egress=egress({"nodes": {"matchLabels": {"zone": "c"}}}))
    assert (rules, dropped) == ([], [])
    assert speaks_of_nodes(policy(egress=some))
    assert not speaks_of_nodes(policy(egress=egress(SPACE)))
    many = [NodeAddresses({}, (f"10.0.{n // 250}.{n % 250 + 1}",)) for n in range(600)]
    _, rules, _ = made(many, egress=everywhere)
    assert [len(rule.destination.nets) for rule in rules] == [256, 256, 88]


BAD_PEERS: list[Any] = [
    {"domainNames": ["example.com"]},
    {"networks": ["10.0.0.0"]},
    {"networks": []},
    {"namespaces": {}, "nodes": {}},
    {},
    {"of-tomorrow": {}},
    {"namespaces": {"matchLabels": {"a": "it's"}}},
]


@pytest.mark.parametrize("peer", BAD_PEERS)
def test_what_cannot_be_said_never_widens(peer: Any) -> None:
    """CNP-1: an Accept is left out, a Deny or Pass closes its direction; both are told."""
    for action in ("Accept", "Deny", "Pass"):
        after = {"action": "Pass", "to": [SPACE]}
        rules = [*egress(SPACE, peer, action=action), after]
        _, converted, dropped = made(egress=rules)
        assert dropped[0].startswith("spec.egress[0].to")
        expected = [] if action == "Accept" else [Rule(action="Deny")]
        assert converted[:-1] == expected
        assert converted[-1].action == "Pass"


def test_nodes_that_are_not_known_never_widen() -> None:
    _, rules, dropped = made(None, egress=egress({"nodes": {}}, action="Deny"))
    assert (rules, dropped) == ([Rule(action="Deny")], ["spec.egress[0].to[0].nodes"])


@pytest.mark.parametrize(
    "protocol",
    [
        {},
        {"tcp": {}, "udp": {}},
        {"icmp": {}},
        {"tcp": {"destinationPort": {}}},
        {"tcp": {"destinationPort": {"number": 0}}},
        {"tcp": {"destinationPort": {"number": 80, "range": {"start": 1, "end": 2}}}},
        {"tcp": {"destinationPort": {"range": {"start": 5, "end": 5}}}},
        {"destinationNamedPort": "a b"},
    ],
)
def test_ports_that_cannot_be_said_are_named(protocol: Any) -> None:
    _, rules, dropped = made(egress=egress(SPACE, protocols=[protocol]))
    assert rules == []
    assert dropped[0].startswith("spec.egress[0].protocols[0]")


def test_rules_of_the_other_direction_and_unknown_actions_are_refused() -> None:
    ingress, _, dropped = made(ingress=[{"action": "Allow", "from": [SPACE]}])
    assert (ingress, dropped) == ([Rule(action="Deny")], ["spec.ingress[0].action"])
    _, _, dropped = made(ingress=[{"action": "Accept", "from": [{"networks": ["10.0.0.0/8"]}]}])
    assert dropped == ["spec.ingress[0].from[0].networks"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tier": "Middle"}, "spec.tier"),
        ({"priority": 1001}, "spec.priority"),
        ({"priority": None}, "spec.priority"),
        ({"subject": {}}, "spec.subject"),
        ({"subject": {"namespaces": {}, "pods": {}}}, "spec.subject"),
        ({"types": ["Ingress"]}, "spec.types"),
    ],
)
def test_a_policy_that_does_not_say_whom_it_selects_is_refused(change: Any, field: str) -> None:
    document = policy()
    document["spec"].update(change)
    with pytest.raises(InvalidValue) as refused:
        convert(document)
    assert refused.value.field == field
    assert "ClusterNetworkPolicy(fence)" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "instead"),
    [("AdminNetworkPolicy", "Admin"), ("BaselineAdminNetworkPolicy", "Baseline")],
)
def test_the_older_kinds_are_refused_by_name(kind: str, instead: str) -> None:
    document = {
        "apiVersion": "policy.networking.k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "old"},
    }
    with pytest.raises(UnsupportedKind, match=f"{kind}.*ClusterNetworkPolicy.*tier {instead}"):
        convert(document)


def test_a_name_with_dots_is_a_name() -> None:
    document = policy(egress=egress(SPACE))
    document["metadata"]["name"] = "a.b.c"
    converted, _ = cluster_policy(document)
    assert converted.metadata.name == "kcnp.a.b.c"
    assert problems(apply_defaults(converted)) == []


PEERS = st.sampled_from([SPACE, {"networks": ["10.0.0.0/8"]}, {"nodes": {}}, *BAD_PEERS])
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(["Accept", "Deny", "Pass", "Allow"]),
            "to": st.lists(PEERS, min_size=0, max_size=3),
        }
    ),
    max_size=4,
)


@settings(max_examples=examples(100), deadline=None)
@given(RULES)
def test_equal_documents_give_equal_valid_bytes(rules: list[dict[str, Any]]) -> None:
    """CNP-2, and whatever was dropped, the result is a valid policy that allows no more."""
    first, dropped = cluster_policy(policy(egress=rules), NODES)
    second, _ = cluster_policy(policy(egress=copy.deepcopy(rules)), list(reversed(NODES)))
    assert shown_value(first) == shown_value(second)
    assert problems(apply_defaults(first)) == []
    bad = {int(one.field.split("[")[1].split("]")[0]) for one in dropped}
    allowed = sum(
        rule["action"] == "Accept" and index not in bad for index, rule in enumerate(rules)
    )
    assert bool(allowed) >= any(rule.action == "Allow" for rule in first.spec.egress)
