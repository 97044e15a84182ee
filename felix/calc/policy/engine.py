"""The policy calculation of one node: stored objects in, differences for the data plane out.

Updates only feed the indexes and mark what may differ; `flush` settles what is marked and
tells the differences. Before the datastore has been read whole nothing is matched and
nothing told, so loading costs no more than filling the indexes.

Invariants:
  ENG-1  What was told in all flushes together depends on the objects only, not on their history.
  ENG-2  A set is told before a rule that names it, a policy before an endpoint that has it, and
         taken back in reverse (POL-2).
  ENG-3  An endpoint whose profile is not defined is closed by that profile, and a condition says
         so.
  ENG-4  Rules rely on services only while a source tells which endpoints stand behind them (SVC-1).
Tested in tests/felix/calc/policy/test_engine.py, test_model.py, test_semantics.py,
test_work_counters.py, test_hosts.py, test_services.py, test_staged.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from felix.calc.endpoints import Endpoint, from_resource
from felix.calc.policy.active_rules import ActiveRules
from felix.calc.policy.facts import (
    Policy,
    closed,
    facts_of,
    joined,
    labels_to_apply,
    names_services,
    resolve_policy,
    unenforced,
)
from felix.calc.policy.host_facts import host_facts
from felix.calc.policy.hosts import HostTable
from felix.calc.policy.large import LargePolicies
from felix.calc.policy.policy_order import HOST_ENDPOINT, ActivePolicies, tier_facts
from felix.calc.policy.rules import reading, resolve
from felix.calc.policy.staged import STAGED_KINDS, Staged, StagedPolicies, StagedResource
from felix.calc.policy.stored import StoredPolicies
from felix.calc.policy_model import (
    EndpointPolicy,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    SetKind,
)
from felix.calc.services import ServiceSlice, SliceKey
from felix.calc.sets.items import Item, of_local, of_network_set, of_remote
from felix.calc.sets.remote import RemoteEndpoints
from felix.calc.sets.service_sets import NeededSets, ServiceSets
from felix.calc.sets.set_table import SetTable, name_of
from felix.calc.work_counters import WorkCounters
from libcalico.errors import InvalidValue
from libcalico.model import Profile, ResourceKey, StagedKubernetesNetworkPolicy
from libcalico.model.resources.profile import DEFAULT_ALLOW, default_allow

KINDS = (
    "GlobalNetworkPolicy",
    "GlobalNetworkSet",
    HOST_ENDPOINT,
    "NetworkPolicy",
    "NetworkSet",
    "Profile",
    *STAGED_KINDS,
    "Tier",
    "WorkloadEndpoint",
)
"""What the engine takes."""
SLICE = 4000
"""Microseconds, about, after which `settle` lets others work."""


class PolicyEngine:
    """Policies, profiles, tiers, network sets, services and all endpoints, seen from one node.

    `conditions` names every object that is broken or not enforced in full. `operations`
    counts work. `remote` takes other nodes' endpoints as they are stored.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.operations = WorkCounters()
        self.conditions: dict[ResourceKey, str] = {}
        self._in_sync = self._told = False
        self._sets = SetTable(self.operations)
        self._services = ServiceSets()
        self._services_known = False
        self._needed = NeededSets(self._sets, self._services)
        self._active = ActivePolicies(self.operations)
        self._hosts = HostTable()
        self._staged = StagedPolicies(self._feed_staged)
        self.large = LargePolicies()
        self._stored = StoredPolicies()
        self._stored_profiles: dict[str, Profile] = {}
        self._stored_staged: dict[ResourceKey, StagedResource] = {}
        self._with_services: set[ResourceKey] = set()
        self._local: dict[ResourceKey, Item] = {}
        self._local_names: set[Hashable] = set()
        self._containers: dict[ResourceKey, str] = {}
        self._renewed: set[ResourceKey] = set()
        """Local endpoints that are another container's since the last flush."""
        self.remote = RemoteEndpoints(self._sets, self._local_names, self._say)
        self._profile_users: dict[str, set[ResourceKey]] = {}
        self._unread: list[ResourceKey] = []
        self._stale: set[ResourceKey] = set()
        self._stale_profiles: set[str] = set()
        self._programs: ActiveRules[ResourceKey] = ActiveRules(self._needed)
        self._profiles: ActiveRules[str] = ActiveRules(self._needed)
        self._endpoints: dict[ResourceKey, EndpointPolicy] = {}
        self._put_profile(DEFAULT_ALLOW, default_allow())

    @property
    def in_sync(self) -> bool:
        """Whether the datastore has been read whole."""
        return self._in_sync

    @property
    def told(self) -> bool:
        """Whether anything was told: the first flush tells the whole."""
        return self._told

    def start(self) -> None:
        """The datastore has been read whole: matching begins."""
        if self._in_sync:
            return
        self._in_sync = True
        self._unread.extend(self._stored)
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
    def names_services(self) -> bool:
        """Whether any stored rule, staged ones too, names a service: somebody should read them."""
        return bool(self._stored.with_services or self._with_services)

    @property
    def endpoints(self) -> Mapping[ResourceKey, EndpointPolicy]:
        """The local endpoints, as of the last flush."""
        return MappingProxyType(self._endpoints)

    @property
    def sets(self) -> Mapping[str, SetKind]:
        """The sets in use, as of the last flush."""
        return self._needed.kinds

    @property
    def host_endpoints(self) -> Mapping[ResourceKey, HostEndpoint]:
        """The host endpoints of this node, as of the last flush."""
        return self._hosts.told

    @property
    def staged(self) -> Mapping[ResourceKey, Staged]:
        """The staged policies: none of them is in what a flush tells."""
        return self._staged.policies()

    def would_be(self, key: ResourceKey) -> EndpointPolicy | None:
        """What would decide about an endpoint of this node were the staged policies in force."""
        return self._staged.would_be(key, self._active)

    def stored(self, key: ResourceKey) -> Policy | Profile | None:
        """A policy or profile as it is stored; None if there is none."""
        if key.kind == "Profile":
            return self._stored_profiles.get(key.name)
        return self._stored.get(key)

    def endpoint(self, key: ResourceKey) -> EndpointPolicy | None:
        """What decides about a local endpoint, as of the last flush."""
        return self._endpoints.get(key)

    def members(self, set_id: str) -> frozenset[str]:
        """The members of a set as of the last flush. Raises KeyError for an unknown set."""
        return self._needed.members(set_id)

    def figures(self) -> dict[str, int]:
        """Plain numbers for metrics."""
        return {
            "policies": len(self._stored),
            "active_policies": len(self._programs.told),
            "active_profiles": len(self._profiles.told),
            "active_selectors": self._sets.selectors + self._active.selectors,
            "sets": len(self._needed),
            "members": self._needed.size,
            "endpoints": len(self._endpoints),
            "host_endpoints": len(self._hosts.told),
            "staged_policies": len(self._staged),
            "active_staged_policies": self._staged.active_policies,
            "staged_matches": self._staged.matches,
            "conditions": len(self.conditions),
        }

    @property
    def dirty(self) -> bool:
        """Whether a flush has anything to settle."""
        return self._in_sync and bool(
            self._unread
            or self._stale
            or self._stale_profiles
            or self._active.changed
            or self._active.dirty
            or self._programs.dirty
            or self._profiles.dirty
            or self._needed.dirty
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
            case "HostEndpoint":
                self._host(key, value)
            case "NetworkPolicy" | "GlobalNetworkPolicy":
                self._put_policy(key, value)
            case _ if key.kind in STAGED_KINDS:
                self._stored_staged.pop(key, None)
                if value is not None:
                    self._stored_staged[key] = value
                self._say(key, self._staged.put(key, value, services=self._services_known))
                self._note_services(key, value)
            case "Profile":
                self._put_profile(key.name, value)
            case "Tier":
                self._active.put_tier(key.name, None if value is None else tier_facts(value))
        return self.dirty

    def put_local(self, key: ResourceKey, endpoint: Endpoint | None) -> bool:
        """An endpoint of this node is so now; None: it is gone. Returns whether to flush."""
        before = self._containers.pop(key, "")
        if endpoint is not None:
            self.conditions.pop(key, None)
            self._containers[key] = endpoint.container_id
            if before and endpoint.container_id not in ("", before):
                self._renewed.add(key)
        self._put_local_item(key, None if endpoint is None else of_local(endpoint))
        return self.dirty

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        """A slice of a service is so now; None: it is gone. Returns whether to flush."""
        self._services.put(key, value)
        return self.dirty

    @property
    def knows_services(self) -> bool:
        """Whether rules rely on services now."""
        return self._services_known

    def services_known(self, known: bool) -> bool:
        """Whether all slices have been told: until then no rule relies on them."""
        if self._services_known != known:
            self._services_known = known
            self._stale |= self._stored.with_services
            self._stale_profiles |= {
                name for name, one in self._stored_profiles.items() if names_services(one)
            }
            for key, value in self._stored_staged.items():
                self._say(key, self._staged.put(key, value, services=known))
        return self.dirty

    def settle(self) -> Iterator[None]:
        """Do what is pending in slices of some milliseconds; whoever loops may yield between.

        Updates may come between two slices. `flush` does what is left, so to settle first is
        only to be polite.
        """
        spent = 0
        while work := self._step():
            spent += work
            if spent >= SLICE:
                spent = 0
                yield
        # Once each: should a change make some of it void, the flush computes that again.
        for key in list(self._active.dirty) if self._in_sync else ():
            spent += 1000 * self._active.prepare(key)
            if spent >= SLICE:
                spent = 0
                yield

    def _step(self) -> int:
        """Do one thing that is pending; returns what it cost, in about microseconds."""
        if not self._in_sync:
            return 0
        if self._unread:
            key = self._unread.pop()
            policy = self._stored.get(key)
            if policy is not None:
                self._active.put_policy(key, facts_of(key, policy))
                self._settle_policy(key, policy)
            self._active.changed.discard(key)
            return 100
        if self._stale:
            key = self._stale.pop()
            self._active.changed.discard(key)
            self._settle_policy(key, self._stored.get(key))
            return 100
        if self._active.changed:
            key = self._active.changed.pop()
            if not self._active.is_active(key):
                self._programs.remove(key)
            elif key not in self._programs:
                self._settle_policy(key, self._stored.get(key))
            return 100
        if self._stale_profiles:
            self._settle_profile(self._stale_profiles.pop())
            return 100
        return self._sets.step()

    def flush(self) -> PolicyChanges:
        """The differences since the last flush; nothing before `start`."""
        steps = self.flushing()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                changes: PolicyChanges = end.value
                return changes

    def flushing(self) -> Generator[None, None, PolicyChanges]:
        """The same in steps. Updates may come between two; but for members of sets they are for
        the next flush. Given up half-way, what was to be told is lost: ask for the whole.
        """
        changes = PolicyChanges()
        if not self._in_sync:
            return changes
        for _ in self.settle():
            pass
        self._told = True
        # Endpoints and policies at one moment, so that none has a policy that was not told, or
        # one that is gone.
        self._flush_endpoints(changes)
        kept = [policy for key in self.large.held if (policy := self._told_of(key)) is not None]
        changes.policies = self._programs.flush({key for one in kept for key in one.policies()})
        changes.profiles = self._profiles.flush({name for one in kept for name in one.profiles})
        self._active.forget_lists()
        yield
        changes.sets = yield from self._needed.flush()
        return changes

    def _workload(self, key: ResourceKey, value: Any) -> None:
        if value is not None and value.spec.node == self.node:
            self.put_local(key, from_resource(key, value))
            return
        if key in self._local:
            self.put_local(key, None)
        self._remote(key, None if value is None else of_remote(key, value))

    def _host(self, key: ResourceKey, value: Any) -> None:
        facts, trouble = (None, "") if value is None else host_facts(key, value)
        self._say(key, trouble)
        mine = facts if facts is not None and facts.node == self.node else None
        if self._hosts.put(key, mine):
            self._active.dirty.add(key)
        if mine is not None or key in self._local:
            self._put_local_item(key, None if mine is None else mine.item)
        if mine is None:
            self._sets.put(key, None if facts is None else facts.item)

    def _put_local_item(self, key: ResourceKey, item: Item | None) -> None:
        old = self._local.get(key)
        if item is not None:
            self._local[key] = item
            self._local_names.add(name_of(key))
        elif old is not None:
            del self._local[key]
            self._local_names.discard(name_of(key))
        self._sets.put(key, item)
        self._use_profiles(key, old.profiles if old else (), item.profiles if item else ())
        self._staged.put_endpoint(key, item)
        if self._in_sync:
            self._active.put_endpoint(key, item)

    def _feed_staged(self, index: ActivePolicies) -> None:
        for name, profile in self._stored_profiles.items():
            index.set_profile(name, labels_to_apply(profile.spec.labelsToApply))
        for key, item in self._local.items():
            index.put_endpoint(key, item)

    def _remote(self, key: ResourceKey, read: tuple[Item, str] | None) -> None:
        item, trouble = read or (None, "")
        self._say(key, trouble)
        self._sets.put(key, item)

    def _put_policy(self, key: ResourceKey, policy: Policy | None) -> None:
        if policy is None:
            self._stored.remove(key)
            self._say(key, "")
        elif not self._stored.put(key, policy):
            return
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
        self._note_services(ResourceKey("Profile", name), profile)
        labels = None if profile is None else labels_to_apply(profile.spec.labelsToApply)
        self._sets.set_profile(name, labels)
        self._active.set_profile(name, labels)
        self._staged.set_profile(name, labels)
        if _rules(before) != _rules(profile):
            self._stale_profiles.add(name)

    def _note_services(self, key: ResourceKey, value: Profile | StagedResource | None) -> None:
        # A NetworkPolicy of Kubernetes knows no services.
        if isinstance(value, StagedKubernetesNetworkPolicy | None) or not names_services(value):
            self._with_services.discard(key)
        else:
            self._with_services.add(key)

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

    def _settle_policy(self, key: ResourceKey, policy: Policy | None) -> None:
        facts = self._active.facts(key)
        if policy is None or facts is None:
            self.large.forget(key)
            self._programs.remove(key)
            return
        if self.large.defers(key, policy, self._version(key)):
            return
        resolved, rules, condition = resolve_policy(facts, policy, services=self._services_known)
        self.operations.rules += len(rules.rules)
        self._say(key, condition)
        if self._active.is_active(key):
            self._programs.put(key, resolved, rules.needs)
        else:
            self._programs.remove(key)

    def take_at_once(self) -> None:
        """No policy is prepared ahead any more."""
        self.large.wake = None
        self._stale |= self.large.waiting()

    def _version(self, key: ResourceKey) -> tuple[object, bool]:
        return self._stored.version(key), self._services_known

    def preparing(self, warm: Callable[[ResolvedPolicy], Iterator[None]]) -> Iterator[None]:
        """Read the rules of large policies ahead, in steps (felix.calc.policy.large); `warm` does
        the same for what comes after, in steps too. Updates may come between two.
        """
        while (key := self.large.next()) is not None:
            policy, facts, version = (
                self._stored.get(key),
                self._active.facts(key),
                self._version(key),
            )
            if policy is not None and facts is not None:
                known, spec = self._services_known, policy.spec
                for field, rules in (("spec.ingress", spec.ingress), ("spec.egress", spec.egress)):
                    yield from reading(rules, field, key.namespace, services=known)
                yield
                resolved, _, _ = resolve_policy(facts, policy, services=known)
                yield
                yield from warm(resolved)
            self.large.prepared(key, version)
            self._stale.add(key)
            yield

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
            known = self._services_known
            ingress = resolve(profile.spec.ingress, "spec.ingress", services=known)
            egress = resolve(profile.spec.egress, "spec.egress", services=known)
        except InvalidValue as error:
            self._profiles.put(name, closed(key, ""), ())
            self._say(key, f"{error}; closed")
            return
        rules = joined(ingress, egress)
        self.operations.rules += len(rules.rules)
        self._profiles.put(name, ResolvedPolicy(key, "", ingress.rules, egress.rules), rules.needs)
        self._say(key, unenforced(rules))

    def _flush_endpoints(self, changes: PolicyChanges) -> None:
        self._active.dirty.update(self.large.release())
        renewed, self._renewed = self._renewed, set()
        for key in self._active.take_dirty():
            view = self._active.view(key)
            if self.large.holds(key, view):
                if key in renewed and self._endpoints.pop(key, None) is not None:
                    # It would start with what the container before it had (LRG-1).
                    changes.endpoints[key] = None
                continue
            if key.kind == HOST_ENDPOINT:
                self._hosts.settle(key, view, changes.host_endpoints)
                continue
            if view == self._endpoints.get(key):
                continue
            changes.endpoints[key] = view
            if view is None:
                del self._endpoints[key]
            else:
                self._endpoints[key] = view

    def _told_of(self, key: ResourceKey) -> EndpointPolicy | None:
        host = self._hosts.told.get(key)
        return host.policy if host is not None else self._endpoints.get(key)

    def _say(self, key: ResourceKey, condition: str) -> None:
        if condition:
            self.conditions[key] = condition
        else:
            self.conditions.pop(key, None)


def _rules(profile: Profile | None) -> object:
    return None if profile is None else (profile.spec.ingress, profile.spec.egress)
