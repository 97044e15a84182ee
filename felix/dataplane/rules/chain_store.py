"""The moving part of the rules: chains of policies, profiles, endpoints, dispatch.

What the calculation says is kept as it came; a chain is rendered when it comes or changes, and
only while an endpoint's chain names it. So a change costs what it touches: a pod two chains and
two rules of dispatch, a policy its own two chains, however many endpoints it serves. Workloads
have chains in filter, in the families of their addresses; host endpoints
(felix.dataplane.rules.host_endpoint_chains) in raw and mangle too.

To take a change costs little. `write` renders what is due then, chain by chain, and its caller may
do other work between two chains.

Invariants:
  RBK-1  Once `write` has come to its end, every chain that a wanted chain names is wanted; a
         policy that is named but unknown denies.
  RBK-2  A policy that needs a set which the kernel does not hold as wanted is rendered without
         trust in it (POL-1), and as it should be once the set is right.
  RBK-3  A policy's chain that the kernel refuses denies everything until it is another, or is
         taken; no other chain suffers.
  RBK-4  A `write` that was given up at any step is gone on with by the next one: what differs
         from what the targets were told is due.
  RBK-5  In a family of which a workload has no address it has no chains: its packets are dropped as
         those of an unknown interface (DSP-1), link-local ones to the node too;
         `defaultEndpointToHostAction` does not count there. One that loses a family sets
         `narrowed`: the way to its old chains goes with this commit, while an interface that is
         gone can wait. Those that left are in `departed` until a caller took note of them.
Tested in tests/felix/dataplane/test_chain_store.py, test_chain_store_steps.py and, with a kernel,
test_policy_packets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from felix.calc.policy_model import (
    EndpointPolicy,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
)
from felix.dataplane.rules.chain_refcounts import (
    FILTER,
    ChainRefcounts,
    Kind,
    Moved,
    named_by,
    profile_key,
)
from felix.dataplane.rules.chain_target import NOWHERE, ChainTarget, Dispatch, Extent, Place
from felix.dataplane.rules.host_endpoint_chains import HostEndpointChains
from felix.dataplane.rules.lost_sets import LostSets
from felix.dataplane.rules.refused_chains import RefusedChains
from felix.rules import names
from felix.rules.dispatch import Bins
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.groups import GroupKey, group_chain
from felix.rules.inputs import RuleSettings
from felix.rules.model import Action, Chain
from felix.rules.policy import making, policy_chains
from libcalico.conversion.traffic_limits import ChainLimits
from libcalico.model.keys import ResourceKey

Steps = Iterator[None]
MANY = 200
"""Rules from which on a chain is rendered in steps."""


class ChainStore:
    """The chains of policies and endpoints in every table of both families."""

    def __init__(
        self,
        targets: Mapping[Place, ChainTarget],
        settings: RuleSettings,
        bins: Callable[[int, tuple[str, ...], Action], Dispatch] = lambda _, *ends: Bins(*ends),
    ) -> None:
        self._targets = targets
        self._settings = settings
        self._policies: dict[ResourceKey, ResolvedPolicy] = {}
        self._endpoints: dict[str, EndpointPolicy] = {}
        self._kinds: dict[str, Kind] = {}
        self._new_bins = bins
        self._families = frozenset(family for family, _ in targets)
        self._bins = self._dispatches(settings)
        self._extents: dict[str, Extent] = {}
        self._uses = ChainRefcounts()
        self._lost = LostSets()
        self._refused = RefusedChains()
        self._hosts = HostEndpointChains(targets)
        self._due: dict[ResourceKey, None] = {}
        self._due_dispatch: dict[tuple[int, str], Chain] = {}
        self._due_endpoints: dict[str, None] = {}
        self._due_hosts = True
        self.narrowed = False
        self.departed: set[str] = set()
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
        return self._lost.unusable

    def beyond(self, interface: str) -> list[tuple[int, str]]:
        """The chains, with their families, that this endpoint would have elsewhere (RBK-5)."""
        extent = self._extents.get(interface)
        others = self._families - (extent.families if extent else self._families)
        return [(family, name) for family in others for name in _own(interface)]

    def judged(self, interfaces: Iterable[str], differs: Callable[[str], bool]) -> frozenset[str]:
        """Those of these endpoints whose chains, or chains that these name, `differs` says so of.

        Every chain is asked about once, however many endpoints name it.
        """
        kinds: dict[Kind, bool] = {}
        profiles: dict[str, bool] = {}
        chosen: set[str] = set()
        for interface in interfaces:
            kind = self._kinds[interface]
            if kind not in kinds:
                kinds[kind] = any(differs(name) for name in named_by(kind.tiers))
            for name in self._endpoints[interface].profiles:
                if name not in profiles:
                    key = profile_key(name)
                    chains = (names.policy_chain(prefix, key) for prefix in _prefixes(key))
                    profiles[name] = any(map(differs, chains))
            if (
                kinds[kind]
                or any(profiles[name] for name in self._endpoints[interface].profiles)
                or any(map(differs, _own(interface)))
            ):
                chosen.add(interface)
        return frozenset(chosen)

    def write(self) -> Steps:
        """Tell the targets what is due, in steps of a fraction of a millisecond each, mostly.

        Policies come first, then the endpoints that name them; the targets write all at once
        anyway. It may be given up at any step (RBK-4).
        """
        if self._due_hosts:
            self.renders += self._hosts.write(self._settings)
            self._due_hosts = False
        # What is due ceases to be so when it has been told, not before: nothing is lost by an
        # exception. Taken from the end, where a dict gives at once.
        while suspects := self._lost.suspects:
            key = next(reversed(suspects))
            self._note_lost(key)
            del suspects[key]
            yield
        while self._due:
            key = next(reversed(self._due))
            yield from self._writing(key)
            del self._due[key]
            yield
        while self._due_endpoints:
            interface = next(reversed(self._due_endpoints))
            self._write_endpoint(interface)
            del self._due_endpoints[interface]
            yield
        while self._due_dispatch:
            place = next(reversed(self._due_dispatch))
            self._want((self._due_dispatch[place],), (place[0],))
            del self._due_dispatch[place]
            yield

    # -- policies ------------------------------------------------------------------------------

    def take(self, changes: PolicyChanges) -> None:
        """New and changed policies and profiles; call `forget` once the endpoints are told."""
        for policy in (*changes.policies.values(), *changes.profiles.values()):
            if policy is not None and self._policies.get(policy.key) != policy:
                self._policies[policy.key] = policy
                self._note_lost(policy.key)
                self._is_due(policy.key)

    def forget(self, changes: PolicyChanges) -> None:
        """Policies and profiles that are gone."""
        gone = [key for key, policy in changes.policies.items() if policy is None]
        gone += [profile_key(name) for name, policy in changes.profiles.items() if policy is None]
        for key in gone:
            if self._policies.pop(key, None) is not None:
                self._lost.forget(key)
                self._is_due(key)

    def trust(self, unusable: frozenset[str]) -> None:
        """Only these sets are not in the kernel as wanted; `write` renders what that changes."""
        self._lost.become(unusable, self._policies)

    def _note_lost(self, key: ResourceKey) -> None:
        """Which sets that a policy needs cannot be used."""
        if self._lost.note(key, self._policies.get(key)):
            self._is_due(key)

    def _is_due(self, key: ResourceKey) -> None:
        if key in self._uses:
            self._due[key] = None

    def degraded(self) -> dict[ResourceKey, str]:
        """Policies that are stricter than asked, each with the set or the chain that is why."""
        return self._lost.reasons() | self._refused.reasons()

    # -- what the kernel refuses ---------------------------------------------------------------

    @property
    def refused(self) -> dict[Place, list[Chain]]:
        """Chains that were refused and are closed since, as they should be."""
        return self._refused.chains()

    def refuse(self, place: Place, name: str, reason: str) -> bool:
        """The kernel takes everything but this chain; returns whether it is closed now (RBK-3)."""
        key = self._refused.owners.get(name)
        chain = self._policy_chain(key, place, name) if key is not None else None
        if key is None or chain is None or not self._refused.refuse(place, chain, reason):
            return False
        self._write_policy(key)
        return True

    def accept(self, place: Place, name: str) -> None:
        """The kernel would take this chain now."""
        key = self._refused.owners.get(name)
        if self._refused.forget(place, name) and key is not None:
            self._write_policy(key)

    def _tell(self, place: Place, chain: Chain) -> None:
        chain = self._refused.closed(place, chain, self._settings)
        self.renders += 1
        self._targets[place].want(chain)

    def _policy_chain(self, key: ResourceKey, place: Place, name: str) -> Chain | None:
        for chain in self._policy_chains(key, place):
            if chain.name == name:
                return chain
        return None

    def _policy_chains(self, key: ResourceKey, place: Place) -> tuple[Chain, ...]:
        if isinstance(key, GroupKey):
            return (group_chain(key, self._settings.marks),)
        policy = self._policies.get(key) or ResolvedPolicy(key, "", (), (), missing=True)
        settings, (version, table) = self._settings, place
        verdicts = settings.verdicts_of(table)
        return policy_chains(policy, version, settings.marks, verdicts, self._lost.unusable)

    def warming(self, policy: ResolvedPolicy) -> Iterator[None]:
        """Make and render the rules of a policy ahead, in steps (felix.calc.policy.large)."""
        settings = self._settings
        verdicts = settings.verdicts_of(FILTER)
        for place, target in self._targets.items():
            if place[1] != FILTER:
                continue
            for rules in making(policy, place[0], settings.marks, verdicts):
                yield from target.prepare(rules)
                yield

    def _write_policy(self, key: ResourceKey) -> None:
        for _ in self._writing(key):
            pass

    def _writing(self, key: ResourceKey) -> Steps:
        places = self._uses.places(key)
        tables = {table for _, table in places}
        for place in self._targets:
            if place[1] not in tables:
                continue
            prefixes = tuple(prefix for prefix, table in places if table == place[1])
            for chain in self._policy_chains(key, place):
                if chain.name.startswith(prefixes):
                    if key.kind != names.GROUP:
                        self._refused.owners[chain.name] = key
                    if len(chain.rules) > MANY:
                        yield from self._targets[place].prepare(chain.rules)
                    self._tell(place, chain)
                    if len(chain.rules) > MANY:
                        yield

    # -- endpoints -----------------------------------------------------------------------------

    def set_endpoint(
        self,
        interface: str,
        policy: EndpointPolicy,
        families: frozenset[int] | None = None,
        limits: ChainLimits | None = None,
    ) -> None:
        """An endpoint that is new, or has another policy, limits or addresses of other families.

        `families`: those of its addresses (RBK-5); all if not given.
        """
        reach = self._families if families is None else families & self._families
        before, extent = self._endpoints.get(interface), Extent(reach, limits)
        known = self._extents.get(interface, NOWHERE)
        if (before is policy or before == policy) and extent == known:
            return
        reached, self._extents[interface] = known.families, extent
        moved = Moved()
        kind = self._uses.enter(policy, moved)
        if before is not None:
            self._uses.leave(self._kinds[interface], before.profiles, moved)
        self._endpoints[interface], self._kinds[interface] = policy, kind
        self.departed.discard(interface)
        self._due_endpoints[interface] = None
        self._settle(moved)
        for family in reached - reach:
            self._withdraw(family, interface)
            self.narrowed = True
        for family in reach - reached:
            self._dispatch(family, self._bins[family].add(interface))

    def remove_endpoint(self, interface: str) -> None:
        """An endpoint that is gone."""
        before = self._endpoints.pop(interface, None)
        if before is None:
            return
        self._due_endpoints.pop(interface, None)
        self.departed.add(interface)
        for family in self._extents.pop(interface).families:
            self._withdraw(family, interface)
        moved = Moved()
        self._uses.leave(self._kinds.pop(interface), before.profiles, moved)
        self._settle(moved)

    def _withdraw(self, family: int, interface: str) -> None:
        """Its chains of one family are not wanted any more."""
        chains, gone = self._bins[family].remove(interface)
        self._dispatch(family, chains)
        for name in gone:
            self._due_dispatch.pop((family, name), None)
        self._unwant(family, [*gone, *_own(interface)])

    def _dispatches(self, settings: RuleSettings) -> dict[int, Dispatch]:
        ends = (settings.prefixes, settings.verdicts.deny)
        return {family: self._new_bins(family, *ends) for family in self._families}

    def _dispatch(self, family: int, chains: Iterable[Chain]) -> None:
        # Endpoints that come together are told of once.
        for chain in chains:
            self._due_dispatch[family, chain.name] = chain

    def _settle(self, moved: Moved) -> None:
        for key, prefix, table in moved.ended:
            if (prefix, table) not in self._uses.places(key):
                self._unuse(key, prefix, table)
        for key in moved.fresh:
            self._is_due(key)

    def _unuse(self, key: ResourceKey, prefix: str, table: str) -> None:
        name = names.policy_chain(prefix, key)
        for place, target in self._targets.items():
            if place[1] == table:
                self._refused.forget(place, name)
                target.unwant(name)
        if not any(prefix == each for each, _ in self._uses.places(key)):
            self._refused.owners.pop(name, None)
        if key not in self._uses:
            self._due.pop(key, None)

    def _write_endpoint(self, interface: str) -> None:
        policy, kind = self._endpoints[interface], self._kinds[interface]
        # An endpoint's chains do not name it: pods of one kind share their rules.
        extent = self._extents[interface]
        limits = extent.limits
        both = kind.texts.get(policy.profiles) if limits is None else None
        if both is None:
            rules = endpoint_rules(interface, policy, limits)
            chains = endpoint_chains(rules, self._settings.marks, self._settings.verdicts)
            both = tuple(chain.rules for chain in chains)
            if limits is None:
                kind.texts[policy.profiles] = both
        chains = [Chain(name, own) for name, own in zip(_own(interface), both, strict=True)]
        self._want(chains, extent.families)

    # -- host endpoints ------------------------------------------------------------------------

    def set_host_endpoints(self, serving: Mapping[str, HostEndpoint]) -> None:
        """The host endpoint of each interface of the host that has one (`*` among them)."""
        policies = {interface: endpoint.policy for interface, endpoint in serving.items()}
        if policies == self._hosts.policies:
            return
        before, after = self._hosts.uses, self._hosts.set(policies)
        self._settle(self._uses.exchange(after, before))
        self._due_hosts = True

    # -- everything ----------------------------------------------------------------------------

    def configure(self, settings: RuleSettings) -> None:
        """Other settings: everything is rendered anew where they matter."""
        if settings == self._settings:
            return
        before, self._settings = self._settings, settings
        for kind in self._uses.kinds.values():
            kind.texts.clear()
        ends = (settings.prefixes, settings.verdicts.deny)
        if ends != (before.prefixes, before.verdicts.deny):
            self._due_dispatch.clear()
            for family, bins in self._bins.items():
                self._unwant(family, [chain.name for chain in bins.all()])
            self._bins = self._dispatches(settings)
            for interface, extent in self._extents.items():
                for family in extent.families:
                    self._bins[family].add(interface)
        self.write_all()

    def write_all(self) -> None:
        """All that is wanted is due."""
        for family, bins in self._bins.items():
            self._dispatch(family, bins.all())
        self._due.update(dict.fromkeys(self._uses))
        self._due_endpoints.update(dict.fromkeys(self._endpoints))
        self._due_hosts = True

    def _want(self, chains: Iterable[Chain], families: Collection[int]) -> None:
        """Chains of workloads, in these families."""
        for chain in chains:
            self.renders += 1
            for (family, table), target in self._targets.items():
                if table == FILTER and family in families:
                    target.want(chain)

    def _unwant(self, family: int, chains: Iterable[str]) -> None:
        target = self._targets[family, FILTER]
        for name in chains:
            target.unwant(name)


def _prefixes(key: ResourceKey) -> tuple[str, str]:
    if key.kind == "Profile":
        return names.PROFILE_INGRESS, names.PROFILE_EGRESS
    return names.POLICY_INGRESS, names.POLICY_EGRESS


def _own(interface: str) -> list[str]:
    return [names.endpoint_chain(p, interface) for p in (names.TO_WORKLOAD, names.FROM_WORKLOAD)]
