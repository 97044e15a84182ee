"""Which policies are active here, and which of them each local endpoint has, in order.

A policy is active while its selector matches a local endpoint. Policies are ordered by tier,
within a tier by order, then by name (docs/reference/dataplane.md#order-of-policies). Endpoints that
the same selectors match have the same policies, so lists are computed once for all of them.

Invariants:
  ACT-1  A policy of a tier that is not defined is applied, behind all defined tiers, and what it
         does not allow is denied at the tier's end.
  ACT-2  A change makes only those endpoints dirty whose list may differ.
  ACT-3  doNotTrack and preDNAT policies act on host endpoints only, applyOnForward adds to what
         they do; workload endpoints see the normal ones alone
         (docs/reference/dataplane.md#host-endpoints).
Tested in tests/felix/calc/policy/test_order.py and test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from felix.calc.policy.facts import PolicyFacts, Stage
from felix.calc.policy.index import LabelIndex
from felix.calc.policy.policy_lists import TierFacts, policy_lists
from felix.calc.policy_model import EndpointPolicy
from felix.calc.sets.items import Item
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey

HOST_ENDPOINT = "HostEndpoint"
Views = dict[tuple[bool, frozenset[str]], EndpointPolicy]
"""Lists by what they depend on: whether of a host endpoint, and which selectors match."""


class ActivePolicies:
    """Policies, tiers and local endpoints. `changed` holds policies that began or ceased."""

    def __init__(self, operations: WorkCounters) -> None:
        self._operations = operations
        self._index = LabelIndex(operations)
        self._policies: dict[ResourceKey, PolicyFacts] = {}
        self._by_selector: dict[str, set[ResourceKey]] = {}
        self._by_tier: dict[str, set[ResourceKey]] = {}
        self._tiers: dict[str, TierFacts] = {}
        self._profiles: dict[ResourceKey, tuple[str, ...]] = {}
        self._hosts: set[ResourceKey] = set()
        self.changed: set[ResourceKey] = set()
        self._dirty: set[ResourceKey] = set()
        self._touched: set[str] = set()
        self._views: Views = {}

    @property
    def dirty(self) -> set[ResourceKey]:
        """Endpoints whose list may differ."""
        # Policies of one selector, and there may be thousands, touch the same endpoints.
        while self._touched:
            self._dirty.update(self._index.items_of(self._touched.pop()))
        return self._dirty

    def take_dirty(self) -> set[ResourceKey]:
        """The same endpoints; afterwards none is dirty."""
        dirty, self._dirty = self.dirty, set()
        return dirty

    def forget_lists(self) -> None:
        """Drop the computed lists, which are large, until they are needed again."""
        self._views.clear()

    def forget_marks(self) -> None:
        """Drop the marks of what may differ."""
        self.changed.clear()
        self._touched.clear()
        self._dirty.clear()

    @property
    def selectors(self) -> int:
        """How many selectors of policies are followed."""
        return len(self._by_selector)

    def facts(self, key: ResourceKey) -> PolicyFacts | None:
        """What is known of a policy."""
        return self._policies.get(key)

    def is_active(self, key: ResourceKey) -> bool:
        """Whether a policy is needed here."""
        facts = self._policies.get(key)
        if facts is None:
            return False
        if facts.hinted:
            return True
        text = facts.selector.text
        if facts.stage is not Stage.NORMAL:
            # A node has few host endpoints.
            return any(text in self._index.selectors_of(host) for host in self._hosts)
        return self._index.matches_any(text)

    def matches(self, key: ResourceKey) -> int:
        """How many local endpoints a policy's selector matches."""
        facts = self._policies.get(key)
        endpoints = self._index.items_of(facts.selector.text) if facts is not None else ()
        if facts is not None and facts.stage is not Stage.NORMAL:
            return sum(1 for each in endpoints if each in self._hosts)
        return sum(1 for _ in endpoints)

    def put_policy(self, key: ResourceKey, facts: PolicyFacts | None) -> None:
        """Add or change a policy; None removes it."""
        before = self._policies.get(key)
        if before == facts:
            return
        self._views.clear()
        self.changed.add(key)
        if before is not None:
            self._touch(before)
            del self._policies[key]
            _drop(self._by_tier, before.tier, key)
        if facts is not None:
            self._policies[key] = facts
            self._by_tier.setdefault(facts.tier, set()).add(key)
            text = self._index.watch(facts.selector)
            self._by_selector.setdefault(text, set()).add(key)
            self._touch(facts)
        if before is not None:
            text = before.selector.text
            if facts is None or facts.selector.text != text:
                _drop(self._by_selector, text, key)
                if text not in self._by_selector:
                    self._dirty.update(self._index.items_of(text))
                    self._index.unwatch(text)

    def put_tier(self, name: str, facts: TierFacts | None) -> None:
        """Define or change a tier; None removes it."""
        if self._tiers.get(name) == facts:
            return
        self._views.clear()
        if facts is None:
            del self._tiers[name]
        else:
            self._tiers[name] = facts
        for key in self._by_tier.get(name, ()):
            self._touch(self._policies[key])

    def put_endpoint(self, key: ResourceKey, item: Item | None) -> None:
        """Add or change a local endpoint; None removes it."""
        self._views.clear()
        if item is None:
            if self._profiles.pop(key, None) is None:
                return
            left, entered = self._index.remove(key), frozenset[str]()
            self._hosts.discard(key)
            self._dirty.add(key)
        else:
            if self._profiles.get(key) != item.profiles:
                self._profiles[key] = item.profiles
                self._dirty.add(key)
            if key.kind == HOST_ENDPOINT:
                self._hosts.add(key)
            before, after = self._index.put(key, item.labels, item.profiles)
            left, entered = before - after, frozenset(after - before)
        if left or entered:
            self._dirty.add(key)
            for text in left | entered:
                self.changed |= self._by_selector[text]

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels that a profile hands down; None: it does not exist."""
        self._views.clear()
        for flip in self._index.set_profile(name, labels):
            self.changed |= self._by_selector[flip.selector]
            self._dirty |= flip.items

    def prepare(self, key: ResourceKey) -> bool:
        """Compute the lists of a local endpoint ahead of `view`; returns whether that was work."""
        before = self._operations.views
        if key in self._profiles:
            self._lists_of(key)
        return self._operations.views != before

    def view(self, key: ResourceKey) -> EndpointPolicy | None:
        """The policies and profiles of a local endpoint, None if there is none.

        What was computed is kept until the next change of anything, or `forget_lists`.
        """
        profiles = self._profiles.get(key)
        return None if profiles is None else replace(self._lists_of(key), profiles=profiles)

    def _lists_of(self, key: ResourceKey) -> EndpointPolicy:
        """The same without profiles, one for all endpoints that the same selectors match."""
        selectors = frozenset(self._index.selectors_of(key))
        which = (key in self._hosts, selectors)
        policies = self._views.get(which)
        if policies is None:
            self._operations.views += 1
            matching = (self._policies[k] for text in selectors for k in self._by_selector[text])
            policies = self._views[which] = self.lists(matching, host=key in self._hosts)
        return policies

    def matching(self, key: ResourceKey) -> list[PolicyFacts]:
        """The policies whose selectors match a local endpoint, in no order."""
        selectors = self._index.selectors_of(key)
        return [self._policies[k] for text in selectors for k in self._by_selector[text]]

    def lists(self, policies: Iterable[PolicyFacts], *, host: bool) -> EndpointPolicy:
        """These policies in order, by tier and, for a host endpoint, by stage."""
        return policy_lists(policies, self._tiers, host=host)

    def _touch(self, facts: PolicyFacts) -> None:
        self._touched.add(facts.selector.text)


def _drop(table: dict[str, set[ResourceKey]], name: str, key: ResourceKey) -> None:
    table[name].discard(key)
    if not table[name]:
        del table[name]
