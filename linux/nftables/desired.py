"""The desired tables, and which of their chains and elements may differ from the kernel. Pure.

Tested in tests/linux/test_nftables.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from linux.nftables.dump import Actual
from linux.nftables.expressions import Family, interface_key
from linux.nftables.messages import Hook
from linux.nftables.plan import Change, DesiredTable, Plan
from linux.nftables.rules import Packed


@dataclass(slots=True)
class Scope:
    """Chains (family, name) and elements (family, map, interface) that may differ.

    A chain without a name stands for the table itself and its maps.
    """

    chains: set[tuple[Family, str]] = field(default_factory=set)
    elements: set[tuple[Family, str, str]] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.chains) + len(self.elements)

    def __or__(self, other: Scope) -> Scope:
        return Scope(self.chains | other.chains, self.elements | other.elements)

    def __sub__(self, other: Scope) -> Scope:
        return Scope(self.chains - other.chains, self.elements - other.elements)


class DesiredTables:
    """The desired tables called `table` of these families. Maps are interface -> goto a chain."""

    def __init__(self, families: Iterable[Family], table: str) -> None:
        self.table = table
        self._desired = {family: DesiredTable() for family in families}
        self._dirty = Scope()
        # Undesired chains and elements, left by commits without sweep.
        self._unswept = Scope()
        # Where a set of ports may have lost its last rule.
        self._ports_changed: set[Family] = set()

    def want(self, family: Family, chain: str, rules: Packed, hook: Hook | None = None) -> None:
        """A chain, whole; nothing happens before the next commit."""
        chains = self._desired[family].chains
        before = chains.get(chain)
        if before is None or before[0] != hook or before[1].hashes != rules.hashes:
            chains[chain] = (hook, rules)
            self._dirty.chains.add((family, chain))
            if before is not None and before[1].port_sets.keys() - rules.port_sets.keys():
                self._ports_changed.add(family)

    def unwant(self, family: Family, chain: str) -> None:
        """The chain is not desired any more."""
        before = self._desired[family].chains.pop(chain, None)
        if before is not None:
            self._dirty.chains.add((family, chain))
            if before[1].port_sets:
                self._ports_changed.add(family)

    def want_map(self, family: Family, name: str) -> None:
        """A map from interfaces to chains; it may stay empty."""
        if name not in self._desired[family].maps:
            self._desired[family].maps[name] = {}
            self._dirty.chains.add((family, ""))

    def want_element(self, family: Family, name: str, interface: str, chain: str) -> None:
        """A packet of this interface goes on in that chain."""
        elements = self._desired[family].maps[name]
        if elements.get(interface) != chain:
            interface_key(interface)
            elements[interface] = chain
            self._dirty.elements.add((family, name, interface))

    def unwant_element(self, family: Family, name: str, interface: str) -> None:
        """The map has no element of this interface any more."""
        if self._desired[family].maps[name].pop(interface, None) is not None:
            self._dirty.elements.add((family, name, interface))

    @property
    def garbage(self) -> bool:
        """Whether the kernel has something undesired."""
        return bool(self._unswept) or bool(self._ports_changed)

    @property
    def chains(self) -> int:
        """How many chains are desired."""
        return sum(len(desired.chains) for desired in self._desired.values())

    @property
    def rules(self) -> int:
        """How many rules are desired."""
        return sum(
            len(packed.hashes)
            for desired in self._desired.values()
            for _, packed in desired.chains.values()
        )

    @property
    def maps(self) -> int:
        """How many maps are desired."""
        return sum(len(desired.maps) for desired in self._desired.values())

    def _take_scope(self, actual: Mapping[Family, Actual], *, sweep: bool) -> Scope:
        """What a commit is about; what waits for a sweep is put aside."""
        dirty, self._dirty = self._dirty, Scope()
        if sweep:
            unswept, self._unswept = self._unswept, Scope()
            return dirty | unswept
        undesired = Scope(
            {place for place in dirty.chains if self._is_idle(actual, *place)},
            {
                (family, name, interface)
                for family, name, interface in dirty.elements
                if interface not in self._desired[family].maps[name]
            },
        )
        self._unswept = (self._unswept - dirty) | undesired
        return dirty - undesired

    def _is_idle(self, actual: Mapping[Family, Actual], family: Family, chain: str) -> bool:
        """Whether this chain is undesired, and the kernel does not call it."""
        have = actual[family].chains.get(chain)
        return chain not in self._desired[family].chains and have is not None and have[0] is None

    def _next_plan(self, actual: Mapping[Family, Actual], *, sweep: bool) -> tuple[Scope, Plan]:
        """What a commit is about, and its requests; `actual` becomes what will be there."""
        scope, plan = self._take_scope(actual, sweep=sweep), Plan(self.table)
        changes = []
        unasked = self._unasked_ports(actual) if sweep else {}
        for family, desired in self._desired.items():
            names = sorted(name for f, name in scope.chains if f == family and name)
            elements = sorted((name, key) for f, name, key in scope.elements if f == family)
            gone = unasked.get(family, ())
            if names or elements or gone or (family, "") in scope.chains:
                changes.append(Change(family, desired, actual[family], names, elements, gone))
        plan.make(changes)
        return scope, plan

    def _unasked_ports(self, actual: Mapping[Family, Actual]) -> dict[Family, Sequence[str]]:
        """Sets of ports that stand and that no rule is to ask; a failed commit reads them anew."""
        changed, self._ports_changed = self._ports_changed, set()
        return {
            family: sorted(actual[family].port_sets - self._desired[family].port_sets())
            for family in changed
        }

    def _mark_differences(self, actual: Mapping[Family, Actual], known: Scope) -> list[str]:
        """Compare with a dump: what differs is dirty. Names what was not `known` to differ."""
        differing = Scope()
        for family, desired in self._desired.items():
            there = actual[family]
            for chain in desired.chains.keys() | there.chains.keys():
                have, want = there.chains.get(chain), desired.chains.get(chain)
                if have is None or want is None or have != (want[0], want[1].hashes):
                    differing.chains.add((family, chain))
            if not there.enabled or there.maps.keys() != desired.maps.keys():
                differing.chains.add((family, ""))
            for name, elements in desired.maps.items():
                present = there.maps.get(name, {})
                for interface in elements.keys() | present.keys():
                    if elements.get(interface) != present.get(interface):
                        differing.elements.add((family, name, interface))
            if there.port_sets - desired.port_sets():
                self._ports_changed.add(family)
        self._dirty |= differing
        unknown = differing - known
        chains = [chain or self.table for _, chain in unknown.chains]
        return chains + [f"{interface} in {name}" for _, name, interface in unknown.elements]
