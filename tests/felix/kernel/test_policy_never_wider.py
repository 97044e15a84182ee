"""Never wider than asked, field by field: whatever a rule says more, it lets through no more.

For every field of a rule and of its sides, with values that are enforced, that are not, and that
nobody understands: an Allow rule with the field passes a part of what it passes without; behind a
Deny rule with the field an Allow rule passes a part of what the field alone excludes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from felix.config.resolve import resolve
from libcalico.model import EntityRule, Rule
from libcalico.model.resources import rules
from libcalico.model.resources.rules import HTTPMatch, ICMPFields, RuleMetadata, ServiceAccountMatch
from tests.felix.policy_objects import Packet, World, namespace, pod, policy

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
PODS = (
    namespace("default", team="x"),
    pod("a", A, {"app": "a"}),
    pod("b", B, {"app": "b"}, ports={"http": ("TCP", 80)}),
    pod("c", C, {"app": "c"}, node="n2", account="robot"),
)
PACKETS = [
    Packet(source, A, protocol, port, icmp)
    for source, (protocol, port, icmp) in product(
        (B, C, "192.0.2.1"),
        [(6, 80, (0, 0)), (6, 443, (0, 0)), (17, 53, (0, 0)), (1, 0, (8, 0)), (1, 0, (13, 0))],
    )
]
RULE: dict[str, list[Any]] = {
    "ipVersion": [4, 6, 5],
    "protocol": ["TCP", 17, "ICMP", "nonsense", 300],
    "icmp": [ICMPFields(type=8), ICMPFields(type=8, code=3), ICMPFields(type=999)],
    "notProtocol": ["TCP", 17, "nonsense"],
    "notICMP": [ICMPFields(type=8), ICMPFields(), ICMPFields(code=3)],
    "http": [HTTPMatch(methods=["GET"]), HTTPMatch()],
    "metadata": [RuleMetadata(annotations={"a": "b"})],
}
ENTITY: dict[str, list[Any]] = {
    "nets": [["10.0.0.2/32"], ["fd00::/64"], ["nonsense"], ["10.0.0.2/32", "192.0.2.0/24"]],
    "notNets": [["10.0.0.2/32"], ["nonsense"]],
    "selector": ["app == 'b'", "all()", "app ="],
    "notSelector": ["app == 'b'", "app ="],
    "namespaceSelector": ["team == 'x'", "global()", "team ="],
    "ports": [[80], ["http"], ["443:80"], [80, "http", "50:60"], ["none"]],
    "notPorts": [[80], ["http"], [0]],
    "services": [rules.ServiceMatch(name="web"), rules.ServiceMatch()],
    "serviceAccounts": [
        ServiceAccountMatch(names=["robot"]),
        ServiceAccountMatch(selector="role =="),
        ServiceAccountMatch(selector="role == 'x'"),
    ],
}
BASES: list[dict[str, Any]] = [{}, {"protocol": "TCP"}, {"protocol": "ICMP"}]
FIELDS = [
    *((name, "", value) for name, values in RULE.items() for value in values),
    *(
        (name, side, value)
        for name, values in ENTITY.items()
        for value in values
        for side in ("source", "destination")
    ),
]
CASES = [(base, *one) for base in BASES for one in FIELDS if one[0] not in base]


def passing(*given: Rule) -> set[int]:
    """Which packets come into pod a."""
    only = policy("np", selector="app == 'a'", types=["Ingress"], ingress=list(given))
    world = World(*PODS, only)
    return {at for at, packet in enumerate(PACKETS) if world.into("a", packet)}


def test_every_field_is_here() -> None:
    fields = set(Rule.__struct_fields__) - {"action", "source", "destination"}
    assert fields == RULE.keys()
    assert set(EntityRule.__struct_fields__) == ENTITY.keys()


@pytest.mark.parametrize(("base", "name", "side", "value"), CASES, ids=str)
def test_a_field_more_lets_no_more_through(
    base: dict[str, Any], name: str, side: str, value: Any
) -> None:
    field = {side: EntityRule(**{name: value})} if side else {name: value}
    plain = passing(Rule(action="Allow", **base))
    allowed = passing(Rule(action="Allow", **base, **field))
    assert allowed <= plain
    left = passing(Rule(action="Deny", **base, **field), Rule(action="Allow"))
    # What an Allow rule would take, a Deny rule takes too.
    assert not left & allowed
    logged = passing(Rule(action="Log", **base, **field))
    assert not logged


@pytest.mark.parametrize("name", ["wireguardEnabled", "wireguardEnabledV6"])
def test_encryption_that_nobody_does_is_a_problem_of_the_configuration(name: str) -> None:
    found = resolve("n1", environ={}, stored={"default": {"spec": {name: True}}})
    [problem] = found.problems
    assert problem.name == name
    assert "nothing is encrypted" in str(problem)
    assert not problem.unknown
