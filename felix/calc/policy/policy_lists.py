"""The order of policies: by tier, within a tier by order, then by name
(docs/reference/dataplane.md#order-of-policies).

Tested in tests/felix/calc/policy/test_order.py and test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from felix.calc.policy.facts import PolicyFacts, Stage
from felix.calc.policy_model import EndpointPolicy, Run, TierView
from libcalico.model import Tier
from libcalico.model.validation.kubernetes_names import SINGLE_LABEL


@dataclass(frozen=True, slots=True)
class TierFacts:
    """A defined tier. `order` None is last."""

    order: float | None
    ends_in_deny: bool


def tier_facts(tier: Tier) -> TierFacts:
    """The facts of a stored tier; any end but a Pass denies."""
    return TierFacts(tier.spec.order, tier.spec.defaultAction != "Pass")


def policy_lists(
    policies: Iterable[PolicyFacts], defined: Mapping[str, TierFacts], *, host: bool
) -> EndpointPolicy:
    """These policies in order, by tier and, for a host endpoint, by stage. `defined`: the tiers."""
    by_stage: dict[Stage, list[PolicyFacts]] = {stage: [] for stage in Stage}
    for facts in policies:
        by_stage[facts.stage].append(facts)
    normal = by_stage[Stage.NORMAL]
    tiers = tuple(_tier_views(normal, defined))
    if not host:
        return EndpointPolicy(tiers)
    return EndpointPolicy(
        tiers,
        untracked=tuple(map(_open_ended, _tier_views(by_stage[Stage.UNTRACKED], defined))),
        pre_dnat=tuple(map(_open_ended, _tier_views(by_stage[Stage.PRE_DNAT], defined))),
        forward=tuple(_tier_views((facts for facts in normal if facts.forward), defined)),
    )


def _tier_views(
    policies: Iterable[PolicyFacts], defined: Mapping[str, TierFacts]
) -> Iterator[TierView]:
    by_tier: dict[str, list[PolicyFacts]] = {}
    for facts in policies:
        by_tier.setdefault(facts.tier, []).append(facts)
    for name in sorted(by_tier, key=lambda name: _tier_rank(name, defined.get(name))):
        ordered = sorted(by_tier[name], key=lambda facts: facts.rank)
        tier = defined.get(name)
        ingress = [facts for facts in ordered if facts.ingress]
        egress = [facts for facts in ordered if facts.egress]
        yield TierView(
            name,
            ingress=tuple(facts.key for facts in ingress),
            egress=tuple(facts.key for facts in egress),
            ends_in_deny=tier is None or tier.ends_in_deny,
            ingress_runs=tuple(_runs(ingress)),
            egress_runs=tuple(_runs(egress)),
        )


def _tier_rank(name: str, tier: TierFacts | None) -> tuple[bool, bool, bool, float, str]:
    order = None if tier is None else tier.order
    readable = SINGLE_LABEL.fullmatch(name) is not None
    return (readable, tier is None, order is None, order or 0.0, name)


def _runs(policies: list[PolicyFacts]) -> Iterator[Run]:
    first = 0
    for selector, same in groupby(policies, key=lambda facts: facts.selector.text):
        end = first + sum(1 for _ in same)
        if end - first > 1:
            yield Run(first, end, selector)
        first = end


def _open_ended(view: TierView) -> TierView:
    # The tier's own end does not count: what these stages leave undecided, later ones decide.
    return replace(view, ends_in_deny=False)
