"""The chains of host endpoints in every table, and what they name.

A host has few interfaces, so these are rendered together; a target is told only of what it
wants anyway and compares itself. The dispatch chains of all tables stand as long as there is a
host endpoint, empty or not: the static chains name them (`felix.rules.static_chains`: without one).

Invariants:
  HBK-1  Every chain of a policy that a host endpoint's chains name is in `uses`, in its table.
Tested in tests/felix/dataplane/test_chain_store.py and, with packets,
tests/felix/kernel/test_hosts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from felix.calc.policy_model import EndpointPolicy, TierView
from felix.dataplane.rules.chain_refcounts import Use, of_tier
from felix.rules import names
from felix.rules.hosts import TABLES, dispatch_chains, failsafe_chains, host_chains
from felix.rules.inputs import RuleSettings
from felix.rules.model import Chain
from libcalico.model.keys import ResourceKey

Place = tuple[int, str]


class Target(Protocol):
    """One table of one family."""

    def want(self, chain: Chain) -> None:
        """A chain, whole."""

    def unwant(self, name: str) -> None:
        """This chain is not desired any more."""


class HostEndpointChains:
    """The host endpoints that serve, by interface."""

    def __init__(self, targets: Mapping[Place, Target]) -> None:
        self._targets = targets
        self.policies: Mapping[str, EndpointPolicy] = {}
        self._written: dict[Place, set[str]] = {}
        self.uses: frozenset[Use] = frozenset()

    def set(self, policies: Mapping[str, EndpointPolicy]) -> frozenset[Use]:
        """The policy of each interface (`*` among them); returns `uses` as it is now."""
        self.policies = dict(policies)
        self.uses = frozenset(use for policy in policies.values() for use in _uses(policy))
        return self.uses

    def write(self, settings: RuleSettings) -> int:
        """Tell all targets; returns how many chains were rendered."""
        rendered = 0
        for place, target in self._targets.items():
            chains = list(self._chains(place, settings)) if place[1] in TABLES else []
            rendered += len(chains)
            for chain in chains:
                target.want(chain)
            present = {chain.name for chain in chains}
            for name in self._written.get(place, set()) - present:
                target.unwant(name)
            self._written[place] = present
        return rendered

    def _chains(self, place: Place, settings: RuleSettings) -> Iterator[Chain]:
        if not self.policies:
            return
        version, table = place
        verdicts = settings.verdicts_of(table)
        own = {
            interface: host_chains(interface, policy, table, settings.marks, verdicts)
            for interface, policy in self.policies.items()
        }
        yield from dispatch_chains(table, own, settings.prefixes)
        if any(own.values()):
            yield from failsafe_chains(table, version, settings.hosts)
        for chains in own.values():
            yield from chains


def _uses(policy: EndpointPolicy) -> Iterator[Use]:
    yield from _named(policy.tiers, "filter", into=True, out=True)
    yield from _named(policy.forward, "filter", into=True, out=True)
    yield from _named(policy.tiers, "mangle", out=True)
    yield from _named(policy.pre_dnat, "mangle", into=True)
    yield from _named(policy.untracked, "raw", into=True, out=True)
    for name in policy.profiles:
        key = ResourceKey("Profile", name)
        yield key, names.PROFILE_INGRESS, "filter"
        yield key, names.PROFILE_EGRESS, "filter"
        yield key, names.PROFILE_EGRESS, "mangle"


def _named(
    tiers: Iterable[TierView], table: str, *, into: bool = False, out: bool = False
) -> Iterator[Use]:
    for tier in tiers:
        if into:
            yield from of_tier(tier, table, ingress=True)
        if out:
            yield from of_tier(tier, table, ingress=False)
