"""What v1 documents cannot say, or v3 cannot keep, is refused with the path as written."""

from __future__ import annotations

import pytest
import yaml

from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.legacy import convert_document, is_legacy, legacy_problems

V1 = "apiVersion: v1\n"


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("kind: ipPool\nmetadata: {}", "metadata.cidr", "required"),
        ("kind: ipPool\nmetadata: {name: p}", "metadata.name", "no such field"),
        ("kind: ipPool\nmetadata: {cidr: 10.0.0.1/8}", "metadata.cidr", "behind the mask"),
        ("kind: ipPool\nmetadata: {cidr: 10/8}", "metadata.cidr", "CIDR"),
        ("kind: ipPool\nmetadata: [1]", "metadata", "mapping"),
        (
            "kind: ipPool\nmetadata: {cidr: 10.0.0.0/8}\nspec: {natOutgoing: true}",
            "spec.natOutgoing",
            "no such field",
        ),
        (
            "kind: ipPool\nmetadata: {cidr: 10.0.0.0/8}\nspec: {nat-outgoing: maybe}",
            "spec.nat-outgoing",
            "true or false",
        ),
        (
            "kind: ipPool\nmetadata: {cidr: 1.0.0.0/8}\nspec: {ipip: {enabled: true, mode: vx}}",
            "spec.ipip.mode",
            "cross-subnet",
        ),
        (
            "kind: ipPool\nmetadata: {cidr: 'fd00::/64'}\nspec: {ipip: {enabled: true}}",
            "spec.ipip.enabled",
            "IPv4",
        ),
        ("kind: ipPool\nmetadata: {cidr: 10.0.0.0/8}\nstatus: {}", "status", "no such field"),
        ("kind: bgpPeer\nmetadata: {scope: global, peerIP: x}", "metadata.peerIP", "IP address"),
        ("kind: bgpPeer\nmetadata: {peerIP: 1.2.3.4}", "metadata.scope", "global or node"),
        ("kind: bgpPeer\nmetadata: {peerIP: 1.2.3.4, scope: node}", "metadata.node", "scope node"),
        (
            "kind: bgpPeer\nmetadata: {peerIP: 1.2.3.4, scope: global, node: a}",
            "metadata.node",
            "scope node",
        ),
        (
            "kind: bgpPeer\nmetadata: {peerIP: 1.2.3.4, scope: global}\nspec: {asNumber: x}",
            "spec.asNumber",
            "AS number",
        ),
        ("kind: node\nmetadata: {name: a}\nspec: {bgp: {asNumber: 1}}", "spec.bgp", "ipv4Address"),
        (
            "kind: policy\nmetadata: {name: a}\nspec: {ingress: [{action: permit}]}",
            "spec.ingress[0].action",
            "allow, deny",
        ),
        (
            "kind: policy\nmetadata: {name: a}\nspec: {ingress: [{}]}",
            "spec.ingress[0].action",
            "allow, deny",
        ),
        (
            "kind: policy\nmetadata: {name: a}\nspec: {egress: [{action: log, source: {net: x}}]}",
            "spec.egress[0].source.net",
            "CIDR",
        ),
        (
            "kind: policy\nmetadata: {name: a}\nspec: {egress: [{action: log,source: {nets: [a]}}]}",  # noqa: E501
            "spec.egress[0].source.nets[0]",
            "CIDR",
        ),
        ("kind: policy\nmetadata: {name: a}\nspec: {types: [both]}", "spec.types[0]", "ingress"),
        ("kind: policy\nmetadata: {name: a}\nspec: {tier: x}", "spec.tier", "no such field"),
        (
            "kind: profile\nmetadata: {name: a, tags: [x], labels: {x: y}}",
            "metadata.tags[0]",
            "label",
        ),
        ("kind: hostEndpoint\nmetadata: {name: a}", "metadata.node", "names its node"),
        (
            "kind: workloadEndpoint\nmetadata: {name: a, node: n, orchestrator: k8s}",
            "metadata.workload",
            "names it",
        ),
        (
            "kind: workloadEndpoint\nmetadata: {name: a, node: n, orchestrator: k8s, workload: p}",
            "metadata.workload",
            "<namespace>.<pod>",
        ),
    ],
)
def test_what_v1_cannot_mean_is_refused_with_its_path(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidValue) as error:
        convert_document(yaml.safe_load(V1 + text))
    assert error.value.field == field
    assert rule in error.value.rule


def test_all_bad_fields_are_named() -> None:
    text = V1 + "kind: ipPool\nmetadata: {cidr: 1, name: x}\nspec: {ipip: yes please, disable: 1}"
    assert [one.field for one in legacy_problems(yaml.safe_load(text))] == [
        "metadata.cidr",
        "metadata.name",
        "spec.ipip",
        "spec.disable",
    ]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Pod", "Pod of apiVersion v1 is not a resource of Calico's first generation"),
        ("NetworkPolicy", "apiVersion projectcalico.org/v3"),
        ("calicoapiconfig", "--config"),
        ("null", "None of apiVersion v1"),
    ],
)
def test_other_kinds_are_refused_by_name(kind: str, message: str) -> None:
    with pytest.raises(UnsupportedKind, match=message):
        convert_document(yaml.safe_load(f"{V1}kind: {kind}\n"))


def test_what_is_legacy() -> None:
    assert not is_legacy({"apiVersion": "projectcalico.org/v3"})
    assert not is_legacy(None)
    assert not is_legacy(["apiVersion", "v1"])
