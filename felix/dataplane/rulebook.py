"""The moving part of the filter tables: chains of policies, profiles, endpoints, dispatch.

What the calculation says is kept as it came; a chain is rendered when it comes or changes, and
only while an endpoint's chain names it. So a change costs what it touches: a pod two chains and
two rules of dispatch, a policy its own two chains, however many endpoints it serves.

Invariants:
  RBK-1  Every chain that a wanted chain names is wanted; a policy that is named but unknown
         denies.
  RBK-2  A policy that needs a set which the kernel does not hold as wanted is rendered without
         trust in it (POL-1), and as it should be once the set is right.
Tested in tests/felix/test_rulebook.py and, with a kernel, test_policy_packets.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from felix.calc.policy_model import EndpointPolicy, PolicyChanges, ResolvedPolicy, ResolvedRule
from felix.rules import names
from felix.rules.dispatch import Bins
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.iptables import render_rules
from felix.rules.model import Chain
from felix.rules.policy import policy_chains
from felix.rules.static import RuleSettings
from libcalico.model.keys import ResourceKey

MOST_TEXTS = 1000
"""Rendered endpoints that are remembered."""


class FilterTable(Protocol):
    """What is told: the filter table of one family."""

    def want(self, chain: str, rules: Sequence[str], *, unordered: bool = False) -> None:
        """A chain, whole."""

    def unwant(self, chain: str) -> None:
        """Nobody wants this chain any more."""


class RuleBook:
    """The chains of policies and endpoints in both families' filter tables."""

    def __init__(self, targets: Mapping[int, FilterTable], settings: RuleSettings) -> None:
        self._targets = targets
        self._settings = settings
        self._policies: dict[ResourceKey, ResolvedPolicy] = {}
        self._needs: dict[ResourceKey, frozenset[str]] = {}
        self._endpoints: dict[str, EndpointPolicy] = {}
        self._bins = Bins(settings.prefixes)
        # The text of an endpoint's chains does not name it: pods of one kind share it.
        self._texts: dict[EndpointPolicy, tuple[tuple[str, ...], ...]] = {}
        self._users: Counter[tuple[ResourceKey, str]] = Counter()
        self._unusable: frozenset[str] = frozenset()
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
        own = [names.endpoint_chain(p, interface) for p in (names.TO_WORKLOAD, names.FROM_WORKLOAD)]
        named = _named(self._endpoints[interface])
        return own + [names.policy_chain(prefix, key) for key, prefix in named]

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
        """Policies that need a set which the kernel does not hold as wanted, and which."""
        return {
            key: f"closed where it needs the set {', '.join(sorted(lost))}, which is not written"
            for key, needs in (self._needs.items() if self._unusable else ())
            if (lost := needs & self._unusable)
        }

    def _write_policy(self, key: ResourceKey) -> None:
        prefixes = [p for p in _prefixes(key) if self._users[key, p]]
        if not prefixes:
            return
        policy = self._policies.get(key) or ResolvedPolicy(key, "", (), (), missing=True)
        marks, verdicts = self._settings.marks, self._settings.verdicts
        for version, table in self._targets.items():
            for chain in policy_chains(policy, version, marks, verdicts, self._unusable):
                if chain.name.startswith(tuple(prefixes)):
                    self.renders += 1
                    table.want(chain.name, render_rules(chain.rules))

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
            self._want(self._bins.add(interface), unordered=True)

    def remove_endpoint(self, interface: str) -> None:
        """An endpoint that is gone."""
        before = self._endpoints.pop(interface, None)
        if before is None:
            return
        chains, gone = self._bins.remove(interface)
        self._want(chains, unordered=True)
        gone += [names.endpoint_chain(p, interface) for p in (names.TO_WORKLOAD,
                                                              names.FROM_WORKLOAD)]  # fmt: skip
        self._unwant(gone)
        self._use((), _named(before))

    def _use(
        self,
        new: Iterable[tuple[ResourceKey, str]],
        old: Iterable[tuple[ResourceKey, str]],
    ) -> None:
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
                key, prefix = use
                self._unwant([names.policy_chain(prefix, key)])

    def _write_endpoint(self, interface: str) -> None:
        policy = self._endpoints[interface]
        texts = self._texts.get(policy)
        if texts is None:
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            rules = endpoint_rules(interface, policy)
            chains = endpoint_chains(rules, self._settings.marks, self._settings.verdicts)
            texts = self._texts[policy] = tuple(render_rules(chain.rules) for chain in chains)
        for prefix, text in zip((names.TO_WORKLOAD, names.FROM_WORKLOAD), texts, strict=True):
            self.renders += 1
            for table in self._targets.values():
                table.want(names.endpoint_chain(prefix, interface), text)

    # -- everything ----------------------------------------------------------------------------

    def configure(self, settings: RuleSettings) -> None:
        """Other settings: everything is rendered anew where they matter."""
        if settings == self._settings:
            return
        before, self._settings = self._settings, settings
        self._texts.clear()
        if settings.prefixes != before.prefixes:
            self._unwant([chain.name for chain in self._bins.all()])
            self._bins = Bins(settings.prefixes)
            for interface in self._endpoints:
                self._bins.add(interface)
        self.write_all()

    def write_all(self) -> None:
        """Say all that is wanted."""
        self._want(self._bins.all(), unordered=True)
        for key in {key for key, _ in self._users}:
            self._write_policy(key)
        for interface in self._endpoints:
            self._write_endpoint(interface)

    def _want(self, chains: Iterable[Chain], *, unordered: bool = False) -> None:
        for chain in chains:
            self.renders += 1
            text = render_rules(chain.rules)
            for table in self._targets.values():
                table.want(chain.name, text, unordered=unordered)

    def _unwant(self, chains: Iterable[str]) -> None:
        for name in chains:
            for table in self._targets.values():
                table.unwant(name)


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


def _named(policy: EndpointPolicy) -> frozenset[tuple[ResourceKey, str]]:
    """The policy chains that an endpoint's chains name: policy and prefix."""
    found: set[tuple[ResourceKey, str]] = set()
    for tier in policy.tiers:
        found.update((key, names.POLICY_INGRESS) for key in tier.ingress)
        found.update((key, names.POLICY_EGRESS) for key in tier.egress)
    for name in policy.profiles:
        found.update((profile_key(name), prefix) for prefix in _prefixes(profile_key(name)))
    return frozenset(found)
