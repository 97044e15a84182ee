"""Which policies are active here, and which of them each local endpoint has, in order.

A policy is active while its selector matches a local endpoint. Policies are ordered by tier,
within a tier by order, then by name (reference 1.2). Endpoints that the same selectors match
have the same policies, so lists are computed once for all of them.

Invariants:
  ACT-1  A policy of a tier that nobody defined is applied, behind all defined tiers, and what
         it does not allow is denied at the tier's end.
  ACT-2  A change makes only those endpoints dirty whose list may differ.
Tested in tests/felix/test_policy_calc_order.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from felix.calc.policy.facts import PolicyFacts
from felix.calc.policy.index import LabelIndex
from felix.calc.policy.items import Item
from felix.calc.policy.operations import Operations
from felix.calc.policy_model import EndpointPolicy, TierView
from libcalico.model import ResourceKey, Tier
from libcalico.model.checks import SINGLE_LABEL

Views = dict[frozenset[str], tuple[TierView, ...]]


@dataclass(frozen=True, slots=True)
class TierFacts:
    """A defined tier. `order` None is last."""

    order: float | None
    ends_in_deny: bool


def tier_facts(tier: Tier) -> TierFacts:
    """The facts of a stored tier; any end but a Pass denies."""
    return TierFacts(tier.spec.order, tier.spec.defaultAction != "Pass")


class ActivePolicies:
    """Policies, tiers and local endpoints. `changed` holds policies that began or ceased."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._index = LabelIndex(operations)
        self._policies: dict[ResourceKey, PolicyFacts] = {}
        self._by_selector: dict[str, set[ResourceKey]] = {}
        self._by_tier: dict[str, set[ResourceKey]] = {}
        self._tiers: dict[str, TierFacts] = {}
        self._profiles: dict[ResourceKey, tuple[str, ...]] = {}
        self.changed: set[ResourceKey] = set()
        self.dirty: set[ResourceKey] = set()

    @property
    def selectors(self) -> int:
        """How many selectors of policies are followed."""
        return len(self._by_selector)

    def is_active(self, key: ResourceKey) -> bool:
        """Whether a policy is needed here."""
        facts = self._policies.get(key)
        if facts is None or facts.selector is None:
            return False
        return facts.hinted or self._index.matches_any(facts.selector.text)

    def put_policy(self, key: ResourceKey, facts: PolicyFacts | None) -> None:
        """A policy is so now; None: it is gone."""
        before = self._policies.get(key)
        if before == facts:
            return
        self.changed.add(key)
        if before is not None:
            self._touch(before)
            del self._policies[key]
            _drop(self._by_tier, before.tier, key)
        if facts is not None:
            self._policies[key] = facts
            self._by_tier.setdefault(facts.tier, set()).add(key)
            if facts.selector is not None:
                text = self._index.watch(facts.selector)
                self._by_selector.setdefault(text, set()).add(key)
            self._touch(facts)
        if before is not None and before.selector is not None:
            text = before.selector.text
            stays = facts is not None and facts.selector is not None and facts.selector.text == text
            if not stays:
                _drop(self._by_selector, text, key)
                if text not in self._by_selector:
                    self._index.unwatch(text)

    def put_tier(self, name: str, facts: TierFacts | None) -> None:
        """A tier is so now; None: it is not defined."""
        if self._tiers.get(name) == facts:
            return
        if facts is None:
            del self._tiers[name]
        else:
            self._tiers[name] = facts
        for key in self._by_tier.get(name, ()):
            self._touch(self._policies[key])

    def put_endpoint(self, key: ResourceKey, item: Item | None) -> None:
        """A local endpoint is so now; None: it is gone."""
        if item is None:
            if self._profiles.pop(key, None) is None:
                return
            left, entered = self._index.remove(key), frozenset[str]()
            self.dirty.add(key)
        else:
            if self._profiles.get(key) != item.profiles:
                self._profiles[key] = item.profiles
                self.dirty.add(key)
            before, after = self._index.put(key, item.labels, item.profiles)
            left, entered = before - after, frozenset(after - before)
        if left or entered:
            self.dirty.add(key)
            for text in left | entered:
                self.changed |= self._by_selector[text]

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A profile hands down these labels; None: it does not exist."""
        for flip in self._index.set_profile(name, labels):
            self.changed |= self._by_selector[flip.selector]
            self.dirty |= flip.items

    def view(self, key: ResourceKey, views: Views) -> EndpointPolicy | None:
        """The policies and profiles of a local endpoint, None if there is none.

        `views` keeps what was computed; it holds until the next change of anything.
        """
        profiles = self._profiles.get(key)
        if profiles is None:
            return None
        selectors = frozenset(self._index.selectors_of(key))
        tiers = views.get(selectors)
        if tiers is None:
            tiers = views[selectors] = tuple(self._tier_views(selectors))
        return EndpointPolicy(tiers, profiles)

    def _tier_views(self, selectors: frozenset[str]) -> Iterator[TierView]:
        self._operations.views += 1
        found: dict[str, list[PolicyFacts]] = {}
        for text in selectors:
            for key in self._by_selector[text]:
                facts = self._policies[key]
                found.setdefault(facts.tier, []).append(facts)
        for name in sorted(found, key=self._tier_rank):
            policies = sorted(found[name], key=lambda facts: facts.rank)
            tier = self._tiers.get(name)
            yield TierView(
                name,
                ingress=tuple(facts.key for facts in policies if facts.ingress),
                egress=tuple(facts.key for facts in policies if facts.egress),
                ends_in_deny=tier is None or tier.ends_in_deny,
            )

    def _tier_rank(self, name: str) -> tuple[bool, bool, bool, float, str]:
        tier = self._tiers.get(name)
        order = None if tier is None else tier.order
        readable = SINGLE_LABEL.fullmatch(name) is not None
        return (readable, tier is None, order is None, order or 0.0, name)

    def _touch(self, facts: PolicyFacts) -> None:
        if facts.selector is not None:
            self.dirty.update(self._index.items_of(facts.selector.text))


def _drop(table: dict[str, set[ResourceKey]], name: str, key: ResourceKey) -> None:
    table[name].discard(key)
    if not table[name]:
        del table[name]
