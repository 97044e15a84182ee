"""A ClusterNetworkPolicy as a Calico GlobalNetworkPolicy `kcnp.<name>`
(docs/reference/data-model.md#clusternetworkpolicy).

policy.networking.k8s.io/v1alpha2: tier Admin is Calico's `kube-admin`, before all others. Tier
Baseline is `kube-baseline`, behind the tier of the NetworkPolicies. Both pass on traffic that none
of their rules decides. `priority` is the order, the order of the rules is kept, and a direction
without rules is left alone.

A rule that Calico cannot express in full never widens access: an Accept is left out, and a Deny
or a Pass becomes a Deny of everything in its direction. The caller gets a problem for each.

Invariants (tests/libcalico/test_cluster_policy.py):
  CNP-1  A policy with dropped rules lets no more through than the policy that was written.
  CNP-2  Equal documents and equal nodes give equal bytes.
"""

from __future__ import annotations

from libcalico.conversion import cluster_peers, cluster_ports, tree
from libcalico.conversion.cluster_peers import EGRESS_PEERS, INGRESS_PEERS, Nodes
from libcalico.conversion.ports import sides
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.policy import (
    EGRESS,
    INGRESS,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
)
from libcalico.model.resources.rules import Rule, RuleMetadata

API_VERSION, KIND = "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"
PREFIX = "kcnp."
TIERS = {"Admin": "kube-admin", "Baseline": "kube-baseline"}
ACTIONS = {"Accept": "Allow", "Deny": "Deny", "Pass": "Pass"}
MAX_PRIORITY, MAX_NAME = 1000, 100
RULE_NAME = "name"
_SPEC = frozenset({"tier", "priority", "subject", "ingress", "egress"})
_SUBJECT = frozenset({"namespaces", "pods"})


def policy_name(name: str) -> str:
    """The name of the policy that a ClusterNetworkPolicy becomes."""
    return PREFIX + name


def cluster_policy(
    document: Tree, nodes: Nodes = None
) -> tuple[GlobalNetworkPolicy, list[InvalidValue]]:
    """The policy, and the problems of the rules that Calico cannot express in full.

    Raises InvalidValue for a document without a valid subject, tier or priority.
    """
    spec = tree.mapping(document, "spec", "")
    tree.only(spec, _SPEC, "spec")
    subject = tree.mapping(spec, "subject", "spec")
    tree.only(subject, _SUBJECT, "spec.subject")
    spaces, pods = cluster_peers.pods_of(subject, "spec.subject")
    dropped: list[InvalidValue] = []
    ingress = _direction(spec, "ingress", nodes, dropped)
    egress = _direction(spec, "egress", nodes, dropped)
    policy = GlobalNetworkPolicy(
        metadata=Metadata(name=policy_name(tree.name_of(document))),
        spec=GlobalNetworkPolicySpec(
            tier=_tier(spec),
            order=_priority(spec),
            ingress=ingress,
            egress=egress,
            selector=pods,
            types=[one for one, rules in ((INGRESS, ingress), (EGRESS, egress)) if rules],
            namespaceSelector=spaces,
        ),
    )
    return policy, dropped


def speaks_of_nodes(document: Tree) -> bool:
    """Whether the resulting policy depends on the cluster's nodes."""
    spec = document.get("spec")
    rules = spec.get("egress") if isinstance(spec, dict) else None
    return any(
        isinstance(peer, dict) and peer.get("nodes") is not None
        for rule in (rules if isinstance(rules, list) else ())
        for peer in (rule.get("to") or () if isinstance(rule, dict) else ())
    )


def _tier(spec: Tree) -> str:
    tier = tree.text(spec, "tier", "spec")
    if tier not in TIERS:
        raise InvalidValue("spec.tier", tier, f"must be {' or '.join(TIERS)}")
    return TIERS[tier]


def _priority(spec: Tree) -> int:
    priority = spec.get("priority")
    is_integer = isinstance(priority, int) and not isinstance(priority, bool)
    if is_integer and isinstance(priority, int) and 0 <= priority <= MAX_PRIORITY:
        return priority
    raise InvalidValue("spec.priority", priority, f"must be 0 to {MAX_PRIORITY}")


def _direction(spec: Tree, direction: str, nodes: Nodes, dropped: list[InvalidValue]) -> list[Rule]:
    rules: list[Rule] = []
    for where, item in tree.items(spec, direction, "spec"):
        action = item.get("action") if isinstance(item, dict) else None
        try:
            rules += _rules(tree.as_mapping(item, where), direction, nodes, where)
        except InvalidValue as problem:
            dropped.append(problem)
            if action != "Accept":
                rules.append(Rule(action="Deny"))
    return rules


def _rules(item: Tree, direction: str, nodes: Nodes, path: str) -> list[Rule]:
    side = "from" if direction == "ingress" else "to"
    tree.only(item, frozenset({"name", "action", side, "protocols"}), path)
    action = tree.text(item, "action", path)
    if action not in ACTIONS:
        raise InvalidValue(f"{path}.action", action, f"must be one of {', '.join(ACTIONS)}")
    name = tree.text(item, "name", path)
    if len(name) > MAX_NAME:
        raise InvalidValue(f"{path}.name", name, f"must be at most {MAX_NAME} characters")
    metadata = RuleMetadata(annotations={RULE_NAME: name}) if name else None
    allowed = INGRESS_PEERS if direction == "ingress" else EGRESS_PEERS
    peers = cluster_peers.ends(tree.sequence(item, side, path), allowed, nodes, f"{path}.{side}")
    entries = tree.sequence(item, "protocols", path)
    rules = []
    for protocol, ports in cluster_ports.by_protocol(entries, f"{path}.protocols"):
        for peer in peers:
            source, destination = sides(direction == "ingress", peer, ports)
            rules.append(
                Rule(
                    action=ACTIONS[action],
                    protocol=protocol,
                    source=source,
                    destination=destination,
                    metadata=metadata,
                )
            )
    return rules
