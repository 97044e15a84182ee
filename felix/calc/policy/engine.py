"""The policy calculation of one node: stored objects in, differences for the data plane out.

Updates only feed the indexes and mark what may differ; `flush` settles what is marked and
tells the differences. Before the datastore has been read whole nothing is matched and
nothing told, so loading costs no more than filling the indexes.

Invariants:
  ENG-1  What was told in all flushes together depends on the objects only, not on their history.
  ENG-2  A set is told before a rule that names it, a policy before an endpoint that has it, and
         taken back in reverse (POL-2).
  ENG-3  An endpoint whose profile nobody defines is closed by that profile, and a condition
         says so.
Tested in tests/felix/test_policy_calc_engine.py, _model.py, _semantics.py, _operations.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from felix.calc.endpoints import Endpoint, from_resource
from felix.calc.policy.active import ActivePolicies, Views, tier_facts
from felix.calc.policy.facts import (
    Policy,
    closed,
    facts_of,
    joined,
    labels_to_apply,
    resolve_policy,
    unenforced,
)
from felix.calc.policy.items import Item, of_local, of_network_set, of_remote
from felix.calc.policy.operations import Operations
from felix.calc.policy.programs import Programs
from felix.calc.policy.rules import resolve
from felix.calc.policy.sets import SetTable
from felix.calc.policy_model import EndpointPolicy, PolicyChanges, ResolvedPolicy, SetKind
from libcalico.errors import InvalidValue
from libcalico.model import Profile, ResourceKey
from libcalico.model.profile import DEFAULT_ALLOW, default_allow

KINDS = (
    "GlobalNetworkPolicy",
    "GlobalNetworkSet",
    "NetworkPolicy",
    "NetworkSet",
    "Profile",
    "Tier",
    "WorkloadEndpoint",
)
"""What the engine takes."""


class PolicyEngine:
    """Policies, profiles, tiers, network sets and all endpoints, seen from one node.

    `conditions` names every object that is broken or not enforced in full. `operations`
    counts work.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.operations = Operations()
        self.conditions: dict[ResourceKey, str] = {}
        self._in_sync = False
        self._sets = SetTable(self.operations)
        self._active = ActivePolicies(self.operations)
        self._stored: dict[ResourceKey, Policy] = {}
        self._stored_profiles: dict[str, Profile] = {}
        self._local: dict[ResourceKey, Item] = {}
        self._profile_users: dict[str, set[ResourceKey]] = {}
        self._stale: set[ResourceKey] = set()
        self._stale_profiles: set[str] = set()
        self._programs: Programs[ResourceKey] = Programs(self._sets)
        self._profiles: Programs[str] = Programs(self._sets)
        self._endpoints: dict[ResourceKey, EndpointPolicy] = {}
        self._put_profile(DEFAULT_ALLOW, default_allow())

    @property
    def in_sync(self) -> bool:
        """Whether the datastore has been read whole."""
        return self._in_sync

    def start(self) -> None:
        """The datastore has been read whole: matching begins."""
        if self._in_sync:
            return
        self._in_sync = True
        for key, policy in self._stored.items():
            self._active.put_policy(key, facts_of(key, policy))
            self._stale.add(key)
        for key, item in self._local.items():
            self._active.put_endpoint(key, item)

    @property
    def policies(self) -> Mapping[ResourceKey, ResolvedPolicy]:
        """The active policies, as of the last flush."""
        return self._programs.told

    @property
    def profiles(self) -> Mapping[str, ResolvedPolicy]:
        """The profiles in use, as of the last flush."""
        return self._profiles.told

    @property
    def endpoints(self) -> Mapping[ResourceKey, EndpointPolicy]:
        """The local endpoints, as of the last flush."""
        return MappingProxyType(self._endpoints)

    @property
    def sets(self) -> Mapping[str, SetKind]:
        """The sets in use, as of the last flush."""
        return self._sets.kinds

    def endpoint(self, key: ResourceKey) -> EndpointPolicy | None:
        """What decides about a local endpoint, as of the last flush."""
        return self._endpoints.get(key)

    def members(self, set_id: str) -> frozenset[str]:
        """The members of a set as of the last flush. Raises KeyError for an unknown set."""
        return self._sets.members(set_id)

    def figures(self) -> dict[str, int]:
        """Plain numbers for metrics."""
        return {
            "policies": len(self._stored),
            "active_policies": len(self._programs.told),
            "active_profiles": len(self._profiles.told),
            "active_selectors": self._sets.selectors + self._active.selectors,
            "sets": len(self._sets),
            "members": self._sets.size,
            "endpoints": len(self._endpoints),
            "conditions": len(self.conditions),
        }

    @property
    def dirty(self) -> bool:
        """Whether a flush has anything to settle."""
        return self._in_sync and bool(
            self._stale
            or self._stale_profiles
            or self._active.changed
            or self._active.dirty
            or self._programs.dirty
            or self._profiles.dirty
            or self._sets.dirty
        )

    def update(self, key: ResourceKey, value: Any) -> bool:
        """Take one object of `KINDS`, None for a deletion; returns whether to flush.

        A workload endpoint of this node may come this way (tests) or by `put_local`.
        """
        match key.kind:
            case "WorkloadEndpoint":
                self._workload(key, value)
            case "NetworkSet" | "GlobalNetworkSet":
                self._remote(key, None if value is None else of_network_set(key, value))
            case "NetworkPolicy" | "GlobalNetworkPolicy":
                self._put_policy(key, value)
            case "Profile":
                self._put_profile(key.name, value)
            case "Tier":
                self._active.put_tier(key.name, None if value is None else tier_facts(value))
        return self.dirty

    def put_local(self, key: ResourceKey, endpoint: Endpoint | None) -> bool:
        """An endpoint of this node is so now; None: it is gone. Returns whether to flush."""
        item = None if endpoint is None else of_local(endpoint)
        old = self._local.get(key)
        if item is not None:
            self.conditions.pop(key, None)
            self._local[key] = item
        elif old is not None:
            del self._local[key]
        self._sets.put(key, item)
        self._use_profiles(key, old.profiles if old else (), item.profiles if item else ())
        if self._in_sync:
            self._active.put_endpoint(key, item)
        return self.dirty

    def flush(self) -> PolicyChanges:
        """The differences since the last flush; nothing before `start`."""
        changes = PolicyChanges()
        if not self._in_sync:
            return changes
        self._settle_policies()
        for name in self._stale_profiles:
            self._settle_profile(name)
        self._stale_profiles.clear()
        changes.sets = self._sets.flush()
        changes.policies = self._programs.flush()
        changes.profiles = self._profiles.flush()
        changes.endpoints = self._flush_endpoints()
        return changes

    def _workload(self, key: ResourceKey, value: Any) -> None:
        if value is not None and value.spec.node == self.node:
            self.put_local(key, from_resource(key, value))
            return
        if key in self._local:
            self.put_local(key, None)
        self._remote(key, None if value is None else of_remote(key, value))

    def _remote(self, key: ResourceKey, read: tuple[Item, str] | None) -> None:
        item, trouble = read or (None, "")
        self._say(key, trouble)
        self._sets.put(key, item)

    def _put_policy(self, key: ResourceKey, policy: Policy | None) -> None:
        if policy is None:
            self._stored.pop(key, None)
            self._say(key, "")
        elif self._stored.get(key) == policy:
            return
        else:
            self._stored[key] = policy
        if self._in_sync:
            self._stale.add(key)
            self._active.put_policy(key, None if policy is None else facts_of(key, policy))

    def _put_profile(self, name: str, profile: Profile | None) -> None:
        if name == DEFAULT_ALLOW:
            profile = default_allow()
        before = self._stored_profiles.get(name)
        if before == profile:
            return
        if profile is None:
            del self._stored_profiles[name]
        else:
            self._stored_profiles[name] = profile
        labels = None if profile is None else labels_to_apply(profile.spec.labelsToApply)
        self._sets.set_profile(name, labels)
        self._active.set_profile(name, labels)
        if _rules(before) != _rules(profile):
            self._stale_profiles.add(name)

    def _use_profiles(
        self, key: ResourceKey, before: tuple[str, ...], after: tuple[str, ...]
    ) -> None:
        for name in set(before) - set(after):
            users = self._profile_users[name]
            users.discard(key)
            if not users:
                del self._profile_users[name]
                self._stale_profiles.add(name)
        for name in set(after) - set(before):
            if name not in self._profile_users:
                self._stale_profiles.add(name)
            self._profile_users.setdefault(name, set()).add(key)

    def _settle_policies(self) -> None:
        changed, self._active.changed = self._active.changed, set()
        for key in changed | self._stale:
            policy = self._stored.get(key)
            if policy is None:
                self._programs.remove(key)
                continue
            active = self._active.is_active(key)
            if key not in self._stale and active == (key in self._programs):
                continue
            if key not in self._stale and not active:
                self._programs.remove(key)
                continue
            facts = facts_of(key, policy)
            resolved, rules, condition = resolve_policy(facts, policy)
            self.operations.rules += len(rules.rules)
            self._say(key, condition)
            if active:
                self._programs.put(key, resolved, rules.needs)
            else:
                self._programs.remove(key)
        self._stale.clear()

    def _settle_profile(self, name: str) -> None:
        key = ResourceKey("Profile", name)
        if name not in self._profile_users:
            self._profiles.remove(name)
            self._say(key, "")
            return
        profile = self._stored_profiles.get(name)
        if profile is None:
            self._profiles.put(name, closed(key, "", missing=True), ())
            self._say(key, "it does not exist: the endpoints that name it are closed by it")
            return
        try:
            ingress = resolve(profile.spec.ingress, "spec.ingress")
            egress = resolve(profile.spec.egress, "spec.egress")
        except InvalidValue as error:
            self._profiles.put(name, closed(key, ""), ())
            self._say(key, f"{error}; closed")
            return
        rules = joined(ingress, egress)
        self.operations.rules += len(rules.rules)
        self._profiles.put(name, ResolvedPolicy(key, "", ingress.rules, egress.rules), rules.needs)
        self._say(key, unenforced(rules))

    def _flush_endpoints(self) -> dict[ResourceKey, EndpointPolicy | None]:
        changes: dict[ResourceKey, EndpointPolicy | None] = {}
        views: Views = {}
        dirty, self._active.dirty = self._active.dirty, set()
        for key in dirty:
            view = self._active.view(key, views)
            if view == self._endpoints.get(key):
                continue
            changes[key] = view
            if view is None:
                del self._endpoints[key]
            else:
                self._endpoints[key] = view
        return changes

    def _say(self, key: ResourceKey, condition: str) -> None:
        if condition:
            self.conditions[key] = condition
        else:
            self.conditions.pop(key, None)


def _rules(profile: Profile | None) -> object:
    return None if profile is None else (profile.spec.ingress, profile.spec.egress)
