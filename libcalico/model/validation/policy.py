"""Rules of policies and network sets (docs/reference/data-model.md#validation, #networkpolicy,
#networkset).

Tested in tests/libcalico/test_validate_policy.py.
"""

from __future__ import annotations

import re

from libcalico.model.resources.policy import (
    EGRESS,
    INGRESS,
    GlobalNetworkPolicy,
    NetworkPolicy,
    Policy,
)
from libcalico.model.resources.sets import GlobalNetworkSet, NetworkSet
from libcalico.model.resources.staged import StagedGlobalNetworkPolicy, StagedNetworkPolicy
from libcalico.model.validation.checks import Problems, indexed
from libcalico.model.validation.kubernetes_names import LABEL, NAME
from libcalico.model.validation.rules import check_direction, check_rules

_ONE_DOT = re.compile(rf"{LABEL}(\.{LABEL})?")
_FROM_KUBERNETES = re.compile(rf"(knp|ossg)\.default\.({NAME.pattern})")
_FROM_CLUSTER = re.compile(rf"kcnp\.({NAME.pattern})")
HINTS = ("AssumeNeededOnEveryNode",)
Staged = StagedNetworkPolicy | StagedGlobalNetworkPolicy
NAMESPACE_LABEL = "projectcalico.org/namespace"


def check_policy(policy: Policy | Staged, problems: Problems) -> None:
    """Check a policy, staged or not."""
    spec = policy.spec
    check_policy_name(policy, problems)
    problems.name("spec.tier", spec.tier)
    problems.selector("spec.selector", spec.selector)
    problems.selector("spec.serviceAccountSelector", spec.serviceAccountSelector)
    for direction in ("ingress", "egress"):
        rules = getattr(spec, direction)
        check_rules(problems, f"spec.{direction}", rules)
        check_direction(problems, f"spec.{direction}", rules, direction == "ingress")
    problems.each_once("spec.types", spec.types, (INGRESS, EGRESS))
    problems.each_once("spec.performanceHints", spec.performanceHints, HINTS)
    if isinstance(policy, (GlobalNetworkPolicy, StagedGlobalNetworkPolicy)):
        _check_global(policy, problems)


def check_set(networks: NetworkSet | GlobalNetworkSet, problems: Problems) -> None:
    """Check a network set."""
    problems.cidrs("spec.nets", networks.spec.nets)
    label = networks.metadata.labels.get(NAMESPACE_LABEL)
    if label is not None:
        rule = "is set by the system only"
        problems.add(f"metadata.labels[{NAMESPACE_LABEL}]", label, rule)


def check_policy_name(policy: Policy | Staged, problems: Problems) -> None:
    """A dot may stand behind the name of a tier; names made of Kubernetes' policies have more."""
    name = policy.metadata.name
    if not name or not NAME.fullmatch(name) or _ONE_DOT.fullmatch(name):
        return
    namespaced = isinstance(policy, (NetworkPolicy, StagedNetworkPolicy))
    if (_FROM_KUBERNETES if namespaced else _FROM_CLUSTER).fullmatch(name):
        return
    problems.add("metadata.name", name, "must have at most one dot")


def _check_global(
    policy: GlobalNetworkPolicy | StagedGlobalNetworkPolicy, problems: Problems
) -> None:
    spec = policy.spec
    problems.selector("spec.namespaceSelector", spec.namespaceSelector)
    if spec.doNotTrack and spec.preDNAT:
        problems.add("spec.preDNAT", True, "not together with doNotTrack")
    for name in ("doNotTrack", "preDNAT"):
        if getattr(spec, name) and not spec.applyOnForward:
            problems.add("spec.applyOnForward", False, f"must be true with {name}")
    if spec.preDNAT:
        if spec.egress:
            problems.add(
                "spec.egress", f"{len(spec.egress)} rules", "none are allowed with preDNAT"
            )
        for where, direction_type in indexed("spec.types", spec.types):
            if direction_type == EGRESS:
                problems.add(where, direction_type, "is not allowed with preDNAT")
    for direction, side in (("ingress", "source"), ("egress", "destination")):
        for where, rule in indexed(f"spec.{direction}", getattr(spec, direction)):
            services = getattr(rule, side).services
            if services is not None and not services.namespace:
                field = f"{where}.{side}.services.namespace"
                problems.add(field, "", "is required in a GlobalNetworkPolicy")
