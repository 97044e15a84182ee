"""Rules of staged policies (docs/reference/data-model.md#staged-policies): those of the policies,
and what Delete may say.

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
from libcalico.model.validation.checks import Problems
from libcalico.model.validation.policy import check_policy, check_policy_name

ACTIONS = ("Set", "Delete", "Learn", "Ignore")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
PROTOCOLS = ("TCP", "UDP", "SCTP")
_EMPTY = "must be empty with stagedAction Delete, as all fields but tier"
_KEPT = ("stagedAction", "tier")


def check(policy: StagedNetworkPolicy | StagedGlobalNetworkPolicy, problems: Problems) -> None:
    """Everything that is wrong with a staged policy of Calico's kinds."""
    problems.one_of("spec.stagedAction", policy.spec.stagedAction, ACTIONS)
    if policy.spec.stagedAction == "Delete":
        check_policy_name(policy, problems)
        problems.name("spec.tier", policy.spec.tier)
        _deleting(policy, problems)
    else:
        check_policy(policy, problems)


def check_kubernetes(policy: StagedKubernetesNetworkPolicy, problems: Problems) -> None:
    """Everything that is wrong with a staged Kubernetes policy."""
    spec = policy.spec
    problems.one_of("spec.stagedAction", spec.stagedAction, ACTIONS)
    if spec.stagedAction == "Delete":
        _deleting(policy, problems)
        return
    _selector(problems, "spec.podSelector", spec.podSelector)
    for index, incoming in enumerate(spec.ingress):
        _ports(problems, f"spec.ingress[{index}].ports", incoming.ports)
        _peers(problems, f"spec.ingress[{index}].from", incoming.from_)
    for index, outgoing in enumerate(spec.egress):
        _ports(problems, f"spec.egress[{index}].ports", outgoing.ports)
        _peers(problems, f"spec.egress[{index}].to", outgoing.to)
    for index, one in enumerate(spec.policyTypes):
        if one not in (INGRESS, EGRESS):
            problems.add(f"spec.policyTypes[{index}]", one, "must be Ingress or Egress")
        elif one in spec.policyTypes[:index]:
            problems.add(f"spec.policyTypes[{index}]", one, "is there already")


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
    for index, one in enumerate(selector.matchExpressions):
        field = f"{where}.matchExpressions[{index}]"
        problems.qualified(f"{field}.key", one.key)
        if one.operator not in OPERATORS:
            rule = "must be one of " + ", ".join(OPERATORS)
            problems.add(f"{field}.operator", one.operator, rule)
        elif (one.operator in ("In", "NotIn")) != bool(one.values):
            rule = "must hold values with In and NotIn, and none otherwise"
            problems.add(f"{field}.values", one.values, rule)


def _ports(problems: Problems, where: str, ports: Sequence[KubernetesPolicyPort]) -> None:
    for index, one in enumerate(ports):
        field = f"{where}[{index}]"
        if one.protocol is not None and one.protocol not in PROTOCOLS:
            problems.add(
                f"{field}.protocol", one.protocol, "must be one of " + ", ".join(PROTOCOLS)
            )
        if isinstance(one.port, int):
            problems.limits(f"{field}.port", one.port, 1, 65535)
        elif one.port is not None:
            problems.port_name(f"{field}.port", one.port)
        if one.endPort is not None:
            low = one.port if isinstance(one.port, int) else None
            if low is None:
                problems.add(f"{field}.endPort", one.endPort, "needs a numeric port")
            elif not low <= one.endPort <= 65535:
                problems.add(f"{field}.endPort", one.endPort, f"must be {low} to 65535")


def _peers(problems: Problems, where: str, peers: Sequence[KubernetesPolicyPeer]) -> None:
    for index, one in enumerate(peers):
        field = f"{where}[{index}]"
        if one.podSelector is not None:
            _selector(problems, f"{field}.podSelector", one.podSelector)
        if one.namespaceSelector is not None:
            _selector(problems, f"{field}.namespaceSelector", one.namespaceSelector)
        block = one.ipBlock
        if block is None:
            continue
        if one.podSelector is not None or one.namespaceSelector is not None:
            problems.add(f"{field}.ipBlock", "...", "not together with a selector")
        problems.network(f"{field}.ipBlock.cidr", block.cidr, host_bits=True)
        problems.cidrs(f"{field}.ipBlock.except", block.except_)
