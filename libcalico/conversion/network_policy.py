"""A Kubernetes NetworkPolicy as a Calico NetworkPolicy `knp.default.<name>`
(docs/reference/data-model.md#kubernetes-networkpolicy).

Every rule of Kubernetes allows. A rule that cannot be converted is left out, so the result never
allows more than the document; the caller gets a problem for it. The pods that the policy selects
and the directions that it closes must be readable, or nothing is converted at all.

Invariants (tests/libcalico/test_conversion.py):
  CONV-1  The converted rules of a direction allow nothing that the Kubernetes rules do not.
  CONV-2  Equal documents give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from libcalico.conversion import label_selector, ports, tree
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.policy import (
    DEFAULT_TIER,
    EGRESS,
    INGRESS,
    NetworkPolicy,
    NetworkPolicySpec,
)
from libcalico.model.resources.rules import EntityRule, Rule
from libcalico.model.validation.checks import indexed

POLICY_PREFIX = "knp.default."
ORDER = 1000
_SPEC = frozenset({"podSelector", "policyTypes", "ingress", "egress"})
_PEER = frozenset({"podSelector", "namespaceSelector", "ipBlock"})
_BLOCK = frozenset({"cidr", "except"})


def network_policy(document: Tree) -> tuple[NetworkPolicy, list[InvalidValue]]:
    """The policy, and the problems of the rules that were left out of it.

    `policyTypes` counts as it stands, empty as [Ingress]: the API server fills it in.
    Raises InvalidValue for a document without a valid pod selector.
    """
    spec = tree.mapping(document, "spec", "")
    tree.only(spec, _SPEC, "spec")
    selector = label_selector.pods(tree.mapping(spec, "podSelector", "spec"), "spec.podSelector")
    dropped: list[InvalidValue] = []
    policy = NetworkPolicy(
        metadata=Metadata(
            name=POLICY_PREFIX + tree.name_of(document), namespace=tree.namespace_of(document)
        ),
        spec=NetworkPolicySpec(
            tier=DEFAULT_TIER,
            order=ORDER,
            ingress=_direction(spec, "ingress", "from", dropped),
            egress=_direction(spec, "egress", "to", dropped),
            selector=selector,
            types=_types(spec, dropped),
        ),
    )
    return policy, dropped


def _types(spec: Tree, dropped: list[InvalidValue]) -> list[str]:
    types = tree.sequence(spec, "policyTypes", "spec")
    for index, direction in enumerate(types):
        if direction not in (INGRESS, EGRESS):
            rule = f"must be {INGRESS} or {EGRESS}"
            dropped.append(InvalidValue(f"spec.policyTypes[{index}]", direction, rule))
    return [direction for direction in (INGRESS, EGRESS) if direction in types] or [INGRESS]


def _direction(
    spec: Tree, direction: str, peers_name: str, dropped: list[InvalidValue]
) -> list[Rule]:
    rules: list[Rule] = []
    for where, item in tree.items(spec, direction, "spec"):
        try:
            rules += _rules(tree.as_mapping(item, where), peers_name, where)
        except InvalidValue as problem:
            dropped.append(problem)
    return rules


def _rules(item: Tree, peers_name: str, path: str) -> list[Rule]:
    tree.only(item, frozenset({peers_name, "ports"}), path)
    ends = _peers(tree.sequence(item, peers_name, path), f"{path}.{peers_name}")
    entries = tree.sequence(item, "ports", path)
    grouped: list[tuple[str | None, ports.Ports]] = [(None, [])]
    if entries:
        grouped = [*ports.by_protocol(entries, f"{path}.ports").items()]
    rules = []
    for protocol, protocol_ports in grouped:
        for peer in ends:
            source, destination = ports.sides(peers_name == "from", peer, protocol_ports)
            rules.append(
                Rule(action="Allow", protocol=protocol, source=source, destination=destination)
            )
    return rules


def _peers(items: Sequence[object], path: str) -> list[EntityRule]:
    peers = [_peer(tree.as_mapping(item, where), where) for where, item in indexed(path, items)]
    return peers or [EntityRule()]


def _peer(peer: Tree, path: str) -> EntityRule:
    tree.only(peer, _PEER, path)
    members = {name for name in _PEER if peer.get(name) is not None}
    if not members:
        rule = "must have a podSelector, a namespaceSelector or an ipBlock"
        raise InvalidValue(path, dict(peer), rule)
    if "ipBlock" in members:
        if len(members) > 1:
            raise InvalidValue(f"{path}.ipBlock", "...", "not together with selectors")
        return _block(tree.mapping(peer, "ipBlock", path), f"{path}.ipBlock")
    scope = ""
    if "namespaceSelector" in members:
        where = f"{path}.namespaceSelector"
        scope = label_selector.namespaces(tree.mapping(peer, "namespaceSelector", path), where)
    where = f"{path}.podSelector"
    selector = label_selector.pods(tree.mapping(peer, "podSelector", path), where)
    return EntityRule(selector=selector, namespaceSelector=scope)


def _block(block: Tree, path: str) -> EntityRule:
    tree.only(block, _BLOCK, path)
    cidr = _network(tree.text(block, "cidr", path), f"{path}.cidr")
    excepted = []
    for where, item in tree.items(block, "except", path):
        net = _network(item, where)
        if net.prefixlen <= cidr.prefixlen or net.network_address not in cidr:
            raise InvalidValue(where, item, f"must lie inside {cidr} and be smaller")
        excepted.append(str(net))
    return EntityRule(nets=[str(cidr)], notNets=excepted)


def _network(text: object, path: str) -> IPNetwork:
    try:
        if not isinstance(text, str) or "/" not in text or "%" in text:
            raise ValueError
        length = text.partition("/")[2]
        if not (length.isascii() and length.isdigit()):
            raise ValueError
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidValue(path, text, "must be a CIDR such as 10.0.0.0/16") from None
