"""Policies, sets and tiers through the command line, on a real etcd."""

from __future__ import annotations

import json
from typing import Any

from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value
from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd

ROOT = "/calico/resources/v3/projectcalico.org"


def document(kind: str, name: str, namespace: str = "", **spec: Any) -> str:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    tree = {
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": metadata,
        "spec": spec,
    }
    return json.dumps(tree)


ALLOW = [{"action": "Allow"}]
NP = document("NetworkPolicy", "web", "shop", order=10.5, selector="a == 'b'", ingress=ALLOW)
GNP = document("GlobalNetworkPolicy", "deny", types=["Ingress", "Egress"])
SET = document("NetworkSet", "db", "shop", nets=["10.0.0.0/8", "192.0.2.1"])
GSET = document("GlobalNetworkSet", "all", nets=[f"10.{i}.0.0/16" for i in range(20)])
TIER = document("Tier", "security", order=10)


def test_a_policy_is_stored_as_calico_stores_it_and_shown_as_it_was_given(
    ctl: Ctl, etcd: Etcd
) -> None:
    done = ctl("create", "-f", "-", stdin=NP)
    assert done.out == "Successfully created 1 'NetworkPolicy' resource(s)\n", done.err
    raw = etcd.get(f"{ROOT}/networkpolicies/shop/web")
    assert raw is not None
    stored = json.loads(raw)
    assert stored["metadata"]["annotations"] == {"projectcalico.org/metadata": '{"name":"web"}'}
    assert stored["metadata"]["labels"] == {"projectcalico.org/tier": "default"}
    assert stored["spec"]["tier"] == "default"
    assert stored["spec"]["types"] == ["Ingress"]
    shown = json.loads(ctl("get", "policy", "web", "-n", "shop", "-o", "json").out)
    assert "annotations" not in shown["metadata"]
    assert shown["spec"]["order"] == 10.5
    text = ctl("get", "np", "web", "-n", "shop", "-o", "yaml").out
    assert ctl("replace", "-f", "-", stdin=text).code == 0
    assert etcd.get(f"{ROOT}/networkpolicies/shop/web") == raw


def test_tables(ctl: Ctl) -> None:
    ctl("create", "-f", "-", stdin="\n---\n".join([NP, GNP, SET, GSET, TIER]))
    assert ctl("get", "networkpolicies", "-A").out.splitlines()[:2] == [
        "NAMESPACE   NAME   TIER      ",
        "shop        web    default   ",
    ]
    assert ctl("get", "pol", "-n", "shop", "-o", "wide").out.splitlines()[1].split() == [
        "shop", "web", "default", "10.5", "a", "==", "'b'",
    ]  # fmt: skip
    assert ctl("get", "gnp", "-o", "wide").out.splitlines()[1].split() == [
        "deny", "default", "<nil>",
    ]  # fmt: skip
    assert ctl("get", "netsets", "-n", "shop", "-o", "wide").out.splitlines()[1].split() == [
        "shop", "db", "10.0.0.0/8,192.0.2.1",
    ]  # fmt: skip
    nets = ctl("get", "gnetsets", "-o", "wide").out.splitlines()[1].split()[1]
    assert len(nets) == 80
    assert nets.endswith("...")
    assert ctl("get", "tiers").out.splitlines() == [
        "NAME            ORDER   ",
        "security        10      ",
        "kube-admin      1000    ",
        "default         1e+06   ",
        "kube-baseline   1e+07   ",
        "",
    ]


def test_a_policy_needs_its_tier_and_a_tier_with_policies_stays(ctl: Ctl) -> None:
    inside = document("GlobalNetworkPolicy", "p", tier="security")
    refused = ctl("create", "-f", "-", stdin=inside)
    assert refused.code == 1
    assert "GlobalNetworkPolicy(p): spec.tier: 'security' is not valid: no tier" in refused.err
    assert ctl("apply", "-f", "-", stdin=TIER + "\n---\n" + inside).code == 0
    kept = ctl("delete", "tier", "security")
    assert kept.code == 1
    assert "holds 1 GlobalNetworkPolicy resource(s), such as GlobalNetworkPolicy(p)" in kept.err
    moved = document("GlobalNetworkPolicy", "p", tier="nowhere")
    assert "no tier of this name exists" in ctl("apply", "-f", "-", stdin=moved).err
    assert ctl("delete", "gnp", "p").code == 0
    assert ctl("delete", "tier", "security").code == 0


def test_built_in_tiers_are_protected(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=TIER)
    for name in ("default", "kube-admin", "kube-baseline"):
        assert "it is built in" in ctl("delete", "tier", name).err
        changed = ctl("apply", "-f", "-", stdin=document("Tier", name, order=5))
        assert (changed.code, "is always" in changed.err) == (1, True)
        assert ctl("apply", "-f", "-", stdin=document("Tier", name)).code == 0
    assert ctl("apply", "-f", "-", stdin=document("Tier", "security", order=20)).code == 0
    assert "20" in ctl("get", "tier", "security").out


def test_names_of_kubernetes_policies_belong_to_the_controller(ctl: Ctl) -> None:
    policy = document("NetworkPolicy", "knp.default.web", "shop")
    for verb in ("create", "apply", "replace", "delete"):
        done = ctl(verb, "-f", "-", stdin=policy)
        assert done.code == 1
        assert "must be managed through the kubernetes API" in done.err


def test_a_policy_of_an_older_release_is_found_moved_and_deleted(ctl: Ctl, etcd: Etcd) -> None:
    old = {
        "kind": "GlobalNetworkPolicy",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default.deny", "uid": "u", "creationTimestamp": None},
        "spec": {"selector": "has(a)", "types": ["Ingress"]},
    }
    ctl("apply", "-f", "-", stdin=TIER)
    etcd.put(f"{ROOT}/globalnetworkpolicies/default.deny", json.dumps(old).encode())
    assert ctl("get", "gnp").out.splitlines()[1].split() == ["deny", "default"]
    shown = json.loads(ctl("get", "gnp", "deny", "-o", "json").out)
    assert (shown["metadata"]["name"], shown["metadata"]["uid"]) == ("deny", "u")
    assert "already exists" in ctl("create", "-f", "-", stdin=GNP).err
    assert ctl("apply", "-f", "-", stdin=GNP).code == 0
    assert etcd.keys(f"{ROOT}/globalnetworkpolicies/") == [f"{ROOT}/globalnetworkpolicies/deny"]
    etcd.put(f"{ROOT}/globalnetworkpolicies/default.other", json.dumps(old).encode())
    assert ctl("delete", "gnp", "deny").code == 0
    assert ctl("delete", "gnp", "default.other").code == 0
    assert etcd.keys(f"{ROOT}/globalnetworkpolicies/") == []


def test_a_broken_policy_is_named_and_can_be_replaced_or_deleted(ctl: Ctl, etcd: Etcd) -> None:
    path = f"{ROOT}/globalnetworkpolicies/deny"
    ctl("apply", "-f", "-", stdin=GNP)
    etcd.put(path, b'{"metadata":{"name":"deny"},"spec":{"order":"first"}}')
    for command in (("get", "gnp"), ("get", "gnp", "deny")):
        assert "spec.order: 'first'" in ctl(*command).err
    assert ctl("apply", "-f", "-", stdin=GNP).code == 0
    raw = etcd.get(path)
    assert raw is not None
    assert decode_value(ResourceKey("GlobalNetworkPolicy", "deny"), raw).spec.order is None
    etcd.put(path, b"{")
    assert ctl("delete", "gnp", "deny").code == 0
    assert etcd.get(path) is None


def test_a_bad_policy_writes_nothing(ctl: Ctl, etcd: Etcd) -> None:
    bad = document(
        "NetworkPolicy",
        "bad",
        "shop",
        ingress=[{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80, 70000]}}],
    )
    done = ctl("apply", "-f", "-", stdin=NP + "\n---\n" + bad)
    assert done.code == 1
    assert (
        "NetworkPolicy(bad): spec.ingress[0].destination.ports[1]: 70000 is not valid" in done.err
    )
    assert etcd.keys(f"{ROOT}/networkpolicies/") == []
