"""Staged policies: what would be if they were in force. Nothing of this is ever programmed.

A staged policy is read and resolved as the policy that it would become, and matched with the
local endpoints, so that metrics can tell how many it concerns, conditions what of it could not
be enforced, and explain what it would decide. It lives beside the enforced policies: it never
makes a set, a chain or a list of an endpoint.

Invariants:
  STG-1  What the engine tells does not depend on staged policies.
  STG-2  `would_be` of an endpoint is what the engine would tell if each `Set` policy were stored
         in place of its target and each target of a `Delete` were gone.
Tested in tests/felix/calc/policy/test_staged.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from felix.calc.policy.conditions import Conditions
from felix.calc.policy.facts import Policy, PolicyFacts, facts_of, names_services, resolve_policy
from felix.calc.policy.policy_order import HOST_ENDPOINT, ActivePolicies
from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy
from felix.calc.sets.items import Item
from felix.calc.sets.service_sets import Need, NeededSets
from felix.calc.work_counters import WorkCounters
from libcalico.conversion.network_policy import POLICY_PREFIX, network_policy
from libcalico.errors import InvalidValue
from libcalico.model import (
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
    ResourceKey,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
)

STAGED_KINDS = (
    "StagedGlobalNetworkPolicy",
    "StagedKubernetesNetworkPolicy",
    "StagedNetworkPolicy",
)
SET, DELETE = "Set", "Delete"
StagedResource = StagedNetworkPolicy | StagedGlobalNetworkPolicy | StagedKubernetesNetworkPolicy


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged policy: `target` is the policy that `action` is meant for.

    `facts` and `resolved` are those of the policy that it would become (of a `Delete`: none),
    `needs` the sets that its rules would name, `problem` what of it cannot be read or enforced.
    `endpoints` counts the local ones that it selects.
    """

    key: ResourceKey
    action: str
    target: ResourceKey
    facts: PolicyFacts | None = None
    resolved: ResolvedPolicy | None = None
    needs: tuple[Need, ...] = ()
    problem: str = ""
    endpoints: int = 0


Feed = Callable[[ActivePolicies], None]


class StagedPolicies:
    """The staged policies and the local endpoints that they select.

    `feed` hands a fresh index what it missed: it is asked when the first staged policy comes,
    so a cluster without any pays nothing.
    """

    def __init__(self, feed: Feed, sets: NeededSets, conditions: Conditions) -> None:
        self._feed, self._sets, self._conditions = feed, sets, conditions
        self._active: ActivePolicies | None = None
        self._stored: dict[ResourceKey, StagedResource] = {}
        self._with_services: set[ResourceKey] = set()
        self._staged: dict[ResourceKey, Staged] = {}
        self._targets: dict[ResourceKey, set[ResourceKey]] = {}

    def __len__(self) -> int:
        return len(self._staged)

    @property
    def matches(self) -> int:
        """How many pairs of a staged policy and a local endpoint that it selects there are."""
        active = self._active
        return 0 if active is None else sum(map(active.matches, self._staged))

    @property
    def active_policies(self) -> int:
        """How many staged policies select a local endpoint."""
        active = self._active
        return 0 if active is None else sum(map(active.is_active, self._staged))

    def policies(self) -> Mapping[ResourceKey, Staged]:
        """All of them, counted now."""
        active = self._active
        if active is None:
            return MappingProxyType({})
        return MappingProxyType(
            {key: replace(one, endpoints=active.matches(key)) for key, one in self._staged.items()}
        )

    def would_become(self, key: ResourceKey) -> Policy | None:
        """The policy that a staged one would become; None where it cannot be read or sets none."""
        value = self._stored.get(key)
        if value is None or (value.spec.stagedAction or SET) != SET:
            return None
        try:
            return becomes(value)[0]
        except InvalidValue:
            return None

    @property
    def name_services(self) -> bool:
        """Whether any staged policy names a service."""
        return bool(self._with_services)

    def put(self, key: ResourceKey, value: StagedResource | None) -> None:
        """Add or change a staged policy; None removes it."""
        self._stored.pop(key, None)
        if value is not None:
            self._stored[key] = value
        # A NetworkPolicy of Kubernetes knows no services.
        if isinstance(value, StagedKubernetesNetworkPolicy | None) or not names_services(value):
            self._with_services.discard(key)
        else:
            self._with_services.add(key)
        self._match(key, value)

    def services_changed(self) -> None:
        """Read all staged policies again."""
        for key, value in self._stored.items():
            self._match(key, value)

    def _match(self, key: ResourceKey, value: StagedResource | None) -> None:
        before = self._staged.pop(key, None)
        if before is not None:
            self._targets[before.target].discard(key)
        one = None if value is None else _read(key, value, services=self._sets.services_known)
        self._conditions.report(key, "" if one is None else one.problem)
        if one is not None:
            self._staged[key] = one
            self._targets.setdefault(one.target, set()).add(key)
            if self._active is None:
                self._active = ActivePolicies(WorkCounters())
                self._feed(self._active)
        if self._active is not None:
            self._active.put_policy(key, None if one is None else one.facts)
            self._forget_marks()

    def put_endpoint(self, key: ResourceKey, item: Item | None) -> None:
        """Add or change a local endpoint; None removes it."""
        if self._active is not None:
            self._active.put_endpoint(key, item)
            self._forget_marks()

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels that a profile hands down; None: it does not exist."""
        if self._active is not None:
            self._active.set_profile(name, labels)
            self._forget_marks()

    def would_be(self, key: ResourceKey, enforced: ActivePolicies) -> EndpointPolicy | None:
        """What would decide about a local endpoint; its lists name staged policies as such."""
        now = enforced.view(key)
        if now is None or self._active is None:
            return now
        kept = (f for f in enforced.matching(key) if not self._replaced(f.key))
        # Of the others than `Set` the index holds nothing.
        new = self._active.matching(key)
        lists = enforced.lists([*kept, *new], host=key.kind == HOST_ENDPOINT)
        return replace(lists, profiles=now.profiles)

    def _replaced(self, key: ResourceKey) -> bool:
        staged: Iterable[ResourceKey] = self._targets.get(key, ())
        return any(self._staged[one].action in (SET, DELETE) for one in staged)

    def _forget_marks(self) -> None:
        # This index is never flushed, so its marks have no reader.
        if self._active is not None:
            self._active.forget_marks()


def _read(key: ResourceKey, value: StagedResource, *, services: bool) -> Staged:
    action = value.spec.stagedAction or SET
    target = _target(key)
    if action != SET:
        known = action in (DELETE, "Learn", "Ignore")
        problem = "" if known else f"spec.stagedAction: {action!r}: must be Set or Delete"
        return Staged(key, action, target, problem=problem)
    try:
        policy, problem = becomes(value)
    except InvalidValue as error:
        return Staged(key, action, target, problem=f"{error}; would not be converted")
    facts = facts_of(key, policy)
    resolved, rules, condition = resolve_policy(facts, policy, services=services)
    problem = "; ".join(filter(None, (problem, condition)))
    return Staged(key, action, target, facts, resolved, rules.needs, problem)


def _target(key: ResourceKey) -> ResourceKey:
    if key.kind == "StagedKubernetesNetworkPolicy":
        return ResourceKey("NetworkPolicy", POLICY_PREFIX + key.name, key.namespace)
    return ResourceKey(key.kind.removeprefix("Staged"), key.name, key.namespace)


def becomes(value: StagedResource) -> tuple[Policy, str]:
    """The policy that it would become, and what is left out of it. Raises InvalidValue."""
    metadata, spec = value.metadata, value.spec
    match value:
        case StagedKubernetesNetworkPolicy():
            tree = msgspec.to_builtins(msgspec.structs.replace(spec, stagedAction=""))
            tree.pop("stagedAction", None)
            named = {"name": metadata.name, "namespace": metadata.namespace}
            policy, dropped = network_policy({"metadata": named, "spec": tree})
            return policy, "; ".join(f"{error}; left out" for error in dropped[:5])
        case StagedNetworkPolicy():
            own = NetworkPolicySpec
            fields = {name: getattr(spec, name) for name in own.__struct_fields__}
            return NetworkPolicy(metadata=metadata, spec=own(**fields)), ""
        case StagedGlobalNetworkPolicy():
            whole = GlobalNetworkPolicySpec
            fields = {name: getattr(spec, name) for name in whole.__struct_fields__}
            return GlobalNetworkPolicy(metadata=metadata, spec=whole(**fields)), ""
