"""Rules of staged policies (docs/reference/data-model.md#staged-policies): those of the policies,
and those of Delete.

Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from libcalico.model.resources.policy import EGRESS, INGRESS
from libcalico.model.resources.staged import (
    KubernetesPolicyPeer,
    KubernetesPolicyPort,
    LabelSelector,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)
from libcalico.model.validation.checks import Problems, indexed
from libcalico.model.validation.policy import check_policy, check_policy_name

ACTIONS = ("Set", "Delete", "Learn", "Ignore")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
PROTOCOLS = ("TCP", "UDP", "SCTP")
_EMPTY = "must be empty with stagedAction Delete, as all fields but tier"
_KEPT = ("stagedAction", "tier")


def check(policy: StagedNetworkPolicy | StagedGlobalNetworkPolicy, problems: Problems) -> None:
    """Check a staged policy of Calico's kinds."""
    problems.one_of("spec.stagedAction", policy.spec.stagedAction, ACTIONS)
    if policy.spec.stagedAction == "Delete":
        check_policy_name(policy, problems)
        problems.name("spec.tier", policy.spec.tier)
        _deleting(policy, problems)
    else:
        check_policy(policy, problems)


def check_kubernetes(policy: StagedKubernetesNetworkPolicy, problems: Problems) -> None:
    """Check a staged Kubernetes policy."""
    spec = policy.spec
    problems.one_of("spec.stagedAction", spec.stagedAction, ACTIONS)
    if spec.stagedAction == "Delete":
        _deleting(policy, problems)
        return
    _selector(problems, "spec.podSelector", spec.podSelector)
    for where, incoming in indexed("spec.ingress", spec.ingress):
        _ports(problems, f"{where}.ports", incoming.ports)
        _peers(problems, f"{where}.from", incoming.from_)
    for where, outgoing in indexed("spec.egress", spec.egress):
        _ports(problems, f"{where}.ports", outgoing.ports)
        _peers(problems, f"{where}.to", outgoing.to)
    problems.each_once("spec.policyTypes", spec.policyTypes, (INGRESS, EGRESS))


def _deleting(
    policy: StagedNetworkPolicy | StagedGlobalNetworkPolicy | StagedKubernetesNetworkPolicy,
    problems: Problems,
) -> None:
    empty = type(policy.spec)()
    for name in policy.spec.__struct_fields__:
        value = getattr(policy.spec, name)
        if name in _KEPT or value == getattr(empty, name):
            continue
        if name == "types" and value == [INGRESS]:
            # Filled in by the defaults for a policy without rules.
            continue
        problems.add(f"spec.{name}", "...", _EMPTY)


def _selector(problems: Problems, where: str, selector: LabelSelector) -> None:
    problems.labels(f"{where}.matchLabels", selector.matchLabels)
    for field, requirement in indexed(f"{where}.matchExpressions", selector.matchExpressions):
        problems.qualified(f"{field}.key", requirement.key)
        problems.one_of(f"{field}.operator", requirement.operator, OPERATORS, empty=False)
        if requirement.operator in OPERATORS and (requirement.operator in ("In", "NotIn")) != bool(
            requirement.values
        ):
            rule = "must hold values with In and NotIn, and none otherwise"
            problems.add(f"{field}.values", requirement.values, rule)


def _ports(problems: Problems, where: str, ports: Sequence[KubernetesPolicyPort]) -> None:
    for field, port in indexed(where, ports):
        problems.one_of(f"{field}.protocol", port.protocol, PROTOCOLS, empty=False)
        if isinstance(port.port, int):
            problems.limits(f"{field}.port", port.port, 1, 65535)
        elif port.port is not None:
            problems.port_name(f"{field}.port", port.port)
        if port.endPort is not None:
            low = port.port if isinstance(port.port, int) else None
            if low is None:
                problems.add(f"{field}.endPort", port.endPort, "needs a numeric port")
            elif not low <= port.endPort <= 65535:
                problems.add(f"{field}.endPort", port.endPort, f"must be {low} to 65535")


def _peers(problems: Problems, where: str, peers: Sequence[KubernetesPolicyPeer]) -> None:
    for field, peer in indexed(where, peers):
        if peer.podSelector is not None:
            _selector(problems, f"{field}.podSelector", peer.podSelector)
        if peer.namespaceSelector is not None:
            _selector(problems, f"{field}.namespaceSelector", peer.namespaceSelector)
        block = peer.ipBlock
        if block is None:
            continue
        if peer.podSelector is not None or peer.namespaceSelector is not None:
            problems.add(f"{field}.ipBlock", "...", "not together with a selector")
        problems.network(f"{field}.ipBlock.cidr", block.cidr, host_bits=True)
        problems.cidrs(f"{field}.ipBlock.except", block.except_)
