"""Which policies need sets that the kernel does not hold as wanted (RBK-2). Pure.

Tested in tests/felix/dataplane/test_chain_store.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from felix.calc.policy_model import ResolvedPolicy, ResolvedRule
from libcalico.model.keys import ResourceKey


class LostSets:
    """`unusable`: the sets in use that are not as wanted. `suspects`: the policies to be looked at
    because these are others than before."""

    def __init__(self) -> None:
        self.unusable: frozenset[str] = frozenset()
        self.suspects: dict[ResourceKey, None] = {}
        self._lost: dict[ResourceKey, frozenset[str]] = {}

    def become(self, unusable: frozenset[str], policies: Iterable[ResourceKey]) -> None:
        """Only these sets are not as wanted; `policies`: all that there are."""
        if unusable == self.unusable:
            return
        self.unusable = unusable
        self.suspects.update(dict.fromkeys(policies if unusable else self._lost))

    def note(self, key: ResourceKey, policy: ResolvedPolicy | None) -> bool:
        """Look which sets a policy lacks; returns whether these are others than before."""
        lost = sets_of(policy) & self.unusable if policy and self.unusable else frozenset()
        differs = lost != self._lost.get(key, frozenset())
        if lost:
            self._lost[key] = lost
        else:
            self._lost.pop(key, None)
        return differs

    def forget(self, key: ResourceKey) -> None:
        """The policy is gone."""
        self._lost.pop(key, None)

    def reasons(self) -> dict[ResourceKey, str]:
        """The policies that are stricter than asked, each with the sets that are why."""
        return {
            key: f"closed where it needs the set {', '.join(sorted(lost))}, which is not written"
            for key, lost in self._lost.items()
        }


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
