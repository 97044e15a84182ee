"""Rules are read with their reasons, and compared with what was done; docs/rbac.md is not stale."""

from __future__ import annotations

import json

import pytest

from manifests import chart, rights, variants
from manifests.__main__ import main
from manifests.rights import Call

ROLE = """\
kind: Role
metadata: {name: calico-node, namespace: kube-system}
rules:
  # felix: one
  # and more.
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [a]
    verbs: [list, watch]
"""


def event(verb: str, resource: str, status: int = 200, **reference: str) -> str:
    return json.dumps({
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "system:serviceaccount:kube-system:calico-node"},
        "objectRef": {"resource": resource, **reference},
        "requestURI": "/x?fieldSelector=metadata.name%3Da&watch=1",
        "responseStatus": {"code": status},
    })  # fmt: skip


def test_a_rule_and_its_reason() -> None:
    (rule,) = rights.rules(ROLE)
    assert rule.why == "felix: one and more."
    assert rule.covers(Call("", "secrets", "list", "kube-system", "a"))
    assert not rule.covers(Call("", "secrets", "list", "kube-system", "b"))
    assert not rule.covers(Call("", "secrets", "list", "kube-system"))
    assert not rule.covers(Call("", "secrets", "list", "default", "a"))
    assert not rule.covers(Call("", "secrets", "get", "kube-system", "a"))


def test_a_rule_without_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match="calico-node: a rule has no comment"):
        rights.rules(ROLE + '  - apiGroups: [""]\n    resources: [pods]\n    verbs: [get]\n')


def test_what_a_log_says() -> None:
    granted = rights.rules(ROLE)
    found = rights.coverage(granted, [
        event("list", "secrets", namespace="kube-system"),
        event("get", "pods", 403, namespace="default", name="one"),
        '{"cut',
    ])  # fmt: skip
    assert found.used[granted[0]] == {("secrets", "list")}
    assert found.left_over() == {("calico-node", "secrets", "watch")}
    assert not found.unused()
    assert found.refused == found.uncovered == {
        ("calico-node", Call("", "pods", "get", "default", "one"))
    }  # fmt: skip
    assert rights.told(found).splitlines() == [
        "refused: calico-node: get pods",
        "no rule: calico-node: get pods",
        "unused: calico-node secrets watch",
    ]


@pytest.mark.promise("ADV-11")
@pytest.mark.parametrize("store", variants.VALUES)
def test_the_node_has_few_rules_and_reads_no_secrets(store: str) -> None:
    found = rights.rules(chart.render(variants.VALUES[store]))
    assert len([rule for rule in found if rule.account == "calico-node"]) <= 13
    for rule in found:
        assert "secrets" not in rule.resources
        assert "*" not in (*rule.groups, *rule.resources, *rule.verbs)
    named = rights.rules(chart.render({"bgp": {"passwordSecrets": ["one"]}}))
    (secrets,) = [rule for rule in named if "secrets" in rule.resources]
    assert secrets.namespace == "kube-system"
    assert secrets.names == ("one",)


def test_the_page_is_not_stale() -> None:
    assert main(["rbac-report", "--check"]) == 0


def test_calicoctl_in_the_nodes_pod_may_change_pools_and_delete_none() -> None:
    """As Calico's own role lets it."""
    group, text = "crd.projectcalico.org", chart.render({"datastore": "kubernetes"})
    granted = [rule for rule in rights.rules(text) if rule.account == "calico-node"]

    def may(verb: str) -> bool:
        return any(rule.covers(Call(group, "ippools", verb)) for rule in granted)

    assert [verb for verb in ("get", "list", "create", "update", "delete") if not may(verb)] == [
        "delete"
    ]
