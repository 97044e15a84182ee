"""The stored profiles, and the resolved rules of those that local endpoints name.

A profile that is named but not stored denies everything (ENG-3).
Tested in tests/felix/calc/policy/test_engine.py, test_services.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from felix.calc.policy.active_rules import ActiveRules
from felix.calc.policy.conditions import Conditions
from felix.calc.policy.facts import closed, joined, labels_to_apply, names_services, unenforced
from felix.calc.policy.rules import resolve
from felix.calc.policy_model import ResolvedPolicy
from felix.calc.sets.service_sets import NeededSets
from felix.calc.work_counters import WorkCounters
from libcalico.errors import InvalidValue
from libcalico.model import Profile, ResourceKey

STEP_COST = 100
"""Microseconds, about, that one profile takes."""


class ProfileRules:
    """Profiles by name, and the local endpoints that use each."""

    def __init__(self, sets: NeededSets, conditions: Conditions, operations: WorkCounters) -> None:
        self._sets, self._conditions, self._operations = sets, conditions, operations
        self._stored: dict[str, Profile] = {}
        self._with_services: set[str] = set()
        self._users: dict[str, set[ResourceKey]] = {}
        self._active: ActiveRules[str] = ActiveRules(sets)
        self._stale: set[str] = set()

    @property
    def flushed(self) -> Mapping[str, ResolvedPolicy]:
        """The profiles in use, as of the last flush."""
        return self._active.flushed

    @property
    def name_services(self) -> bool:
        """Whether any stored profile names a service."""
        return bool(self._with_services)

    @property
    def dirty(self) -> bool:
        """Whether a profile is to be resolved or flushed."""
        return bool(self._stale or self._active.dirty)

    def get(self, name: str) -> Profile | None:
        """A profile as it is stored; None if there is none."""
        return self._stored.get(name)

    def inherited_labels(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every stored profile with the labels that it hands down."""
        for name, profile in self._stored.items():
            yield name, labels_to_apply(profile.spec.labelsToApply)

    def put(self, name: str, profile: Profile | None) -> bool:
        """Store a profile; None removes it. Returns whether it differs from before."""
        before = self._stored.get(name)
        if before == profile:
            return False
        if profile is None:
            del self._stored[name]
        else:
            self._stored[name] = profile
        if profile is not None and names_services(profile):
            self._with_services.add(name)
        else:
            self._with_services.discard(name)
        if _rules(before) != _rules(profile):
            self._stale.add(name)
        return True

    def services_changed(self) -> None:
        """Resolve the profiles that name services again."""
        self._stale |= self._with_services

    def use(self, key: ResourceKey, before: Collection[str], after: Collection[str]) -> None:
        """Note that a local endpoint names the profiles `after`, no longer those `before`."""
        for name in set(before) - set(after):
            users = self._users[name]
            users.discard(key)
            if not users:
                del self._users[name]
                self._stale.add(name)
        for name in set(after) - set(before):
            if name not in self._users:
                self._stale.add(name)
            self._users.setdefault(name, set()).add(key)

    def step(self) -> int:
        """Bring one profile up to date; returns about how many microseconds it took, 0: none."""
        if not self._stale:
            return 0
        self._resolve(self._stale.pop())
        return STEP_COST

    def flush(self, named: Collection[str]) -> dict[str, ResolvedPolicy | None]:
        """The differences since the last flush. Profiles in `named` are not removed yet."""
        return self._active.flush(named)

    def _resolve(self, name: str) -> None:
        key = ResourceKey("Profile", name)
        if name not in self._users:
            self._active.remove(name)
            self._conditions.report(key, "")
            return
        profile = self._stored.get(name)
        if profile is None:
            self._active.put(name, closed(key, "", missing=True), ())
            missing = "it does not exist: the endpoints that name it are closed by it"
            self._conditions.report(key, missing)
            return
        try:
            known = self._sets.services_known
            ingress = resolve(profile.spec.ingress, "spec.ingress", services=known)
            egress = resolve(profile.spec.egress, "spec.egress", services=known)
        except InvalidValue as error:
            self._active.put(name, closed(key, ""), ())
            self._conditions.report(key, f"{error}; closed")
            return
        rules = joined(ingress, egress)
        self._operations.rules += len(rules.rules)
        self._active.put(name, ResolvedPolicy(key, "", ingress.rules, egress.rules), rules.needs)
        self._conditions.report(key, unenforced(rules))


def _rules(profile: Profile | None) -> object:
    return None if profile is None else (profile.spec.ingress, profile.spec.egress)
