"""The stored policies, and the resolved rules of those that are active on this node.

Rules are resolved when a policy becomes active and when it changes, one policy a step. Policies
that name services are resolved again when the services become known or unknown.
Tested in tests/felix/calc/policy/test_engine.py, test_order.py, test_large.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from felix.calc.policy.active_rules import ActiveRules
from felix.calc.policy.conditions import Conditions
from felix.calc.policy.facts import Policy, facts_of, resolve_policy
from felix.calc.policy.large import LargePolicies, Version
from felix.calc.policy.policy_order import ActivePolicies
from felix.calc.policy.rules import reading
from felix.calc.policy.stored import StoredPolicies
from felix.calc.policy_model import ResolvedPolicy
from felix.calc.sets.service_sets import NeededSets
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey

STEP_COST = 100
"""Microseconds, about, that one policy takes."""


class PolicyRules:
    """Policies by key. `order` says which of them are active, `sets` are those their rules name."""

    def __init__(
        self,
        order: ActivePolicies,
        sets: NeededSets,
        large: LargePolicies,
        conditions: Conditions,
        operations: WorkCounters,
    ) -> None:
        self._order, self._sets, self._large = order, sets, large
        self._conditions, self._operations = conditions, operations
        self._stored = StoredPolicies()
        self._active: ActiveRules[ResourceKey] = ActiveRules(sets)
        self._unread: list[ResourceKey] = []
        """Policies that were stored before `start` and are not matched yet."""
        self._stale: set[ResourceKey] = set()

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def flushed(self) -> Mapping[ResourceKey, ResolvedPolicy]:
        """The active policies, as of the last flush."""
        return self._active.flushed

    @property
    def name_services(self) -> bool:
        """Whether any stored policy names a service."""
        return bool(self._stored.with_services)

    @property
    def dirty(self) -> bool:
        """Whether a policy is to be resolved or flushed."""
        return bool(self._unread or self._stale or self._order.changed or self._active.dirty)

    def get(self, key: ResourceKey) -> Policy | None:
        """A policy as it is stored; None if there is none."""
        return self._stored.get(key)

    def start(self) -> None:
        """Match all stored policies, in the steps that follow."""
        self._unread.extend(self._stored)

    def put(self, key: ResourceKey, policy: Policy | None, *, match: bool) -> None:
        """Store a policy; None removes it. `match`: at once, as `start` has been called."""
        if policy is None:
            self._stored.remove(key)
            self._conditions.report(key, "")
        elif not self._stored.put(key, policy):
            return
        if match:
            self._stale.add(key)
            self._order.put_policy(key, None if policy is None else facts_of(key, policy))

    def services_changed(self) -> None:
        """Resolve the policies that name services again."""
        self._stale |= self._stored.with_services

    def step(self) -> int:
        """Bring one policy up to date; returns about how many microseconds it took, 0: none."""
        if self._unread:
            key = self._unread.pop()
            policy = self._stored.get(key)
            if policy is not None:
                self._order.put_policy(key, facts_of(key, policy))
                self._resolve(key, policy)
            self._order.changed.discard(key)
        elif self._stale:
            key = self._stale.pop()
            self._order.changed.discard(key)
            self._resolve(key, self._stored.get(key))
        elif self._order.changed:
            key = self._order.changed.pop()
            if not self._order.is_active(key):
                self._active.remove(key)
            elif key not in self._active:
                self._resolve(key, self._stored.get(key))
        else:
            return 0
        return STEP_COST

    def flush(self, named: Collection[ResourceKey]) -> dict[ResourceKey, ResolvedPolicy | None]:
        """The differences since the last flush. Policies in `named` are not removed yet."""
        return self._active.flush(named)

    def _resolve(self, key: ResourceKey, policy: Policy | None) -> None:
        facts = self._order.facts(key)
        if policy is None or facts is None:
            self._large.forget(key)
            self._active.remove(key)
            return
        if self._large.defers(key, policy, self._version(key)):
            return
        resolved, rules, condition = resolve_policy(
            facts, policy, services=self._sets.services_known
        )
        self._operations.rules += len(rules.rules)
        self._conditions.report(key, condition)
        if self._order.is_active(key):
            self._active.put(key, resolved, rules.needs)
        else:
            self._active.remove(key)

    # -- large policies ------------------------------------------------------------------------

    def prepare(self, warm: Callable[[ResolvedPolicy], Iterator[None]]) -> Iterator[None]:
        """Resolve large policies ahead of time, in steps (`felix.calc.policy.large`).

        `warm` prepares the data plane for the resolved rules, in steps too. Updates may come
        between two steps.
        """
        while (key := self._large.next()) is not None:
            policy, facts, version = (
                self._stored.get(key),
                self._order.facts(key),
                self._version(key),
            )
            if policy is not None and facts is not None:
                known, spec = self._sets.services_known, policy.spec
                for field, rules in (("spec.ingress", spec.ingress), ("spec.egress", spec.egress)):
                    yield from reading(rules, field, key.namespace, services=known)
                yield
                resolved, _, _ = resolve_policy(facts, policy, services=known)
                yield
                yield from warm(resolved)
            self._large.prepared(key, version)
            self._stale.add(key)
            yield

    def stop_preparing(self) -> None:
        """Resolve every policy in its turn from now on, however large."""
        self._large.wake = None
        self._stale |= self._large.waiting()

    def _version(self, key: ResourceKey) -> Version:
        return self._stored.version(key), self._sets.services_known
