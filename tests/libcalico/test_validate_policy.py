"""Every rule of policies, rules and sets: refused with the field's path, value and rule."""

from __future__ import annotations

from typing import Any

import pytest

from libcalico.model import codec
from libcalico.model.validation.validate import problems, validate


def resource(kind: str, spec: dict[str, Any], name: str = "x", **metadata: Any) -> Any:
    if kind in ("NetworkPolicy", "NetworkSet"):
        metadata.setdefault("namespace", "default")
    tree = {"kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    return codec.resource_from_tree(tree, strict=True)


def one(direction: str = "ingress", **rule: Any) -> dict[str, Any]:
    return {direction: [{"action": "Allow", **rule}]}


def side(name: str, direction: str = "ingress", **entity: Any) -> dict[str, Any]:
    return one(direction, protocol="TCP", **{name: entity})


I0, E0 = "spec.ingress[0]", "spec.egress[0]"
LONG = "a == '" + "x" * 1024 + "'"

RULES: list[tuple[dict[str, Any], str]] = [
    ({"ingress": [{}]}, f"{I0}.action"),
    ({"ingress": [{"action": "allow"}]}, f"{I0}.action"),
    ({"ingress": [{"action": "Allow"}, {"action": "Drop"}]}, "spec.ingress[1].action"),
    (one(ipVersion=5), f"{I0}.ipVersion"),
    (one(ipVersion=0), f"{I0}.ipVersion"),
    (one(protocol="tcp"), f"{I0}.protocol"),
    (one(protocol="Banana"), f"{I0}.protocol"),
    (one(protocol=0), f"{I0}.protocol"),
    (one(protocol=256), f"{I0}.protocol"),
    (one(protocol="300"), f"{I0}.protocol"),
    (one(notProtocol="udp"), f"{I0}.notProtocol"),
    (one(protocol="ICMP", ipVersion=6), f"{I0}.protocol"),
    (one(protocol=1, ipVersion=6), f"{I0}.protocol"),
    (one(protocol="ICMPv6", ipVersion=4), f"{I0}.protocol"),
    (one(notProtocol=58, ipVersion=4), f"{I0}.notProtocol"),
    (one(icmp={"type": 8}), f"{I0}.icmp"),
    (one(icmp={"type": 8}, protocol="TCP"), f"{I0}.icmp"),
    (one(icmp={"type": 255}, protocol="ICMP"), f"{I0}.icmp.type"),
    (one(icmp={"type": -1}, protocol="ICMP"), f"{I0}.icmp.type"),
    (one(icmp={"type": 8, "code": 256}, protocol="ICMP"), f"{I0}.icmp.code"),
    (one(icmp={"code": 1}, protocol="ICMP"), f"{I0}.icmp.code"),
    (one(notICMP={"code": 1}, protocol="ICMP"), f"{I0}.notICMP.code"),
    (side("destination", ports=[80, 70000]), f"{I0}.destination.ports[1]"),
    (side("destination", ports=[0]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["0"]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=[-1]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["2000:1000"]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["1:70000"]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["1:2:3"]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["1-2"] * 51), f"{I0}.destination.ports"),
    (side("destination", ports=["not a port"]), f"{I0}.destination.ports[0]"),
    (side("destination", ports=["x" * 129]), f"{I0}.destination.ports[0]"),
    (side("source", notPorts=["é"]), f"{I0}.source.notPorts[0]"),
    (one(destination={"ports": [80]}), f"{I0}.destination.ports"),
    (one(destination={"ports": ["web", "1:2"]}), f"{I0}.destination.ports"),
    (one(protocol="UDPLite", source={"ports": ["web"]}), f"{I0}.source.ports"),
    (one(protocol="ICMP", destination={"notPorts": [80]}), f"{I0}.destination.notPorts"),
    (one(protocol=47, destination={"ports": [80]}), f"{I0}.destination.ports"),
    (side("source", nets=["10.0.0.0"]), f"{I0}.source.nets[0]"),
    (side("source", nets=["10.0.0.1/8"]), f"{I0}.source.nets[0]"),
    (side("source", nets=["10.0.0.0/8", "10.0.0.0/33"]), f"{I0}.source.nets[1]"),
    (side("source", nets=["fd00::/129"]), f"{I0}.source.nets[0]"),
    (side("source", nets=["10.0.0.0/255.0.0.0"]), f"{I0}.source.nets[0]"),
    (side("source", nets=["banana/8"]), f"{I0}.source.nets[0]"),
    (side("source", nets=[""]), f"{I0}.source.nets[0]"),
    (side("source", nets=["fe80::1%eth0/128"]), f"{I0}.source.nets[0]"),
    (side("source", nets=["10.0.0.0/8"] * 257), f"{I0}.source.nets"),
    (side("source", notNets=["0.0.0.0/0"]), f"{I0}.source.notNets[0]"),
    (side("destination", notNets=["::/0"]), f"{I0}.destination.notNets[0]"),
    (side("source", nets=["10.0.0.0/8", "fd00::/8"]), f"{I0}.source.nets[1]"),
    (
        one(source={"nets": ["10.0.0.0/8"]}, destination={"notNets": ["fd00::/8"]}),
        f"{I0}.destination.notNets[0]",
    ),
    (one(ipVersion=6, source={"nets": ["10.0.0.0/8"]}), f"{I0}.source.nets[0]"),
    (one(ipVersion=4, destination={"notNets": ["fd00::/8"]}), f"{I0}.destination.notNets[0]"),
    (side("source", selector="a = 'b'"), f"{I0}.source.selector"),
    (side("source", selector=LONG), f"{I0}.source.selector"),
    (side("source", selector="global()"), f"{I0}.source.selector"),
    (side("source", notSelector="a == 'b' ||"), f"{I0}.source.notSelector"),
    (side("source", notSelector="!global()"), f"{I0}.source.notSelector"),
    (side("source", namespaceSelector="(("), f"{I0}.source.namespaceSelector"),
    (
        side("source", namespaceSelector="global() || all()"),
        f"{I0}.source.namespaceSelector",
    ),
    (side("source", namespaceSelector="!global()"), f"{I0}.source.namespaceSelector"),
    (
        side("source", serviceAccounts={"selector": "a is b"}),
        f"{I0}.source.serviceAccounts.selector",
    ),
    (
        side("source", serviceAccounts={"names": ["a", "x' || all()"]}),
        f"{I0}.source.serviceAccounts.names[1]",
    ),
    (one(metadata={"annotations": {"not a name": "x"}}), f"{I0}.metadata.annotations[not a name]"),
    ({"egress": [{"action": "Allow"}] * 1025}, "spec.egress"),
    (one(http={"methods": ["GET", "GET"]}), f"{I0}.http.methods[1]"),
    (one(http={"paths": [{}]}), f"{I0}.http.paths[0]"),
    (one(http={"paths": [{"exact": "/a", "prefix": "/b"}]}), f"{I0}.http.paths[0]"),
    (one(http={"paths": [{"exact": "a"}]}), f"{I0}.http.paths[0].exact"),
    (one(http={"paths": [{"prefix": "/a?b"}]}), f"{I0}.http.paths[0].prefix"),
    (one(http={"paths": [{"prefix": "/a#b"}]}), f"{I0}.http.paths[0].prefix"),
    (one(http={"paths": [{"prefix": "/a b"}]}), f"{I0}.http.paths[0].prefix"),
    (one(http={"methods": ["GET"]}, protocol="UDP"), f"{I0}.http"),
    ({"ingress": [{"action": "Deny", "http": {}}]}, f"{I0}.http"),
    (one(source={"services": {}}), f"{I0}.source.services.name"),
    (
        one(source={"services": {"name": "Bad Name", "namespace": "n"}}),
        f"{I0}.source.services.name",
    ),
]

BESIDE_SERVICES: dict[str, Any] = {
    "nets": ["10.0.0.0/8"],
    "notNets": ["10.0.0.0/8"],
    "selector": "has(a)",
    "notSelector": "has(a)",
    "namespaceSelector": "has(a)",
    "serviceAccounts": {"names": ["a"]},
}
for _name, _value in BESIDE_SERVICES.items():
    _source = {"services": {"name": "s", "namespace": "n"}, _name: _value}
    RULES.append((one(source=_source), f"{I0}.source.{_name}"))


POLICIES: list[tuple[str, dict[str, Any], str]] = [
    ("NetworkPolicy", {"selector": "a == b"}, "spec.selector"),
    ("NetworkPolicy", {"selector": LONG}, "spec.selector"),
    ("NetworkPolicy", {"selector": "global()"}, "spec.selector"),
    ("NetworkPolicy", {"selector": "a\n== 'b'"}, "spec.selector"),
    ("NetworkPolicy", {"serviceAccountSelector": "has("}, "spec.serviceAccountSelector"),
    ("GlobalNetworkPolicy", {"namespaceSelector": "has("}, "spec.namespaceSelector"),
    ("GlobalNetworkPolicy", {"namespaceSelector": "global()"}, "spec.namespaceSelector"),
    ("NetworkPolicy", {"tier": "Bad_Tier"}, "spec.tier"),
    ("NetworkPolicy", {"types": ["ingress"]}, "spec.types[0]"),
    ("NetworkPolicy", {"types": ["Ingress", "Ingress"]}, "spec.types[1]"),
    ("NetworkPolicy", {"performanceHints": ["Fast"]}, "spec.performanceHints[0]"),
    ("NetworkPolicy", {"performanceHints": ["AssumeNeededOnEveryNode"] * 2},
     "spec.performanceHints[1]"),
    ("NetworkPolicy", one("egress", http={"methods": ["GET"]}), f"{E0}.http"),
    ("NetworkPolicy", one("egress", source={"services": {"name": "s"}}), f"{E0}.source.services"),
    ("NetworkPolicy", one(destination={"services": {"name": "s"}}), f"{I0}.destination.services"),
    ("NetworkPolicy",
     one("egress", protocol="TCP", destination={"services": {"name": "s"}, "ports": [80]}),
     f"{E0}.destination.ports"),
    ("GlobalNetworkPolicy", one(source={"services": {"name": "s"}}),
     f"{I0}.source.services.namespace"),
    ("GlobalNetworkPolicy", {"doNotTrack": True}, "spec.applyOnForward"),
    ("GlobalNetworkPolicy", {"preDNAT": True}, "spec.applyOnForward"),
    ("GlobalNetworkPolicy", {"preDNAT": True, "doNotTrack": True, "applyOnForward": True},
     "spec.preDNAT"),
    ("GlobalNetworkPolicy",
     {"preDNAT": True, "applyOnForward": True, "egress": [{"action": "Allow"}]}, "spec.egress"),
    ("GlobalNetworkPolicy", {"preDNAT": True, "applyOnForward": True, "types": ["Egress"]},
     "spec.types[0]"),
    ("NetworkSet", {"nets": ["10.0.0.0/8", "10.0.0.0/40"]}, "spec.nets[1]"),
    ("GlobalNetworkSet", {"nets": ["banana"]}, "spec.nets[0]"),
    ("GlobalNetworkSet", {"nets": [""]}, "spec.nets[0]"),
    ("GlobalNetworkSet", {"nets": ["10.0.0.0/255.0.0.0"]}, "spec.nets[0]"),
    ("Tier", {"defaultAction": "Allow"}, "spec.defaultAction"),
]  # fmt: skip

assert len(RULES) + len(POLICIES) >= 60


@pytest.mark.parametrize("kind", ["NetworkPolicy", "GlobalNetworkPolicy", "Profile"])
@pytest.mark.parametrize(("spec", "field"), RULES)
def test_bad_rules_are_refused_in_policies_and_profiles(
    kind: str, spec: dict[str, Any], field: str
) -> None:
    errors = problems(resource(kind, spec))
    assert field in [problem.field for problem in errors]
    for problem in errors:
        assert f"{kind}(x): {problem.field}: " in str(problem)
        assert problem.rule


@pytest.mark.parametrize(("kind", "spec", "field"), POLICIES)
def test_bad_policies_sets_and_tiers_are_refused(
    kind: str, spec: dict[str, Any], field: str
) -> None:
    assert field in [problem.field for problem in problems(resource(kind, spec))]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NetworkPolicy", "a.b.c"),
        ("NetworkPolicy", "Upper"),
        ("NetworkPolicy", "-a"),
        ("NetworkPolicy", "knp.other.a.b"),
        ("GlobalNetworkPolicy", "a.b.c"),
        ("GlobalNetworkPolicy", "knp.default.web"),
        ("GlobalNetworkPolicy", "a_b"),
        ("GlobalNetworkPolicy", "x" * 254),
        ("Tier", "a.b"),
        ("Tier", "x" * 64),
        ("NetworkSet", "a_b"),
    ],
)
def test_bad_names(kind: str, name: str) -> None:
    assert "metadata.name" in [one.field for one in problems(resource(kind, {}, name))]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NetworkPolicy", "web"),
        ("NetworkPolicy", "tier.web"),
        ("NetworkPolicy", "knp.default.web"),
        ("NetworkPolicy", "knp.default.web.with.dots-1"),
        ("NetworkPolicy", "ossg.default.x"),
        ("GlobalNetworkPolicy", "tier.web"),
        ("Tier", "x" * 63),
    ],
)
def test_good_names(kind: str, name: str) -> None:
    validate(resource(kind, {}, name))


def test_the_namespace_label_is_the_systems() -> None:
    for kind in ("NetworkSet", "GlobalNetworkSet"):
        labels = {"projectcalico.org/namespace": "x"}
        errors = problems(resource(kind, {}, labels=labels))
        assert [one.field for one in errors] == ["metadata.labels[projectcalico.org/namespace]"]


def test_a_policy_of_a_namespace_needs_one() -> None:
    errors = problems(resource("NetworkPolicy", {}, namespace=""))
    assert [one.field for one in errors] == ["metadata.namespace"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ingress", [{"action": "Allow", "protocol": []}]),
        ("ingress", [{"action": "Allow", "destination": {"ports": [True]}}]),
        ("ingress", [{"action": "Allow", "destination": {"ports": [1.5]}}]),
        ("ingress", [{"action": "Allow", "icmp": {"type": "echo"}}]),
        ("ingress", {"action": "Allow"}),
        ("order", "first"),
        ("types", "Ingress"),
        ("selector", 7),
        ("tier", []),
    ],
)
def test_values_of_the_wrong_type_are_refused_when_read(field: str, value: Any) -> None:
    with pytest.raises(Exception, match=rf"GlobalNetworkPolicy\(x\): spec\.{field}"):
        resource("GlobalNetworkPolicy", {field: value})


GOOD: list[dict[str, Any]] = [
    {},
    one(protocol="TCP", destination={"ports": [1, 65535, "1:80", "1:1", "http", "80"]}),
    one(destination={"ports": ["http", "dns-tcp"]}),
    one(protocol="SCTP", source={"notPorts": [1]}),
    one(protocol=132, source={"ports": [1]}),
    one(protocol="UDPLite"),
    one(protocol=255, notProtocol=1),
    one(protocol="6", destination={"ports": [80]}),
    one(protocol="ICMP", icmp={"type": 254, "code": 255}, ipVersion=4),
    one(protocol=58, icmp={}, ipVersion=6),
    one(notICMP={"type": 8}),
    one(source={"nets": ["0.0.0.0/0"], "notNets": ["10.0.0.0/8"]}),
    one(source={"nets": ["::/0", "fd00::1/128"]}, ipVersion=6),
    one(source={"namespaceSelector": "global()"}),
    one(source={"namespaceSelector": "global( )", "selector": "has(a)"}),
    one(source={"serviceAccounts": {"names": ["a", "b.c"], "selector": "has(x)"}}),
    one(metadata={"annotations": {"example.com/Name": "any text at all"}}),
    {"ingress": [{"action": name} for name in ("Allow", "Deny", "Log", "Pass")]},
    {"ingress": [{"action": "Allow"}] * 1024},
    one(http={"methods": ["GET", "PUT"], "paths": [{"exact": "/"}, {"prefix": "/x"}]}),
    one(source={"services": {"name": "s", "namespace": "n"}}),
]


@pytest.mark.parametrize("kind", ["NetworkPolicy", "GlobalNetworkPolicy", "Profile"])
@pytest.mark.parametrize("spec", GOOD)
def test_what_calico_takes_is_taken(kind: str, spec: dict[str, Any]) -> None:
    assert problems(resource(kind, spec)) == []


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("NetworkPolicy", {"order": -1.5, "types": ["Egress", "Ingress"]}),
        ("NetworkPolicy", {"selector": "a" * 500 + " == '" + "b" * 517 + "'"}),
        ("NetworkPolicy", one("egress", destination={"services": {"name": "s"}})),
        ("GlobalNetworkPolicy", {"applyOnForward": True}),
        ("GlobalNetworkPolicy", {"doNotTrack": True, "applyOnForward": True, "egress": []}),
        ("NetworkSet", {"nets": ["10.0.0.1", "10.0.0.1/8", "fd00::1/8", "::1"]}),
        ("GlobalNetworkSet", {}),
        ("Tier", {"order": 1.5, "defaultAction": "Pass"}),
    ],
)
def test_what_calico_takes_is_taken_of_other_fields(kind: str, spec: dict[str, Any]) -> None:
    assert problems(resource(kind, spec)) == []
