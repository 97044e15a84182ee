"""Chains of policies that the kernel refuses, and are closed since (RBK-3). Pure.

Tested in tests/felix/dataplane/test_chain_store.py and, with a kernel, test_policy_refused.py.
"""

from __future__ import annotations

from felix.dataplane.rules.chain_target import Place
from felix.rules.inputs import RuleSettings
from felix.rules.model import Chain, Rule
from libcalico.model.keys import ResourceKey


class RefusedChains:
    """What was refused where, and why; `owners`: of which policy a chain is."""

    def __init__(self) -> None:
        self.owners: dict[str, ResourceKey] = {}
        self._refused: dict[tuple[Place, str], tuple[Chain, str]] = {}

    def chains(self) -> dict[Place, list[Chain]]:
        """Chains that were refused, as they should be."""
        by_place: dict[Place, list[Chain]] = {}
        for (place, _), (chain, _) in self._refused.items():
            by_place.setdefault(place, []).append(chain)
        return by_place

    def refuse(self, place: Place, chain: Chain, reason: str) -> bool:
        """The kernel does not take this chain; returns whether that is something new."""
        known = self._refused.get((place, chain.name))
        if known is not None and known[0] == chain:
            return False
        self._refused[place, chain.name] = (chain, reason)
        return True

    def forget(self, place: Place, name: str) -> bool:
        """It is not refused any more; returns whether it was."""
        return self._refused.pop((place, name), None) is not None

    def closed(self, place: Place, chain: Chain, settings: RuleSettings) -> Chain:
        """The chain, or one that denies everything while this very chain is refused."""
        refused = self._refused.get((place, chain.name))
        if refused is None:
            return chain
        if refused[0] != chain:
            del self._refused[place, chain.name]
            return chain
        deny = settings.verdicts_of(place[1]).deny
        why = "Closed: the kernel refuses a rule of this policy"
        return Chain(chain.name, (Rule(deny, comments=(why,)),))

    def reasons(self) -> dict[ResourceKey, str]:
        """The policies that are closed, each with the chain that is why."""
        by_policy: dict[ResourceKey, str] = {}
        for ((family, table), name), (_, reason) in self._refused.items():
            key = self.owners.get(name)
            if key is not None:
                where = f"{name} in {table} of IPv{family}"
                by_policy[key] = f"closed: the kernel refuses its chain {where}: {reason}"
        return by_policy
