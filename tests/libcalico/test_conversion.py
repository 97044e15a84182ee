"""Kubernetes objects as Calico resources: texts of the reference, and meaning against a model."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from libcalico import conversion
from libcalico.conversion.ports import simplified
from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model import EntityRule, NetworkPolicy, Rule, key_of
from libcalico.model.codec import encode_value
from libcalico.model.validation.validate import problems

K8S = "projectcalico.org/orchestrator == 'k8s'"


def policy(spec: str, name: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "shop", "labels": {"x": "y"}},
        "spec": yaml.safe_load(spec),
    }


def converted(spec: str) -> tuple[NetworkPolicy, list[str]]:
    done = conversion.convert(policy(spec))
    assert isinstance(done.resource, NetworkPolicy)
    assert problems(done.resource) == []
    return done.resource, [problem.field for problem in done.dropped]


def test_a_namespace() -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"team": "a"}, "uid": "1"},
        "status": {"phase": "Active"},
    }
    profile = conversion.convert(document).resource
    assert encode_value(key_of(profile), profile).decode() == (
        '{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"kns.shop"},'
        '"spec":{"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}],"labelsToApply":{'
        '"pcns.kubernetes.io/metadata.name":"shop","pcns.projectcalico.org/name":"shop",'
        '"pcns.team":"a"}}}'
    )
    assert problems(profile) == []
    assert "pcns.kubernetes.io/metadata.name" not in (
        conversion.namespace_profile(document).spec.labelsToApply
    )


def test_a_service_account() -> None:
    document = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "builder", "namespace": "shop", "labels": {"role": "ci"}},
        "secrets": [{"name": "x"}],
    }
    profile = conversion.convert(document).resource
    assert encode_value(key_of(profile), profile).decode() == (
        '{"kind":"Profile","apiVersion":"projectcalico.org/v3",'
        '"metadata":{"name":"ksa.shop.builder"},'
        '"spec":{"labelsToApply":{"pcsa.projectcalico.org/name":"builder","pcsa.role":"ci"}}}'
    )
    document["metadata"] = {"name": "builder"}
    assert conversion.convert(document).resource.metadata.name == "ksa.default.builder"


def test_a_policy_to_the_byte() -> None:
    resource, dropped = converted(
        """
        podSelector:
          matchLabels: {tier: db, app: shop}
          matchExpressions:
          - {key: a, operator: In, values: [x, y]}
          - {key: b, operator: NotIn, values: [z]}
          - {key: c, operator: Exists}
          - {key: d, operator: DoesNotExist}
        policyTypes: [Egress, Ingress]
        ingress:
        - from:
          - namespaceSelector: {matchLabels: {team: a}}
            podSelector: {matchLabels: {role: web}}
          ports: [{port: 80}, {protocol: UDP, port: dns}]
        egress:
        - to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]
        """
    )
    assert not dropped
    assert encode_value(key_of(resource), resource).decode() == (
        '{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{'
        '"name":"knp.default.web","namespace":"shop","labels":{"projectcalico.org/tier":"default"}'
        ',"annotations":{"projectcalico.org/metadata":"{\\"name\\":\\"knp.default.web\\"}"}},'
        '"spec":{"tier":"default","order":1000,"ingress":[{"action":"Allow","protocol":"TCP",'
        '"source":{"selector":"' + K8S + ' \\u0026\\u0026 role == \'web\'","namespaceSelector":'
        '"team == \'a\'"},"destination":{"ports":[80]}},'
        '{"action":"Allow","protocol":"UDP",'
        '"source":{"selector":"' + K8S + ' \\u0026\\u0026 role == \'web\'","namespaceSelector":'
        '"team == \'a\'"},"destination":{"ports":["dns"]}}],'
        '"egress":[{"action":"Allow","destination":{"nets":["10.0.0.0/8"],'
        '"notNets":["10.1.0.0/16"]}}],"selector":"' + K8S + " \\u0026\\u0026 app == 'shop'"
        " \\u0026\\u0026 tier == 'db' \\u0026\\u0026 a in { 'x', 'y' } \\u0026\\u0026 b not in"
        " { 'z' } \\u0026\\u0026 has(c) \\u0026\\u0026 ! has(d)\","
        '"types":["Ingress","Egress"]}}'
    )


ANY = Rule(action="Allow")


def test_a_direction_that_is_none_closes_what_the_default_closes_and_is_told() -> None:
    resource, dropped = converted("{podSelector: {}, policyTypes: [Nonsense]}")
    assert resource.spec.types == ["Ingress"]
    assert dropped == ["spec.policyTypes[0]"]


@pytest.mark.parametrize(
    ("spec", "ingress", "egress", "types"),
    [
        ("podSelector: {}", [], [], ["Ingress"]),
        ("{}", [], [], ["Ingress"]),
        ("{podSelector: {}, ingress: []}", [], [], ["Ingress"]),
        ("{podSelector: {}, ingress: [{}]}", [ANY], [], ["Ingress"]),
        ("{podSelector: {}, ingress: [{from: [], ports: []}]}", [ANY], [], ["Ingress"]),
        ("{podSelector: {}, ingress: [{from: null}]}", [ANY], [], ["Ingress"]),
        ("{podSelector: {}, egress: [{}]}", [], [ANY], ["Ingress", "Egress"]),
        ("{podSelector: {}, egress: []}", [], [], ["Ingress"]),
        ("{podSelector: {}, policyTypes: [Egress]}", [], [], ["Egress"]),
        ("{podSelector: {}, policyTypes: [Ingress], egress: [{}]}", [], [ANY], ["Ingress"]),
        (
            "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}",
            [Rule(action="Allow", source=EntityRule(selector=K8S))],
            [],
            ["Ingress"],
        ),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}",
            [Rule(action="Allow", source=EntityRule(selector=K8S, namespaceSelector="all()"))],
            [],
            ["Ingress"],
        ),
        (
            "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.9/8}},"
            " {podSelector: {matchLabels: {a: ''}}}], ports: [{protocol: SCTP, port: 7},"
            " {port: 9}]}]}",
            [],
            [
                Rule(
                    action="Allow",
                    protocol="SCTP",
                    destination=EntityRule(nets=["10.0.0.0/8"], ports=[7]),
                ),
                Rule(
                    action="Allow",
                    protocol="SCTP",
                    destination=EntityRule(selector=f"{K8S} && a == ''", ports=[7]),
                ),
                Rule(
                    action="Allow",
                    protocol="TCP",
                    destination=EntityRule(nets=["10.0.0.0/8"], ports=[9]),
                ),
                Rule(
                    action="Allow",
                    protocol="TCP",
                    destination=EntityRule(selector=f"{K8S} && a == ''", ports=[9]),
                ),
            ],
            ["Egress"],
        ),
    ],
)
def test_rules_and_types(
    spec: str, ingress: list[Rule], egress: list[Rule], types: list[str]
) -> None:
    resource, dropped = converted(spec)
    assert not dropped
    assert resource.spec.ingress == ingress
    assert resource.spec.egress == egress
    assert resource.spec.types == types
    assert (resource.spec.order, resource.spec.tier, resource.spec.selector) == (
        1000,
        "default",
        K8S,
    )


def test_empty_types_count_as_ingress_where_the_api_server_filled_nothing_in() -> None:
    resource, _ = conversion.network_policy(policy("{podSelector: {}, egress: [{}]}"))
    assert resource.spec.types == ["Ingress"]


@pytest.mark.parametrize(
    ("ports", "by_protocol"),
    [
        ("[{port: 80}]", {"TCP": [80]}),
        ("[{port: '80'}]", {"TCP": [80]}),
        ("[{port: 80}, {port: web}]", {"TCP": [80, "web"]}),
        ("[{port: web}, {port: 80}]", {"TCP": ["web", 80]}),
        ("[{port: 80}, {port: web}, {port: 79}]", {"TCP": ["web", "79:80"]}),
        ("[{port: 90}, {port: 80}, {port: 80}]", {"TCP": [80, 90]}),
        ("[{port: 80, endPort: 90}]", {"TCP": ["80:90"]}),
        ("[{port: 80, endPort: 80}]", {"TCP": [80]}),
        ("[{port: 80, endPort: 90}, {port: 85, endPort: 95}, {port: x}]", {"TCP": ["x", "80:95"]}),
        ("[{protocol: UDP}]", {"UDP": []}),
        ("[{protocol: UDP}, {protocol: UDP, port: 53}]", {"UDP": []}),
        ("[{}]", {"TCP": []}),
        ("[{protocol: UDP, port: 1}, {port: 2}, {protocol: SCTP, port: 3}]",
         {"SCTP": [3], "TCP": [2], "UDP": [1]}),
    ],
)  # fmt: skip
def test_ports_are_grouped_by_protocol(ports: str, by_protocol: dict[str, list[Any]]) -> None:
    resource, dropped = converted(f"{{podSelector: {{}}, ingress: [{{ports: {ports}}}]}}")
    assert not dropped
    rules = resource.spec.ingress
    assert [rule.protocol for rule in rules] == list(by_protocol)
    assert [rule.destination.ports for rule in rules] == list(by_protocol.values())
    assert all(rule.source == EntityRule() for rule in rules)


near = st.integers(1, 12)


@given(
    st.lists(near | st.tuples(near, near).map(lambda ends: f"{min(ends)}:{max(ends)}"), min_size=1)
)
def test_simplified_ports_mean_the_same_ports(ports: list[int | str]) -> None:
    """Also with gaps of one port: 80 and 82 are not 80:82."""

    def meant(of: list[int | str]) -> set[int]:
        ends = [[int(end) for end in str(port).split(":")] for port in of]
        return {number for one in ends for number in range(one[0], one[-1] + 1)}

    assert meant(simplified(list(ports))) == meant(ports)


RULE = "spec.ingress[1]"
PEER = f"{RULE}.from[0]"


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ("{form: []}", f"{RULE}.form"),
        ("{to: []}", f"{RULE}.to"),
        ("text", RULE),
        ("null", RULE),
        ("{from: {podSelector: {}}}", f"{RULE}.from"),
        ("{from: [null]}", PEER),
        ("{from: [{}]}", PEER),
        ("{from: [{podSelector: null}]}", PEER),
        ("{from: [{podselector: {}}]}", f"{PEER}.podselector"),
        ("{from: [{podSelector: {matchLabel: {}}}]}", f"{PEER}.podSelector.matchLabel"),
        ("{from: [{podSelector: {matchLabels: {a: 1}}}]}", f"{PEER}.podSelector.matchLabels[a]"),
        (
            "{from: [{podSelector: {matchLabels: {a: \"x' || all() || a == 'y\"}}}]}",
            f"{PEER}.podSelector.matchLabels[a]",
        ),
        (
            "{from: [{podSelector: {matchLabels: {\"a == 'x' || all() || b\": y}}}]}",
            f"{PEER}.podSelector.matchLabels[a == 'x' || all() || b]",
        ),
        (
            "{from: [{namespaceSelector: {matchExpressions: [{key: a, operator: in}]}}]}",
            f"{PEER}.namespaceSelector.matchExpressions[0].operator",
        ),
        (
            "{from: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]}",
            f"{PEER}.namespaceSelector.matchExpressions[0].values",
        ),
        (
            "{from: [{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}"
            "]}",
            f"{PEER}.podSelector.matchExpressions[0].values",
        ),
        (
            "{from: [{podSelector: {matchExpressions: [{operator: Exists}]}}]}",
            f"{PEER}.podSelector.matchExpressions[0].key",
        ),
        ("{from: [{ipBlock: {cidr: banana}}]}", f"{PEER}.ipBlock.cidr"),
        ("{from: [{ipBlock: {cidr: 10.0.0.1}}]}", f"{PEER}.ipBlock.cidr"),
        ("{from: [{ipBlock: {}}]}", f"{PEER}.ipBlock.cidr"),
        ("{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}]}", f"{PEER}.ipBlock.except[0]"),
        (
            "{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}",
            f"{PEER}.ipBlock.except[0]",
        ),
        (
            "{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}",
            f"{PEER}.ipBlock.except[0]",
        ),
        ("{from: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}", f"{PEER}.ipBlock"),
        ("{ports: [{port: 0}]}", f"{RULE}.ports[0].port"),
        ("{ports: [{port: 65536}]}", f"{RULE}.ports[0].port"),
        ("{ports: [{port: true}]}", f"{RULE}.ports[0].port"),
        ("{ports: [{port: not a port}]}", f"{RULE}.ports[0].port"),
        ("{ports: [{port: 80, protocol: ICMP}]}", f"{RULE}.ports[0].protocol"),
        ("{ports: [{port: 80, endPort: 70}]}", f"{RULE}.ports[0].endPort"),
        ("{ports: [{port: web, endPort: 70}]}", f"{RULE}.ports[0].endPort"),
        ("{ports: [{endPort: 70}]}", f"{RULE}.ports[0].endPort"),
        ("{ports: [{port: 80, prot: UDP}]}", f"{RULE}.ports[0].prot"),
    ],
)
def test_a_rule_that_cannot_be_converted_is_left_out_and_told(rule: str, field: str) -> None:
    good = "{ports: [{port: 1}]}"
    resource, dropped = converted(f"{{podSelector: {{}}, ingress: [{good}, {rule}, {good}]}}")
    assert dropped == [field]
    expected = Rule(action="Allow", protocol="TCP", destination=EntityRule(ports=[1]))
    assert resource.spec.ingress == [expected, expected]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("{podSelector: {matchLabels: [a]}}", "spec.podSelector.matchLabels"),
        ('{podSelector: {matchLabels: {a: "\'"}}}', "spec.podSelector.matchLabels[a]"),
        ("{podselector: {}}", "spec.podselector"),
        ("{podSelector: {}, ingress: {}}", "spec.ingress"),
        ("{podSelector: {}, policyTypes: Ingress}", "spec.policyTypes"),
        ("[]", "spec"),
    ],
)
def test_without_knowing_whom_a_policy_selects_nothing_is_converted(spec: str, field: str) -> None:
    with pytest.raises(InvalidValue) as problem:
        conversion.convert(policy(spec))
    assert problem.value.field == field
    assert "NetworkPolicy(web)" in str(problem.value)


def test_documents_without_a_name_and_of_other_kinds() -> None:
    document = policy("{}")
    for name in ("", "Upper", "a b", 7):
        document["metadata"]["name"] = name
        with pytest.raises(InvalidValue, match=r"metadata\.name"):
            conversion.convert(document)
    with pytest.raises(UnsupportedKind, match="Pod"):
        conversion.convert({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})
