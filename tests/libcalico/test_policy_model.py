"""Policies and sets: the bytes of v3.32, what older releases wrote, and what is filled in.

The documents are written from the reference (docs/reference/data-model.md), not by
our encoder.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcalico.datastore.etcd.keys import key_of_path, path_of
from libcalico.model import (
    EntityRule,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    HTTPMatch,
    HTTPPath,
    ICMPFields,
    Metadata,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
    ResourceKey,
    Rule,
    RuleMetadata,
    ServiceAccountMatch,
    ServiceMatch,
    Tier,
    TierSpec,
)
from libcalico.model.codec import decode_value, encode_value, shown_value
from libcalico.model.defaults import apply_defaults

META = (
    '"uid":"5f9d3d0c-8d6a-4a52-9a2e-0d6f1b7d6a11","creationTimestamp":"2026-08-22T10:11:12Z",'
    '"labels":{"projectcalico.org/tier":"%s"},'
    '"annotations":{"projectcalico.org/metadata":"{\\"name\\":\\"%s\\"}"}'
)
HEAD = '{"kind":"%s","apiVersion":"projectcalico.org/v3","metadata":{"name":"%s",'
UID, CREATED = "5f9d3d0c-8d6a-4a52-9a2e-0d6f1b7d6a11", "2026-08-22T10:11:12Z"


def metadata(name: str, tier: str = "default", namespace: str = "") -> Metadata:
    labels = {"projectcalico.org/tier": tier}
    return Metadata(
        name=name, namespace=namespace, uid=UID, creationTimestamp=CREATED, labels=labels
    )


NETWORK_POLICY = (
    HEAD % ("NetworkPolicy", "allow-web")
    + '"namespace":"shop",'
    + META % ("default", "allow-web")
    + '},"spec":{"tier":"default","order":1000,"ingress":[{"action":"Allow","ipVersion":4,'
    '"protocol":"TCP","source":{"nets":["10.0.0.0/8"],"selector":"role == \'web\'",'
    '"namespaceSelector":"all()","notNets":["10.9.0.0/16"],"notSelector":"has(x)",'
    '"notPorts":["1000:2000"],"serviceAccounts":{"names":["a"],"selector":"b == \'c\'"}},'
    '"destination":{"ports":[80,"8000:8010","http"]},"http":{"methods":["GET"],'
    '"paths":[{"exact":"/a"},{"prefix":"/b"}]},"metadata":{"annotations":{"k":"v"}}},'
    '{"action":"Log"}],"egress":[{"action":"Deny","protocol":"ICMP","icmp":{"type":8,"code":0},'
    '"notProtocol":17,"notICMP":{"type":3}},{"action":"Pass","destination":{"services":'
    '{"name":"s","namespace":"n"}}}],"selector":"app == \'shop\'","types":["Ingress","Egress"],'
    '"serviceAccountSelector":"has(d)","performanceHints":["AssumeNeededOnEveryNode"]}}'
)
GLOBAL_POLICY = (
    HEAD % ("GlobalNetworkPolicy", "outer")
    + META % ("security", "outer")
    + '},"spec":{"tier":"security","order":10.5,"ingress":[{"action":"Allow"}],"types":["Ingress"],'
    '"doNotTrack":true,"applyOnForward":true,"serviceAccountSelector":"a == \\"\\u003cb\\u003e\\"",'
    '"namespaceSelector":"has(c)"}}'
)
GLOBAL_DNAT = (
    HEAD % ("GlobalNetworkPolicy", "dnat")
    + META % ("default", "dnat")
    + '},"spec":{"tier":"default","types":["Ingress"],"preDNAT":true,"applyOnForward":true}}'
)
NETWORK_SET = (
    '{"kind":"NetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":"s",'
    '"namespace":"shop","labels":{"role":"db"}},"spec":{"nets":["192.0.2.1","10.0.0.1/8"]}}'
)
GLOBAL_SET = (
    '{"kind":"GlobalNetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":"s"},'
    '"spec":{}}'
)
TIER = (
    '{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"security"},'
    '"spec":{"order":10,"defaultAction":"Pass"},"status":{}}'
)

RESOURCES: list[tuple[ResourceKey, str, Any]] = [
    (
        ResourceKey("NetworkPolicy", "allow-web", "shop"),
        NETWORK_POLICY,
        NetworkPolicy(
            metadata=metadata("allow-web", namespace="shop"),
            spec=NetworkPolicySpec(
                tier="default",
                order=1000,
                selector="app == 'shop'",
                types=["Ingress", "Egress"],
                serviceAccountSelector="has(d)",
                performanceHints=["AssumeNeededOnEveryNode"],
                ingress=[
                    Rule(
                        action="Allow",
                        ipVersion=4,
                        protocol="TCP",
                        source=EntityRule(
                            nets=["10.0.0.0/8"],
                            notNets=["10.9.0.0/16"],
                            selector="role == 'web'",
                            notSelector="has(x)",
                            namespaceSelector="all()",
                            notPorts=["1000:2000"],
                            serviceAccounts=ServiceAccountMatch(names=["a"], selector="b == 'c'"),
                        ),
                        destination=EntityRule(ports=[80, "8000:8010", "http"]),
                        http=HTTPMatch(
                            methods=["GET"], paths=[HTTPPath(exact="/a"), HTTPPath(prefix="/b")]
                        ),
                        metadata=RuleMetadata(annotations={"k": "v"}),
                    ),
                    Rule(action="Log"),
                ],
                egress=[
                    Rule(
                        action="Deny",
                        protocol="ICMP",
                        icmp=ICMPFields(type=8, code=0),
                        notProtocol=17,
                        notICMP=ICMPFields(type=3),
                    ),
                    Rule(
                        action="Pass",
                        destination=EntityRule(services=ServiceMatch(name="s", namespace="n")),
                    ),
                ],
            ),
        ),
    ),
    (
        ResourceKey("GlobalNetworkPolicy", "outer"),
        GLOBAL_POLICY,
        GlobalNetworkPolicy(
            metadata=metadata("outer", "security"),
            spec=GlobalNetworkPolicySpec(
                tier="security",
                order=10.5,
                ingress=[Rule(action="Allow")],
                types=["Ingress"],
                doNotTrack=True,
                applyOnForward=True,
                serviceAccountSelector='a == "<b>"',
                namespaceSelector="has(c)",
            ),
        ),
    ),
    (
        ResourceKey("GlobalNetworkPolicy", "dnat"),
        GLOBAL_DNAT,
        GlobalNetworkPolicy(
            metadata=metadata("dnat"),
            spec=GlobalNetworkPolicySpec(
                tier="default", types=["Ingress"], preDNAT=True, applyOnForward=True
            ),
        ),
    ),
    (
        ResourceKey("NetworkSet", "s", "shop"),
        NETWORK_SET,
        NetworkSet(
            metadata=Metadata(name="s", namespace="shop", labels={"role": "db"}),
            spec=NetworkSetSpec(nets=["192.0.2.1", "10.0.0.1/8"]),
        ),
    ),
    (
        ResourceKey("GlobalNetworkSet", "s"),
        GLOBAL_SET,
        GlobalNetworkSet(metadata=Metadata(name="s")),
    ),
    (
        ResourceKey("Tier", "security"),
        TIER,
        Tier(metadata=Metadata(name="security"), spec=TierSpec(order=10, defaultAction="Pass")),
    ),
]


@pytest.mark.parametrize(("key", "text", "value"), RESOURCES, ids=lambda part: str(part)[:40])
def test_the_bytes_of_v3_32_both_ways(key: ResourceKey, text: str, value: Any) -> None:
    raw = text.encode()
    assert decode_value(key, raw) == value
    assert encode_value(key, value) == raw
    assert encode_value(key, decode_value(key, raw), raw) == raw


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("globalnetworkpolicies/gpol", ResourceKey("GlobalNetworkPolicy", "gpol")),
        ("globalnetworksets/gset", ResourceKey("GlobalNetworkSet", "gset")),
        ("networkpolicies/default/npol", ResourceKey("NetworkPolicy", "npol", "default")),
        ("networksets/default/set", ResourceKey("NetworkSet", "set", "default")),
        ("tiers/kube-admin", ResourceKey("Tier", "kube-admin")),
        (
            "networkpolicies/default/knp.default.web",
            ResourceKey("NetworkPolicy", "knp.default.web", "default"),
        ),
    ],
)
def test_keys_as_a_real_calico_spells_them(path: str, key: ResourceKey) -> None:
    whole = f"/calico/resources/v3/projectcalico.org/{path}"
    assert key_of_path(whole) == key
    assert path_of(key) == whole


def bare(kind: str, name: str, annotation: str = "", **spec: Any) -> bytes:
    annotations = {"projectcalico.org/metadata": annotation} if annotation else {}
    metadata = {"name": name, "annotations": annotations}
    return json.dumps({"kind": kind, "metadata": metadata, "spec": spec}).encode()


@pytest.mark.parametrize(
    ("key_name", "raw", "name"),
    [
        ("default.web", bare("GlobalNetworkPolicy", "default.web"), "web"),
        ("default.web", bare("GlobalNetworkPolicy", "default.web", tier="default"), "web"),
        ("default.web", bare("GlobalNetworkPolicy", "default.web", '{"name":"web"}'), "web"),
        (
            "default.web",
            bare("GlobalNetworkPolicy", "default.web", '{"name":"default.web"}'),
            "default.web",
        ),
        ("sec.web", bare("GlobalNetworkPolicy", "sec.web", tier="sec"), "sec.web"),
        ("default.web", bare("GlobalNetworkPolicy", "default.web", tier="sec"), "default.web"),
        ("web", bare("GlobalNetworkPolicy", "web", "not json"), "web"),
        ("default.", bare("GlobalNetworkPolicy", "default."), "default."),
    ],
)
def test_names_of_all_releases(key_name: str, raw: bytes, name: str) -> None:
    decoded = decode_value(ResourceKey("GlobalNetworkPolicy", key_name), raw)
    assert decoded.metadata.name == name
    assert "projectcalico.org/metadata" not in decoded.metadata.annotations
    assert decoded.metadata.labels["projectcalico.org/tier"] == "default"


def test_people_do_not_see_the_annotation_and_other_annotations_stay() -> None:
    policy = GlobalNetworkPolicy(metadata=Metadata(name="p", annotations={"mine": "x"}))
    key = ResourceKey("GlobalNetworkPolicy", "p")
    stored = json.loads(encode_value(key, policy))
    assert stored["metadata"]["annotations"] == {
        "mine": "x",
        "projectcalico.org/metadata": '{"name":"p"}',
    }
    assert stored["metadata"]["labels"] == {"projectcalico.org/tier": "default"}
    again = decode_value(key, encode_value(key, policy))
    assert again.metadata.annotations == {"mine": "x"}
    assert b"projectcalico.org/metadata" not in shown_value(again)


def test_empty_sides_are_not_made_and_stay_where_they_are() -> None:
    key = ResourceKey("GlobalNetworkPolicy", "p")
    raw = bare("GlobalNetworkPolicy", "p", ingress=[{"action": "Deny", "source": {}}])
    value = decode_value(key, raw)
    assert b'"ingress":[{"action":"Deny"}]' in encode_value(key, value)
    assert b'"ingress":[{"action":"Deny","source":{}}]' in encode_value(key, value, raw)


ALLOW = [Rule(action="Allow")]


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, ["Ingress"]),
        ({"ingress": ALLOW}, ["Ingress"]),
        ({"egress": ALLOW}, ["Egress"]),
        ({"ingress": ALLOW, "egress": ALLOW}, ["Ingress", "Egress"]),
        ({"types": ["Egress"], "ingress": ALLOW}, ["Egress"]),
        ({"types": ["Egress", "Ingress"]}, ["Egress", "Ingress"]),
    ],
)
def test_types_follow_from_the_rules(spec: dict[str, Any], types: list[str]) -> None:
    policy = GlobalNetworkPolicy(metadata=Metadata(name="p"), spec=GlobalNetworkPolicySpec(**spec))
    filled = apply_defaults(policy)
    assert filled.spec.types == types
    assert filled.spec.tier == "default"
    assert filled.metadata.labels == {"projectcalico.org/tier": "default"}
    assert apply_defaults(filled) == filled


@pytest.mark.parametrize(
    ("name", "order", "action"),
    [
        ("security", None, "Deny"),
        ("default", 1_000_000, "Deny"),
        ("kube-admin", 1_000, "Pass"),
        ("kube-baseline", 10_000_000, "Pass"),
    ],
)
def test_defaults_of_tiers(name: str, order: int | None, action: str) -> None:
    tier = apply_defaults(Tier(metadata=Metadata(name=name)))
    assert (tier.spec.order, tier.spec.defaultAction) == (order, action)


def test_ports_and_protocols_have_one_form() -> None:
    raw = bare(
        "GlobalNetworkPolicy",
        "p",
        ingress=[
            {
                "action": "Allow",
                "protocol": "6",
                "destination": {"ports": ["80", "1000:2000", "7:7", "web", "no port", "9:1"]},
            }
        ],
    )
    rule = decode_value(ResourceKey("GlobalNetworkPolicy", "p"), raw).spec.ingress[0]
    assert rule.protocol == 6
    # What is no port stays, so that the validator can name it.
    assert rule.destination.ports == [80, "1000:2000", 7, "web", "no port", "9:1"]
