"""The moving part of the rules: chains of policies, profiles, endpoints, dispatch.

What the calculation says is kept as it came; a chain is rendered when it comes or changes, and
only while an endpoint's chain names it. So a change costs what it touches: a pod two chains and
two rules of dispatch, a policy its own two chains, however many endpoints it serves. Workloads
have chains in filter; host endpoints (felix.dataplane.hostbook) in raw and mangle too.

Invariants:
  RBK-1  Every chain that a wanted chain names is wanted; a policy that is named but unknown
         denies.
  RBK-2  A policy that needs a set which the kernel does not hold as wanted is rendered without
         trust in it (POL-1), and as it should be once the set is right.
  RBK-3  A policy's chain that the kernel refuses denies everything until it is another, or is
         taken; no other chain suffers.
Tested in tests/felix/test_rulebook.py and, with a kernel, test_policy_packets.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from felix.calc.policy_model import (
    EndpointPolicy,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    ResolvedRule,
)
from felix.dataplane.hostbook import HostBook
from felix.rules import names
from felix.rules.dispatch import Bins
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.model import Chain, Rule
from felix.rules.policy import policy_chains
from felix.rules.static import RuleSettings
from libcalico.model.keys import ResourceKey

MOST_TEXTS = 1000
"""Rendered endpoints that are remembered."""
FILTER = "filter"
Place = tuple[int, str]
"""A family (4 or 6) and one of its tables, by name."""
Use = tuple[ResourceKey, str, str]
"""A policy or profile, the prefix of the chain that is named, and the table."""


class ChainTarget(Protocol):
    """What is told: one table of one family."""

    def want(self, chain: Chain) -> None:
        """A chain, whole."""

    def unwant(self, name: str) -> None:
        """Nobody wants this chain any more."""


class Dispatch(Protocol):
    """The chains from an interface to its endpoint; `felix.rules.dispatch.Bins` is one."""

    def add(self, interface: str) -> list[Chain]:
        """An endpoint came: the chains that differ now, whole."""

    def remove(self, interface: str) -> tuple[list[Chain], list[str]]:
        """An endpoint left: the chains that differ now, and the names of those that are gone."""

    def all(self) -> list[Chain]:
        """Every chain."""


class RuleBook:
    """The chains of policies and endpoints in every table of both families."""

    def __init__(
        self,
        targets: Mapping[Place, ChainTarget],
        settings: RuleSettings,
        bins: Callable[[tuple[str, ...]], Dispatch] = Bins,
    ) -> None:
        self._targets = targets
        self._settings = settings
        self._policies: dict[ResourceKey, ResolvedPolicy] = {}
        self._needs: dict[ResourceKey, frozenset[str]] = {}
        self._endpoints: dict[str, EndpointPolicy] = {}
        self._new_bins = bins
        self._bins = bins(settings.prefixes)
        # An endpoint's chains do not name it: pods of one kind share their rules.
        self._shared: dict[EndpointPolicy, tuple[tuple[Rule, ...], ...]] = {}
        self._users: Counter[Use] = Counter()
        self._unusable: frozenset[str] = frozenset()
        self._owners: dict[str, ResourceKey] = {}
        self._refused: dict[tuple[Place, str], tuple[Chain, str]] = {}
        self._hosts = HostBook(targets)
        self.renders = 0

    @property
    def endpoints(self) -> Mapping[str, EndpointPolicy]:
        """The endpoints that have chains, by interface."""
        return self._endpoints

    @property
    def policies(self) -> frozenset[ResourceKey]:
        """The policies and profiles that were told and not taken back."""
        return frozenset(self._policies)

    @property
    def unusable(self) -> frozenset[str]:
        """Sets in use that the kernel does not hold as wanted."""
        return self._unusable

    def chains_of(self, interface: str) -> list[str]:
        """The chains that judge an endpoint: its own and those they name."""
        named = _named(self._endpoints[interface])
        return _own(interface) + [names.policy_chain(prefix, key) for key, prefix, _ in named]

    # -- policies ------------------------------------------------------------------------------

    def take(self, changes: PolicyChanges) -> None:
        """New and changed policies and profiles; call `forget` once the endpoints are told."""
        for policy in (*changes.policies.values(), *changes.profiles.values()):
            if policy is not None and self._policies.get(policy.key) != policy:
                self._policies[policy.key] = policy
                self._needs[policy.key] = sets_of(policy)
                self._write_policy(policy.key)

    def forget(self, changes: PolicyChanges) -> None:
        """Policies and profiles that are gone."""
        gone = [key for key, policy in changes.policies.items() if policy is None]
        gone += [profile_key(name) for name, policy in changes.profiles.items() if policy is None]
        for key in gone:
            if self._policies.pop(key, None) is not None:
                del self._needs[key]
                self._write_policy(key)

    def trust(self, unusable: frozenset[str]) -> None:
        """Only these sets are not in the kernel as wanted."""
        differing = unusable ^ self._unusable
        self._unusable = unusable
        for key, needs in self._needs.items() if differing else ():
            if needs & differing:
                self._write_policy(key)

    def degraded(self) -> dict[ResourceKey, str]:
        """Policies that are stricter than asked, each with the set or the chain that is why."""
        found = {
            key: f"closed where it needs the set {', '.join(sorted(lost))}, which is not written"
            for key, needs in (self._needs.items() if self._unusable else ())
            if (lost := needs & self._unusable)
        }
        for ((family, table), name), (_, reason) in self._refused.items():
            key = self._owners.get(name)
            if key is not None:
                where = f"{name} in {table} of IPv{family}"
                found[key] = f"closed: the kernel refuses its chain {where}: {reason}"
        return found

    # -- what the kernel refuses ---------------------------------------------------------------

    @property
    def refused(self) -> dict[Place, list[Chain]]:
        """Chains that were refused and are closed since, as they should be."""
        found: dict[Place, list[Chain]] = {}
        for (place, _), (chain, _) in self._refused.items():
            found.setdefault(place, []).append(chain)
        return found

    def refuse(self, place: Place, name: str, reason: str) -> bool:
        """The kernel takes everything but this chain; returns whether it is closed now (RBK-3)."""
        key = self._owners.get(name)
        chain = self._policy_chain(key, place, name) if key is not None else None
        known = self._refused.get((place, name))
        if key is None or chain is None or (known is not None and known[0] == chain):
            return False
        self._refused[place, name] = (chain, reason)
        self._write_policy(key)
        return True

    def accept(self, place: Place, name: str) -> None:
        """The kernel would take this chain now."""
        key = self._owners.get(name)
        if self._refused.pop((place, name), None) is not None and key is not None:
            self._write_policy(key)

    def _tell(self, place: Place, chain: Chain) -> None:
        refused = self._refused.get((place, chain.name))
        if refused is not None:
            if refused[0] == chain:
                deny = self._settings.verdicts_of(place[1]).deny
                why = "Closed: the kernel refuses a rule of this policy"
                chain = Chain(chain.name, (Rule(deny, comments=(why,)),))
            else:
                del self._refused[place, chain.name]
        self.renders += 1
        self._targets[place].want(chain)

    def _policy_chain(self, key: ResourceKey, place: Place, name: str) -> Chain | None:
        for chain in self._policy_chains(key, place):
            if chain.name == name:
                return chain
        return None

    def _policy_chains(self, key: ResourceKey, place: Place) -> tuple[Chain, Chain]:
        policy = self._policies.get(key) or ResolvedPolicy(key, "", (), (), missing=True)
        settings, (version, table) = self._settings, place
        verdicts = settings.verdicts_of(table)
        return policy_chains(policy, version, settings.marks, verdicts, self._unusable)

    def _write_policy(self, key: ResourceKey) -> None:
        for place in self._targets:
            prefixes = tuple(p for p in _prefixes(key) if self._users[key, p, place[1]])
            if not prefixes:
                continue
            for chain in self._policy_chains(key, place):
                if chain.name.startswith(prefixes):
                    self._owners[chain.name] = key
                    self._tell(place, chain)

    # -- endpoints -----------------------------------------------------------------------------

    def set_endpoint(self, interface: str, policy: EndpointPolicy) -> None:
        """An endpoint that is new or has another policy."""
        before = self._endpoints.get(interface)
        if before is policy or before == policy:
            return
        self._endpoints[interface] = policy
        self._use(_named(policy), () if before is None else _named(before))
        self._write_endpoint(interface)
        if before is None:
            self._want(self._bins.add(interface))

    def remove_endpoint(self, interface: str) -> None:
        """An endpoint that is gone."""
        before = self._endpoints.pop(interface, None)
        if before is None:
            return
        chains, gone = self._bins.remove(interface)
        self._want(chains)
        self._unwant([*gone, *_own(interface)])
        self._use((), _named(before))

    def _use(self, new: Iterable[Use], old: Iterable[Use]) -> None:
        new, old = frozenset(new), frozenset(old)
        fresh: set[ResourceKey] = set()
        for use in new - old:
            self._users[use] += 1
            if self._users[use] == 1:
                fresh.add(use[0])
        for key in fresh:
            self._write_policy(key)
        for use in old - new:
            self._users[use] -= 1
            if not self._users[use]:
                del self._users[use]
                self._unuse(*use)

    def _unuse(self, key: ResourceKey, prefix: str, table: str) -> None:
        name = names.policy_chain(prefix, key)
        for place, target in self._targets.items():
            if place[1] == table:
                self._refused.pop((place, name), None)
                target.unwant(name)
        if not any(self._users[key, prefix, each] for _, each in self._targets):
            self._owners.pop(name, None)

    def _write_endpoint(self, interface: str) -> None:
        policy = self._endpoints[interface]
        both = self._shared.get(policy)
        if both is None:
            if len(self._shared) >= MOST_TEXTS:
                self._shared.clear()
            rules = endpoint_rules(interface, policy)
            chains = endpoint_chains(rules, self._settings.marks, self._settings.verdicts)
            both = self._shared[policy] = tuple(chain.rules for chain in chains)
        self._want(Chain(name, own) for name, own in zip(_own(interface), both, strict=True))

    # -- host endpoints ------------------------------------------------------------------------

    def set_host_endpoints(self, serving: Mapping[str, HostEndpoint]) -> None:
        """The host endpoint of each interface of the host that has one (`*` among them)."""
        policies = {interface: endpoint.policy for interface, endpoint in serving.items()}
        if policies == self._hosts.policies:
            return
        before, after = self._hosts.uses, self._hosts.set(policies)
        self._use(after, before)
        self.renders += self._hosts.write(self._settings)

    # -- everything ----------------------------------------------------------------------------

    def configure(self, settings: RuleSettings) -> None:
        """Other settings: everything is rendered anew where they matter."""
        if settings == self._settings:
            return
        before, self._settings = self._settings, settings
        self._shared.clear()
        if settings.prefixes != before.prefixes:
            self._unwant([chain.name for chain in self._bins.all()])
            self._bins = self._new_bins(settings.prefixes)
            for interface in self._endpoints:
                self._bins.add(interface)
        self.write_all()

    def write_all(self) -> None:
        """Say all that is wanted."""
        self._want(self._bins.all())
        for key in {key for key, _, _ in self._users}:
            self._write_policy(key)
        for interface in self._endpoints:
            self._write_endpoint(interface)
        self.renders += self._hosts.write(self._settings)

    def _want(self, chains: Iterable[Chain]) -> None:
        """Chains of workloads: they are the same in both families."""
        for chain in chains:
            self.renders += 1
            for (_, table), target in self._targets.items():
                if table == FILTER:
                    target.want(chain)

    def _unwant(self, chains: Iterable[str]) -> None:
        for name in chains:
            for (_, table), target in self._targets.items():
                if table == FILTER:
                    target.unwant(name)


def profile_key(name: str) -> ResourceKey:
    """The key of a profile."""
    return ResourceKey("Profile", name)


def sets_of(policy: ResolvedPolicy) -> frozenset[str]:
    """The ids of the sets that a policy's rules name."""
    return frozenset(each for rule in (*policy.ingress, *policy.egress) for each in _sets(rule))


def _sets(rule: ResolvedRule) -> Iterable[str]:
    for side in (rule.source, rule.destination):
        yield from side.sets
        yield from side.not_sets
        yield from side.services
        yield from side.named_ports
        yield from side.not_named_ports


def _prefixes(key: ResourceKey) -> tuple[str, str]:
    if key.kind == "Profile":
        return names.PROFILE_INGRESS, names.PROFILE_EGRESS
    return names.POLICY_INGRESS, names.POLICY_EGRESS


def _named(policy: EndpointPolicy) -> frozenset[Use]:
    """The policy chains that a workload's chains name."""
    found: set[Use] = set()
    for tier in policy.tiers:
        found.update((key, names.POLICY_INGRESS, FILTER) for key in tier.ingress)
        found.update((key, names.POLICY_EGRESS, FILTER) for key in tier.egress)
    for name in policy.profiles:
        key = profile_key(name)
        found.update((key, prefix, FILTER) for prefix in _prefixes(key))
    return frozenset(found)


def _own(interface: str) -> list[str]:
    return [names.endpoint_chain(p, interface) for p in (names.TO_WORKLOAD, names.FROM_WORKLOAD)]
