"""What a stored policy says of itself: whom it selects, where it stands, which way it works.

Calico takes an invalid policy for absent. That would open all that the policy was to close, so
here a policy that cannot be understood still selects, and closes (docs/design/0004).

Invariants:
  NWA-1  A rule, port, net, type or order that cannot be understood closes the whole policy: it
         selects whom it selected, in every direction it may have, and denies everything.
  NWA-2  A selector that cannot be understood is left out of the selection, which so gets
         larger, up to the namespace of a NetworkPolicy or to all endpoints, and the policy
         closes.
  NWA-3  A policy whose tier or order cannot be understood stands before all others that it
         could be meant to precede.
  NWA-4  All that is closed, not applied, or enforced in part only is named by a condition.
  NWA-5  A policy for host endpoints whose stage contradicts the rest of it (both doNotTrack and
         preDNAT; preDNAT with egress) closes in the stage that counts first. It never touches
         workload endpoints.
Tested in tests/felix/calc/policy/test_unreadable.py and test_hosts.py (NWA-5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from felix.calc.policy.rules import Rules, resolve
from felix.calc.policy_model import ResolvedPolicy, ResolvedRule, Verb
from libcalico.errors import InvalidValue
from libcalico.model import (
    GlobalNetworkPolicy,
    NetworkPolicy,
    Profile,
    ResourceKey,
    StagedGlobalNetworkPolicy,
    StagedNetworkPolicy,
)
from libcalico.model.resources.policy import EGRESS, INGRESS, NetworkPolicySpec, tier_of
from libcalico.model.salvage import UNREADABLE
from libcalico.model.validation.kubernetes_names import SINGLE_LABEL
from libcalico.policy_selectors import policy_selector
from libcalico.selectors.selectors import Selector, parse

Policy = NetworkPolicy | GlobalNetworkPolicy
WithRules = StagedNetworkPolicy | StagedGlobalNetworkPolicy
SELECTORS = ("selector", "namespaceSelector", "serviceAccountSelector")
NEEDED_EVERYWHERE = "AssumeNeededOnEveryNode"
DENY_ALL = (ResolvedRule(Verb.DENY),)


class Stage(Enum):
    """Where on a packet's way a policy acts; all but `NORMAL` on host endpoints only."""

    NORMAL = "normal"
    UNTRACKED = "doNotTrack"
    PRE_DNAT = "preDNAT"


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy without its rules.

    `closed` policies deny everything, `problem` says why. `order` infinite is last. `hinted`:
    kept ready on every node, whether or not it selects something there. `forward`: of a host
    endpoint it also judges what the host forwards. `notice` is said of a policy in force.
    """

    key: ResourceKey
    tier: str
    order: float
    selector: Selector
    ingress: bool
    egress: bool
    hinted: bool = False
    closed: bool = False
    problem: str = ""
    stage: Stage = Stage.NORMAL
    forward: bool = False
    notice: str = ""

    @property
    def rank(self) -> tuple[float, str]:
        """Where it stands in its tier (docs/reference/dataplane.md#order-of-policies)."""
        return (self.order, f"{self.key.name}/{self.key.namespace}/{self.key.kind}")


def facts_of(key: ResourceKey, policy: Policy) -> PolicyFacts:
    """The facts of a policy."""
    spec = policy.spec
    types = set(spec.types)
    problem = ""
    if types - {INGRESS, EGRESS}:
        problem = f"spec.types: {sorted(types)}: must be Ingress and Egress; closed"
        types = set()
    tier = tier_of(policy)
    if SINGLE_LABEL.fullmatch(tier) is None:
        problem = f"spec.tier: {tier!r} is no name of a tier; closed"
    stage, confused, notice = _stage(policy)
    problem = problem or confused
    selector, trouble = _selection(key, policy)
    return PolicyFacts(
        key=key,
        tier=tier,
        order=_order(policy),
        selector=selector,
        # Without types both directions count here; writers fill them in
        # (docs/reference/dataplane.md#order-of-policies).
        ingress=INGRESS in types or not types,
        egress=stage is not Stage.PRE_DNAT and (EGRESS in types or not types),
        hinted=NEEDED_EVERYWHERE in spec.performanceHints,
        closed=bool(problem or trouble),
        problem=trouble or problem,
        stage=stage,
        forward=isinstance(policy, GlobalNetworkPolicy) and policy.spec.applyOnForward,
        notice=notice,
    )


def _order(policy: Policy) -> float:
    spec = policy.spec
    if spec.order is not None:
        return spec.order
    # So `salvage` marks an order that it could not read.
    unreadable = spec.ingress[:1] == [UNREADABLE] and spec.egress[:1] == [UNREADABLE]
    return -math.inf if unreadable else math.inf


def _stage(policy: Policy) -> tuple[Stage, str, str]:
    """The stage, why the policy is to close there, and what is to be said anyway."""
    spec = policy.spec
    if isinstance(spec, NetworkPolicySpec) or not (spec.doNotTrack or spec.preDNAT):
        return Stage.NORMAL, "", ""
    # What Calico's calculation looks at first.
    stage = Stage.UNTRACKED if spec.doNotTrack else Stage.PRE_DNAT
    if spec.doNotTrack and spec.preDNAT:
        return stage, "spec.preDNAT: true: must not stand with doNotTrack; closed", ""
    if stage is Stage.PRE_DNAT and (spec.egress or EGRESS in spec.types):
        return stage, "spec.preDNAT: true: must not stand with egress; closed", ""
    if spec.applyOnForward:
        return stage, "", ""
    lacking = f"spec.applyOnForward: false: must be true with {stage.value}; applied as if it were"
    return stage, "", lacking


def _selection(key: ResourceKey, policy: Policy) -> tuple[Selector, str]:
    """Whom it selects, and what of that could not be read."""
    unreadable = {}
    for name in _selectors_of(policy):
        text = getattr(policy.spec, name)
        try:
            parse(text)
        except InvalidValue as error:
            unreadable[name] = f"spec.{name}: {text!r} is no selector: {error.rule}"
    if policy.metadata.namespace != key.namespace:
        policy = replace(policy, metadata=replace(policy.metadata, namespace=key.namespace))
    try:
        selector = parse(policy_selector(_without(policy, unreadable)))
    except InvalidValue as error:
        # Each can be read, but not all of them together: too deep.
        unreadable = dict.fromkeys(_selectors_of(policy), "")
        unreadable["selector"] = f"spec: its selectors together: {error.rule}"
        selector = parse(policy_selector(_without(policy, unreadable)))
    trouble = "; ".join(filter(None, unreadable.values()))
    return selector, f"{trouble}; closed" if trouble else ""


def _selectors_of(policy: Policy) -> list[str]:
    return [name for name in SELECTORS if hasattr(policy.spec, name)]


def _without(policy: Policy, fields: Iterable[str]) -> Policy:
    return replace(policy, spec=replace(policy.spec, **dict.fromkeys(fields, "")))


def resolve_policy(
    facts: PolicyFacts, policy: Policy, *, services: bool = False
) -> tuple[ResolvedPolicy, Rules, str]:
    """What its chains hold, all rules with their needs, and the condition it is in.

    `services`: whether the endpoints of services are known.
    """
    if facts.closed:
        return closed(facts.key, facts.tier), Rules(()), facts.problem
    try:
        ingress = resolve(
            policy.spec.ingress, "spec.ingress", facts.key.namespace, services=services
        )
        egress = resolve(policy.spec.egress, "spec.egress", facts.key.namespace, services=services)
    except InvalidValue as error:
        return closed(facts.key, facts.tier), Rules(()), f"{error}; closed"
    both = joined(ingress, egress)
    resolved = ResolvedPolicy(facts.key, facts.tier, ingress.rules, egress.rules)
    return resolved, both, "; ".join(filter(None, (facts.notice, unenforced(both))))


def closed(key: ResourceKey, tier: str, *, missing: bool = False) -> ResolvedPolicy:
    """A policy or profile that denies everything."""
    return ResolvedPolicy(key, tier, DENY_ALL, DENY_ALL, missing=missing)


def joined(ingress: Rules, egress: Rules) -> Rules:
    """Both directions; a set that both need is needed once."""
    needs = {need.id: need for need in (*ingress.needs, *egress.needs)}
    return Rules(
        (*ingress.rules, *egress.rules),
        tuple(needs.values()),
        (*ingress.unenforced, *egress.unenforced),
    )


def unenforced(rules: Rules) -> str:
    """The condition of rules that are enforced in part, or nothing."""
    if not rules.unenforced:
        return ""
    return f"{', '.join(rules.unenforced[:5])}: not supported; such rules allow nothing"


def names_services(value: Policy | Profile | WithRules) -> bool:
    """Whether any rule of a policy, staged or not, or of a profile names a service."""
    return any(
        side.services is not None
        for rule in (*value.spec.ingress, *value.spec.egress)
        for side in (rule.source, rule.destination)
    )


def labels_to_apply(tree: Mapping[str, object]) -> dict[str, str]:
    """The labels that a profile hands down, those of them that are texts."""
    return {k: v for k, v in tree.items() if isinstance(k, str) and isinstance(v, str)}
