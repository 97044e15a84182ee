"""What converted rules allow is what the Kubernetes rules allow (CONV-1), on random input.

Random rules and packets, judged twice: by an interpreter of Kubernetes' own words, and by one
of the converted rules.
"""

from __future__ import annotations

import copy
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico import conversion
from libcalico.conversion.ports import simplified
from libcalico.errors import InvalidValue
from libcalico.model import NetworkPolicy, Rule
from libcalico.model.validation.validate import problems
from libcalico.policy_selectors import entity_selector
from libcalico.selectors.selectors import parse
from tests.libcalico.test_conversion import policy
from tests.size import examples

ports_list = st.lists(
    st.integers(1, 40)
    | st.tuples(st.integers(1, 40), st.integers(0, 9)).map(lambda two: f"{two[0]}:{sum(two)}")
    | st.sampled_from(["web", "dns"]),
    max_size=6,
)


def numbers(ports: list[int | str]) -> tuple[set[int], set[str]]:
    numeric: set[int] = set()
    names: set[str] = set()
    for port in ports:
        if isinstance(port, int):
            numeric.add(port)
        elif ":" in port:
            first, _, last = port.partition(":")
            numeric |= set(range(int(first), int(last) + 1))
        else:
            names.add(port)
    return numeric, names


@given(ports_list)
def test_simplified_ports_are_the_same_ports(ports: list[int | str]) -> None:
    simple = simplified(copy.copy(ports))
    assert numbers(simple) == numbers(ports)
    assert simplified(simple) == simple or len(numbers(ports)[0]) <= 1


LABELS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), max_size=2)
EXPRESSIONS = st.builds(
    lambda key, operator, values: {
        "key": key,
        "operator": operator,
        **({"values": values} if operator in ("In", "NotIn") else {}),
    },
    st.sampled_from(["a", "b"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2),
)
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
)
PEERS = (
    st.fixed_dictionaries({"podSelector": SELECTORS})
    | st.fixed_dictionaries({"namespaceSelector": SELECTORS})
    | st.fixed_dictionaries({"podSelector": SELECTORS, "namespaceSelector": SELECTORS})
    | st.sampled_from(
        [
            {"ipBlock": {"cidr": "10.0.0.0/8"}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/16", "10.1.0.0/24"]}},
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/16"]}},
        ]
    )
)
PORTS = st.fixed_dictionaries(
    {},
    optional={
        "protocol": st.sampled_from(["TCP", "UDP", "SCTP"]),
        "port": st.sampled_from([80, 81, 90, "web"]),
    },
) | st.just({"port": 80, "endPort": 85})
RULES = st.lists(
    st.fixed_dictionaries(
        {}, optional={"from": st.lists(PEERS, max_size=2), "ports": st.lists(PORTS, max_size=3)}
    ),
    max_size=3,
)
NAMED = {"web": 90}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", []):
        actual, values = labels.get(one["key"]), one.get("values", [])
        good = {
            "In": actual in values,
            "NotIn": actual not in values,
            "Exists": actual is not None,
            "DoesNotExist": actual is None,
        }
        if not good[one["operator"]]:
            return False
    return True


def kubernetes_allows(rules: list[Any], packet: dict[str, Any]) -> bool:
    def peer(one: dict[str, Any]) -> bool:
        if "ipBlock" in one:
            block = one["ipBlock"]
            outside = [ip_network(text) for text in block.get("except", [])]
            address = ip_address(packet["address"])
            return address in ip_network(block["cidr"]) and not any(
                address in net for net in outside
            )
        if packet["pod"] is None:
            return False
        if "namespaceSelector" in one:
            if not selects(one["namespaceSelector"], packet["namespace_labels"]):
                return False
        elif packet["namespace"] != "shop":
            return False
        return selects(one.get("podSelector", {}), packet["pod"])

    def port(one: dict[str, Any]) -> bool:
        if one.get("protocol", "TCP") != packet["protocol"]:
            return False
        if "port" not in one:
            return True
        number = NAMED.get(one["port"], one["port"])
        return bool(number <= packet["port"] <= one.get("endPort", number))

    return any(
        (not rule.get("from") or any(peer(one) for one in rule["from"]))
        and (not rule.get("ports") or any(port(one) for one in rule["ports"]))
        for rule in rules
    )


def calico_allows(rules: list[Rule], packet: dict[str, Any]) -> bool:
    labels: dict[str, str] | None = None
    if packet["pod"] is not None:
        labels = {f"pcns.{key}": value for key, value in packet["namespace_labels"].items()}
        labels |= packet["pod"]
        labels["projectcalico.org/namespace"] = packet["namespace"]
        labels["projectcalico.org/orchestrator"] = "k8s"

    def matches(rule: Rule) -> bool:
        assert rule.action == "Allow"
        if rule.protocol is not None and rule.protocol != packet["protocol"]:
            return False
        allowed, names = numbers(rule.destination.ports)
        allowed |= {NAMED[name] for name in names}
        if rule.destination.ports and packet["port"] not in allowed:
            return False
        address = ip_address(packet["address"])
        source = rule.source
        if source.nets and not any(address in ip_network(net) for net in source.nets):
            return False
        if any(address in ip_network(net) for net in source.notNets):
            return False
        selector = entity_selector(source, "shop")
        return not selector or (labels is not None and parse(selector).matches(labels))

    return any(matches(rule) for rule in rules)


PACKETS = st.fixed_dictionaries(
    {
        "pod": st.none() | LABELS,
        "namespace": st.sampled_from(["shop", "other"]),
        "namespace_labels": LABELS,
        "address": st.sampled_from(["10.0.0.1", "10.1.0.1", "10.2.0.1", "192.0.2.1"]),
        "protocol": st.sampled_from(["TCP", "UDP", "SCTP"]),
        "port": st.sampled_from([79, 80, 81, 83, 90]),
    }
)


@settings(max_examples=examples(400), deadline=None)
@given(RULES, st.lists(PACKETS, min_size=1, max_size=6))
def test_converted_rules_allow_exactly_what_kubernetes_allows(
    rules: list[Any], packets: list[dict[str, Any]]
) -> None:
    document = policy("{podSelector: {}}")
    document["spec"]["ingress"] = rules
    before = copy.deepcopy(document)
    done = conversion.convert(document)
    assert document == before
    assert done.dropped == []
    assert isinstance(done.resource, NetworkPolicy)
    assert problems(done.resource) == []
    for packet in packets:
        assert calico_allows(done.resource.spec.ingress, packet) is kubernetes_allows(rules, packet)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["from", "to", "ports", "port", "podSelector", "matchLabels", "ipBlock"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["podSelector", "ingress", "egress", "policyTypes"]), JSON))
def test_whatever_a_file_holds_is_converted_or_refused(spec: dict[str, Any]) -> None:
    document = policy("{}")
    document["spec"] = spec
    try:
        done = conversion.convert(document)
    except InvalidValue:
        return
    assert problems(done.resource) == []
