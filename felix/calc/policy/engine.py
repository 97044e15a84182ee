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

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from felix.calc.endpoints import Endpoint, from_resource
from felix.calc.policy.conditions import Conditions
from felix.calc.policy.endpoint_policies import EndpointPolicies
from felix.calc.policy.facts import Policy, labels_to_apply
from felix.calc.policy.host_facts import host_facts
from felix.calc.policy.large import LargePolicies
from felix.calc.policy.policy_lists import tier_facts
from felix.calc.policy.policy_order import HOST_ENDPOINT, ActivePolicies
from felix.calc.policy.policy_rules import PolicyRules
from felix.calc.policy.profile_rules import ProfileRules
from felix.calc.policy.staged import STAGED_KINDS, Staged, StagedPolicies
from felix.calc.policy_model import (
    EndpointPolicy,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    SetKind,
)
from felix.calc.services import ServiceSlice, SliceKey
from felix.calc.sets.items import Item, of_local, of_network_set, of_remote
from felix.calc.sets.places import EndpointPlaces
from felix.calc.sets.population import Members
from felix.calc.sets.remote import RemoteEndpoints
from felix.calc.sets.service_sets import Need, NeededSets, ServiceNeed, ServiceSets
from felix.calc.sets.set_table import SetTable, name_of
from felix.calc.work_counters import WorkCounters
from libcalico.model import HostEndpoint as StoredHostEndpoint
from libcalico.model import Profile, ResourceKey, WorkloadEndpoint
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
"""The kinds of objects that the engine reads."""
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
        self.conditions = Conditions()
        self.large = LargePolicies()
        self._in_sync = self._flushed = False
        self._selected = SetTable(self.operations)
        self._services = ServiceSets()
        self._sets = NeededSets(self._selected, self._services)
        self._order = ActivePolicies(self.operations)
        self._policies = PolicyRules(
            self._order, self._sets, self.large, self.conditions, self.operations
        )
        self._profiles = ProfileRules(self._sets, self.conditions, self.operations)
        self._endpoints = EndpointPolicies(self._order, self.large)
        self._staged = StagedPolicies(self._feed_staged, self._sets, self.conditions)
        self.places = EndpointPlaces(self._selected.population)
        self.remote = RemoteEndpoints(
            self._selected, self.places, self._endpoints.names, self.conditions.report
        )
        self._put_profile(DEFAULT_ALLOW, default_allow())

    # -- results -------------------------------------------------------------------------------

    @property
    def in_sync(self) -> bool:
        """Whether the datastore has been read whole."""
        return self._in_sync

    @property
    def flushed(self) -> bool:
        """Whether there was a flush: the first one returns the whole."""
        return self._flushed

    @property
    def policies(self) -> Mapping[ResourceKey, ResolvedPolicy]:
        """The active policies, as of the last flush."""
        return self._policies.flushed

    @property
    def profiles(self) -> Mapping[str, ResolvedPolicy]:
        """The profiles in use, as of the last flush."""
        return self._profiles.flushed

    @property
    def endpoints(self) -> Mapping[ResourceKey, EndpointPolicy]:
        """The local workload endpoints, as of the last flush."""
        return self._endpoints.flushed

    @property
    def host_endpoints(self) -> Mapping[ResourceKey, HostEndpoint]:
        """The host endpoints of this node, as of the last flush."""
        return self._endpoints.hosts

    @property
    def sets(self) -> Mapping[str, SetKind]:
        """The sets in use, as of the last flush."""
        return self._sets.kinds

    @property
    def staged(self) -> Mapping[ResourceKey, Staged]:
        """The staged policies. A flush returns nothing of them."""
        return self._staged.policies()

    def would_be(self, key: ResourceKey) -> EndpointPolicy | None:
        """What would decide about an endpoint of this node were the staged policies in force."""
        return self._staged.would_be(key, self._order)

    def stored(self, key: ResourceKey) -> Policy | Profile | None:
        """A policy or profile as it is stored, of a staged one what it would become; None if there
        is none.
        """
        if key.kind in STAGED_KINDS:
            return self._staged.would_become(key)
        return self._profiles.get(key.name) if key.kind == "Profile" else self._policies.get(key)

    def endpoint(self, key: ResourceKey) -> EndpointPolicy | None:
        """What decides about a local endpoint, as of the last flush."""
        return self._endpoints.flushed.get(key)

    def members(self, set_id: str) -> frozenset[str]:
        """The members of a set as of the last flush. Raises KeyError for an unknown set."""
        return self._sets.members(set_id)

    def need(self, set_id: str) -> Need | None:
        """What a set holds, by its id; None for one that no policy in force needs."""
        return self._sets.need(set_id)

    def service_endpoints(self, need: ServiceNeed) -> frozenset[str]:
        """The endpoints of a service as a set of this need would hold them now."""
        return self._sets.endpoints(need)

    @property
    def names_services(self) -> bool:
        """Whether any stored rule, staged ones too, names a service, so that slices are needed."""
        return (
            self._policies.name_services
            or self._profiles.name_services
            or self._staged.name_services
        )

    @property
    def knows_services(self) -> bool:
        """Whether rules rely on services now."""
        return self._sets.services_known

    def figures(self) -> dict[str, int]:
        """Plain numbers for metrics."""
        return {
            "policies": len(self._policies),
            "active_policies": len(self.policies),
            "active_profiles": len(self.profiles),
            "active_selectors": self._selected.selectors + self._order.selectors,
            "sets": len(self._sets),
            "members": self._sets.size,
            "endpoints": len(self.endpoints),
            "host_endpoints": len(self.host_endpoints),
            "staged_policies": len(self._staged),
            "active_staged_policies": self._staged.active_policies,
            "staged_matches": self._staged.matches,
            "conditions": len(self.conditions),
        }

    # -- updates -------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether a flush has anything to settle."""
        return self._in_sync and bool(
            self._policies.dirty or self._order.dirty or self._profiles.dirty or self._sets.dirty
        )

    def start(self) -> None:
        """Begin to match: the datastore has been read whole."""
        if self._in_sync:
            return
        self._in_sync = True
        self._policies.start()
        for key, item in self._endpoints.items.items():
            self._order.put_endpoint(key, item)

    def update(self, key: ResourceKey, value: Any) -> bool:
        """Read one object of `KINDS`, None for a deletion; returns whether to flush.

        A workload endpoint of this node may come this way (tests) or by `put_local`.
        """
        match key.kind:
            case "WorkloadEndpoint":
                self._put_workload(key, value)
            case "NetworkSet" | "GlobalNetworkSet":
                self._put_item(key, None if value is None else of_network_set(key, value))
            case "HostEndpoint":
                self._put_host(key, value)
            case "NetworkPolicy" | "GlobalNetworkPolicy":
                self._policies.put(key, value, match=self._in_sync)
            case _ if key.kind in STAGED_KINDS:
                self._staged.put(key, value)
            case "Profile":
                self._put_profile(key.name, value)
            case "Tier":
                self._order.put_tier(key.name, None if value is None else tier_facts(value))
        return self.dirty

    def put_local(self, key: ResourceKey, endpoint: Endpoint | None) -> bool:
        """Add or change an endpoint of this node; None removes it. Returns whether to flush."""
        if endpoint is not None:
            self.conditions.pop(key, None)
        self._endpoints.put_container(key, None if endpoint is None else endpoint.container_id)
        before = self.places.members(name_of(key))
        self._put_local_item(key, None if endpoint is None else of_local(endpoint))
        self._place(key, "" if endpoint is None else self.node, before)
        return self.dirty

    def put_slice(self, key: SliceKey, value: ServiceSlice | None) -> bool:
        """Add or change a slice of a service; None removes it. Returns whether to flush."""
        self._services.put(key, value)
        return self.dirty

    def services_known(self, known: bool) -> bool:
        """Say whether all slices have been read: until then no rule relies on them (ENG-4)."""
        if self._services.known != known:
            self._services.known = known
            for rules in (self._policies, self._profiles, self._staged):
                rules.services_changed()
        return self.dirty

    def _put_workload(self, key: ResourceKey, value: WorkloadEndpoint | None) -> None:
        if value is not None and value.spec.node == self.node:
            self.put_local(key, from_resource(key, value))
            return
        if key in self._endpoints:
            self.put_local(key, None)
        before = self.places.members(name_of(key))
        self._put_item(key, None if value is None else of_remote(key, value))
        self._place(key, "" if value is None else value.spec.node, before)

    def _place(self, key: ResourceKey, node: str, before: Members) -> None:
        item = self._selected.population.numbers.get(name_of(key))
        if item is None:
            self.places.left(before)
        else:
            self.places.put(item, node, before)

    def _put_host(self, key: ResourceKey, value: StoredHostEndpoint | None) -> None:
        facts, problem = (None, "") if value is None else host_facts(key, value)
        self.conditions.report(key, problem)
        local = facts if facts is not None and facts.node == self.node else None
        self._endpoints.put_host(key, local)
        if local is not None or key in self._endpoints:
            self._put_local_item(key, None if local is None else local.item)
        if local is None:
            self._selected.put(key, None if facts is None else facts.item)

    def _put_local_item(self, key: ResourceKey, item: Item | None) -> None:
        before = self._endpoints.put(key, item)
        self._selected.put(key, item)
        self._profiles.use(key, before.profiles if before else (), item.profiles if item else ())
        self._staged.put_endpoint(key, item)
        if self._in_sync:
            self._order.put_endpoint(key, item)

    def _put_item(self, key: ResourceKey, read: tuple[Item, str] | None) -> None:
        item, problem = read or (None, "")
        self.conditions.report(key, problem)
        self._selected.put(key, item)

    def _put_profile(self, name: str, profile: Profile | None) -> None:
        if name == DEFAULT_ALLOW:
            profile = default_allow()
        if self._profiles.put(name, profile):
            labels = None if profile is None else labels_to_apply(profile.spec.labelsToApply)
            for index in (self._selected, self._order, self._staged):
                index.set_profile(name, labels)

    def _feed_staged(self, index: ActivePolicies) -> None:
        for name, labels in self._profiles.inherited_labels():
            index.set_profile(name, labels)
        for key, item in self._endpoints.items.items():
            index.put_endpoint(key, item)

    # -- work ----------------------------------------------------------------------------------

    def settle(self) -> Iterator[None]:
        """Do what is pending, in slices of some milliseconds; a loop may work between two.

        Updates may come between two slices. `flush` does what is left, so the call is a courtesy.
        """
        spent = 0
        while work := self._step():
            spent += work
            if spent >= SLICE:
                spent = 0
                yield
        # Once each: should a change make some of it void, the flush computes that again.
        for key in list(self._order.dirty) if self._in_sync else ():
            spent += 1000 * self._order.prepare(key)
            if spent >= SLICE:
                spent = 0
                yield

    def _step(self) -> int:
        """Do one thing that is pending; returns what it cost, in about microseconds."""
        if not self._in_sync:
            return 0
        return self._policies.step() or self._profiles.step() or self._selected.step()

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
        the next flush. Given up half-way, its differences are lost: ask for the whole.
        """
        changes = PolicyChanges()
        if not self._in_sync:
            return changes
        while self._step():
            pass
        self._flushed = True
        # Endpoints and policies at one moment, so that no endpoint has a policy that was not
        # flushed, or one that is gone.
        self._endpoints.flush(changes)
        kept = self._endpoints.kept()
        changes.policies = self._policies.flush({key for one in kept for key in one.policies()})
        changes.profiles = self._profiles.flush({name for one in kept for name in one.profiles})
        self._order.forget_lists()
        yield
        changes.sets = yield from self._sets.flush()
        return changes

    def preparing(self, warm: Callable[[ResolvedPolicy], Iterator[None]]) -> Iterator[None]:
        """Resolve large policies ahead of time, in steps (`PolicyRules.prepare`)."""
        return self._policies.prepare(warm)

    def take_at_once(self) -> None:
        """Prepare no policy ahead of time any more."""
        self._policies.stop_preparing()
