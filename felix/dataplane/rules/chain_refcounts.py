"""Which chains of policies and profiles are named, and by how many.

Endpoints that see the same tiers are of one kind, and count as one user of each policy in them:
ten thousand policies that two hundred endpoints share are counted once, not two million times.
What is rendered of the tiers is kept with the kind, and goes with it.

Tested in tests/felix/dataplane/test_chain_store.py, test_chain_store_steps.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from felix.calc.policy_model import EndpointPolicy, TierView
from felix.rules import names
from felix.rules.groups import groups
from felix.rules.model import Rule
from libcalico.model.keys import ResourceKey

FILTER = "filter"
MOST_SEEN = 1000
"""Lists of tiers whose kind is known by their identity."""
Where = tuple[str, str]
"""The prefix of a chain that is named, and the table in which it is."""
Use = tuple[ResourceKey, str, str]
"""A policy or profile, the prefix of its chain that is named, and the table."""
Tiers = tuple[TierView, ...]


@dataclass(slots=True, eq=False)
class Kind:
    """Endpoints with these tiers. `texts`: the rules of both chains of one, by its profiles."""

    tiers: Tiers
    count: int = 0
    texts: dict[tuple[str, ...], tuple[tuple[Rule, ...], ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Moved:
    """What a change did: policies that are named at one more place, and uses that ended."""

    fresh: set[ResourceKey] = field(default_factory=set)
    ended: list[Use] = field(default_factory=list)


class ChainRefcounts:
    """The users of every chain of a policy or profile."""

    def __init__(self) -> None:
        self._users: dict[ResourceKey, dict[Where, int]] = {}
        self._kinds: dict[Tiers, Kind] = {}
        # Most endpoints of a kind have the very same tuple: a look at ten thousand is saved.
        self._seen: dict[int, tuple[Tiers, Kind]] = {}

    def __iter__(self) -> Iterator[ResourceKey]:
        return iter(self._users)

    def __contains__(self, key: object) -> bool:
        return key in self._users

    def places(self, key: ResourceKey) -> Collection[Where]:
        """Where a policy or profile is named."""
        return self._users.get(key, {}).keys()

    @property
    def kinds(self) -> Mapping[Tiers, Kind]:
        """All kinds of endpoints."""
        return self._kinds

    def enter(self, policy: EndpointPolicy, moved: Moved) -> Kind:
        """One more workload endpoint has this policy."""
        kind = self._kind(policy.tiers)
        kind.count += 1
        if kind.count == 1:
            for use in _of_tiers(kind.tiers):
                self._begin(use, moved)
        for use in _of_profiles(policy.profiles):
            self._begin(use, moved)
        return kind

    def leave(self, kind: Kind, profiles: Iterable[str], moved: Moved) -> None:
        """One endpoint of a kind less, which had these profiles."""
        kind.count -= 1
        if not kind.count:
            for use in _of_tiers(kind.tiers):
                self._end(use, moved)
            del self._kinds[kind.tiers]
            self._seen.clear()
        for use in _of_profiles(profiles):
            self._end(use, moved)

    def exchange(self, new: frozenset[Use], old: frozenset[Use]) -> Moved:
        """An owner names other chains than before."""
        moved = Moved()
        for use in new - old:
            self._begin(use, moved)
        for use in old - new:
            self._end(use, moved)
        return moved

    def _kind(self, tiers: Tiers) -> Kind:
        seen = self._seen.get(id(tiers))
        if seen is not None:
            return seen[1]
        kind = self._kinds.get(tiers)
        if kind is None:
            kind = self._kinds[tiers] = Kind(tiers)
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[id(tiers)] = (tiers, kind)
        return kind

    def _begin(self, use: Use, moved: Moved) -> None:
        key, prefix, table = use
        there = self._users.setdefault(key, {})
        where = (prefix, table)
        count = there[where] = there.get(where, 0) + 1
        if count == 1:
            moved.fresh.add(key)

    def _end(self, use: Use, moved: Moved) -> None:
        key, prefix, table = use
        there = self._users[key]
        where = (prefix, table)
        there[where] -= 1
        if not there[where]:
            del there[where]
            if not there:
                del self._users[key]
            moved.ended.append(use)


def profile_key(name: str) -> ResourceKey:
    """The key of a profile."""
    return ResourceKey("Profile", name)


def _of_tiers(tiers: Tiers) -> Iterator[Use]:
    """The chains of policies that a workload's chains name."""
    for tier in tiers:
        for ingress in (True, False):
            yield from of_tier(tier, FILTER, ingress=ingress)


def named_by(tiers: Tiers) -> Iterator[str]:
    """The chains, in filter, of the policies and groups of a workload."""
    return (names.policy_chain(prefix, key) for key, prefix, _ in _of_tiers(tiers))


def of_tier(tier: TierView, table: str, *, ingress: bool) -> Iterator[Use]:
    """What one direction of a tier names, and what its groups name."""
    policy = names.POLICY_INGRESS if ingress else names.POLICY_EGRESS
    group = names.GROUP_INGRESS if ingress else names.GROUP_EGRESS
    for key in tier.ingress if ingress else tier.egress:
        yield key, policy, table
    for key in groups(tier, ingress=ingress):
        yield key, group, table


def _of_profiles(profiles: Iterable[str]) -> Iterator[Use]:
    for name in dict.fromkeys(profiles):
        key = profile_key(name)
        yield key, names.PROFILE_INGRESS, FILTER
        yield key, names.PROFILE_EGRESS, FILTER
