"""Groups and their rules as documents: policies of Calico's, or of Kubernetes' where it can say it.

Tested in tests/policy_recommend/test_proposal.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Any

from felix.calc.labels import PROTOCOLS, WITH_PORTS
from felix.explain.recommend.choose import Term, label_of, text_of
from felix.explain.recommend.peers import GLOBAL, OWN, Peer, scope_of
from felix.explain.recommend.ports import entries_of, ranges_of
from felix.explain.recommend.rules import Permit
from felix.explain.world import World
from libcalico.policy_selectors import SERVICE_ACCOUNT_LABEL
from libcalico.selectors.selectors import Compare, InSet

Document = dict[str, Any]
PREFIX = "recommended-"
CALICO, KUBERNETES = "projectcalico.org/v3", "networking.k8s.io/v1"
LONGEST_NAME = 60
_SPELLED = {"tcp": "TCP", "udp": "UDP", "icmp": "ICMP", "icmpv6": "ICMPv6", "sctp": "SCTP",
            "udplite": "UDPLite"}  # fmt: skip
_NAMES = {number: _SPELLED[name] for name, number in PROTOCOLS.items()}


def policy_name(group: str, taken: Iterable[str]) -> str:
    """A name for the policy of a group that no other has."""
    plain = re.sub(r"[^a-z0-9-]+", "-", group.lower()).strip("-")[:LONGEST_NAME] or "pods"
    names = set(taken)
    name, number = PREFIX + plain, 2
    while name in names:
        name, number = f"{PREFIX}{plain}-{number}", number + 1
    return name


def protocol_of(number: int) -> str | int:
    """A protocol as rules spell it."""
    return _NAMES.get(number, number)


def calico(
    world: World, name: str, namespace: str, terms: Sequence[Term],
    ingress: Iterable[Permit], egress: Iterable[Permit], *, staged: bool,
) -> Document:  # fmt: skip
    """A NetworkPolicy of Calico's that closes both directions but for these rules."""
    spec: Document = {
        "tier": "default",
        "order": 1000,
        "selector": text_of(terms),
        "types": ["Ingress", "Egress"],
    }
    if staged:
        spec["stagedAction"] = "Set"
    for direction, side, those in (
        ("ingress", "source", ingress),
        ("egress", "destination", egress),
    ):
        rules = [_rule(world, permit, side) for permit in those]
        if rules:
            spec[direction] = rules
    kind = "StagedNetworkPolicy" if staged else "NetworkPolicy"
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": CALICO, "kind": kind, "metadata": metadata, "spec": spec}


def _rule(world: World, permit: Permit, side: str) -> Document:
    rule: Document = {"action": "Allow", "protocol": protocol_of(permit.protocol)}
    entity = _entity(world, permit.peer)
    if entity:
        rule[side] = entity
    if permit.protocol in WITH_PORTS:
        rule.setdefault("destination", {})["ports"] = entries_of(permit.ports)
    return rule


def _entity(world: World, peer: Peer) -> Document:
    entity: Document = {}
    if peer.nets:
        entity["nets"] = list(peer.nets)
        if peer.not_nets:
            entity["notNets"] = list(peer.not_nets)
        return entity
    if peer.namespace == OWN:
        return {"selector": text_of(peer.terms)}
    scope, besides = scope_of(world, peer)
    terms = (*besides, *peer.terms)
    entity["namespaceSelector"] = scope
    if terms:
        entity["selector"] = text_of(terms)
    return entity


# -- Kubernetes ------------------------------------------------------------------------------------


def kubernetes(
    name: str, namespace: str, terms: Sequence[Term], ingress: Iterable[Permit],
    egress: Iterable[Permit], *, staged: bool,
) -> Document:  # fmt: skip
    """The same as Kubernetes has it. Ask `unsayable` first."""
    spec: Document = {
        "podSelector": _labels(terms),
        "policyTypes": ["Ingress", "Egress"],
    }
    for direction, side, those in (("ingress", "from", ingress), ("egress", "to", egress)):
        rules: dict[str, Document] = {}
        for permit in those:
            peers = _kubernetes_peers(permit.peer)
            rule = rules.setdefault(repr(peers), {side: peers, "ports": []})
            rule["ports"] += _kubernetes_ports(permit)
        if rules:
            spec[direction] = list(rules.values())
    metadata = {"name": name, "namespace": namespace}
    if staged:
        spec["stagedAction"] = "Set"
        kind = "StagedKubernetesNetworkPolicy"
        return {"apiVersion": CALICO, "kind": kind, "metadata": metadata, "spec": spec}
    return {"apiVersion": KUBERNETES, "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def unsayable(permit: Permit) -> str:
    """Why Kubernetes' policies cannot say this; empty where they can."""
    if permit.protocol not in WITH_PORTS:
        return f"protocol {protocol_of(permit.protocol)}"
    peer = permit.peer
    if peer.namespace == GLOBAL:
        return "a global network set by its labels"
    if any(label_of(term) == SERVICE_ACCOUNT_LABEL for term in peer.terms):
        return "a service account"
    return ""


def _labels(terms: Iterable[Term]) -> Document:
    selector: Document = {}
    for term in terms:
        if isinstance(term, Compare):
            selector.setdefault("matchLabels", {})[term.label] = term.value
            continue
        expression: Document = {"key": label_of(term), "operator": "DoesNotExist"}
        if isinstance(term, InSet):
            expression = {"key": term.label, "operator": "In", "values": sorted(term.values)}
        selector.setdefault("matchExpressions", []).append(expression)
    return selector


def _kubernetes_peers(peer: Peer) -> list[Document]:
    if peer.nets:
        return [_block(net, peer.not_nets) for net in peer.nets]
    selectors: Document = {}
    if peer.namespace != OWN:
        names = {"kubernetes.io/metadata.name": peer.namespace}
        selectors["namespaceSelector"] = {"matchLabels": names}
    if peer.terms or peer.namespace == OWN:
        selectors["podSelector"] = _labels(peer.terms)
    return [selectors]


def _block(net: str, without: Iterable[str]) -> Document:
    own: Any = ip_network(net)
    inside = [
        other for other in without
        if ip_network(other).version == own.version and ip_network(other).subnet_of(own)
    ]  # fmt: skip
    return {"ipBlock": {"cidr": net, **({"except": inside} if inside else {})}}


def _kubernetes_ports(permit: Permit) -> list[Document]:
    protocol = protocol_of(permit.protocol)
    entries: list[Document] = []
    for first, last in ranges_of(permit.ports):
        port: Document = {"protocol": protocol, "port": first}
        if last != first:
            port["endPort"] = last
        entries.append(port)
    return entries
