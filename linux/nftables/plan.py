"""From desired and actual to requests in an order that the kernel takes.

A chain is emptied and filled next to each other, so that the requests may be cut into parts
between chains: an empty chain is never met. Chains that the kernel calls come last: what they
lead to is there before.

A packet keeps the rules of the generation in which it entered a chain, but a map answers it from
the newest generation. A map that went in one batch with the rules that ask it would leave such a
packet without an answer, and the rule behind the map drops it. So rules go first, and their map
goes in a later batch.

A new chain has no rules for such a packet either: an element that leads to it goes in the next
batch, or the packet would leave the chain at its end as if policy had accepted it. A set of ports
is asked in the newest generation too, and one that came in the same batch as its rules was seen to
be empty for up to 4.5 ms: sets of ports are made a batch before and never changed. `Plan.splits`
says where batches end.

Tested in tests/linux/test_nftables_plan.py and, with a kernel, test_nftables.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from linux.nftables import messages
from linux.nftables.batches import Batches
from linux.nftables.dump import Actual
from linux.nftables.expressions import Family, interface_key
from linux.nftables.messages import Hook
from linux.nftables.port_sets import PortSet
from linux.nftables.rules import Packed
from linux.nftables.statements import GOTO, verdict_data

_ELEMENTS_PER_MESSAGE = 500


@dataclass(slots=True)
class DesiredTable:
    """What one family's table should hold."""

    chains: dict[str, tuple[Hook | None, Packed]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)

    def port_sets(self) -> set[str]:
        """The names of the sets of ports that rules ask."""
        return {name for _, packed in self.chains.values() for name in packed.port_sets}


@dataclass(frozen=True, slots=True)
class Change:
    """The chains and elements (map, interface) of one family that a plan is about.

    `unasked`: sets of ports that no rule asks once the chains are written.
    """

    family: Family
    desired: DesiredTable
    actual: Actual
    chains: Sequence[str]
    elements: Sequence[tuple[str, str]]
    unasked: Sequence[str] = ()


class Plan(Batches):
    """Requests for some changes of `table`, and the chains that they write and delete."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self.table = table
        self.written: list[str] = []
        self.deleted: list[str] = []

    def make(self, changes: Sequence[Change]) -> None:
        """Plan all families; each `actual` becomes what will be there."""
        leads_to_new = any(_leads_to_new(change) for change in changes)
        missing = {change.family: _missing_port_sets(change) for change in changes}
        for change in changes:
            self._make_table(change)
            self._make_port_sets(change, missing[change.family])
        if any(missing.values()):
            self.split(wait=False)
        for change in changes:
            self._chains(change)
        if leads_to_new:
            self.split(wait=False)
        for change in changes:
            self._elements(change)
        # No rule asks these maps any more; their elements may lead to chains that go too.
        if any(change.actual.maps.keys() - change.desired.maps.keys() for change in changes):
            self.split(wait=True)
        for change in changes:
            self._remove(change)
        if any(change.unasked for change in changes):
            self.split(wait=False)
        for change in changes:
            self._remove_port_sets(change)

    def _make_table(self, change: Change) -> None:
        if not change.actual.enabled:
            self.add(f"make table {self.table}", messages.new_table(change.family, self.table))
            change.actual.enabled = True

    def _make_port_sets(self, change: Change, missing: Mapping[str, PortSet]) -> None:
        for name, ports in sorted(missing.items()):
            requests = messages.port_set(change.family, self.table, ports)
            self.add(f"make set {name}", *requests)
            self.cut()
        change.actual.port_sets |= missing.keys()

    def _chains(self, change: Change) -> None:
        """Make and write chains, and remove elements."""
        family, desired, actual = change.family, change.desired, change.actual
        write: list[str] = []
        for name in change.chains:
            have, want = actual.chains.get(name), desired.chains.get(name)
            if want is not None and have != (want[0], want[1].hashes):
                write.append(name)
                if have is None and want[0] is None:
                    made = messages.new_chain(family, self.table, name, None)
                    self.add(f"make chain {name}", made)
        self._make_maps(family, desired, actual)
        self.cut()
        gone = [each for each in change.elements if _target(desired, each) is None]
        self._change_elements(family, desired, actual, gone, messages.DELSETELEM)
        for name in sorted(write, key=lambda name: desired.chains[name][0] is not None):
            self._write(family, name, *desired.chains[name], actual)
        self.written += write

    def _elements(self, change: Change) -> None:
        """Add and move elements, and empty undesired chains."""
        family, desired, actual = change.family, change.desired, change.actual
        for kind in (messages.DELSETELEM, messages.NEWSETELEM):
            self._change_elements(family, desired, actual, change.elements, kind)
        for name in _removed_chains(change):
            self.add(f"empty chain {name}", messages.flush_chain(family, self.table, name))

    def _remove(self, change: Change) -> None:
        """Remove undesired maps and chains."""
        family, actual = change.family, change.actual
        for name in actual.maps.keys() - change.desired.maps.keys():
            self.add(f"remove map {name}", messages.delete_set(family, self.table, name))
            del actual.maps[name]
        for name in _removed_chains(change):
            self.add(f"remove chain {name}", messages.delete_chain(family, self.table, name))
            del actual.chains[name]
            self.deleted.append(name)
        self.cut()

    def _remove_port_sets(self, change: Change) -> None:
        for name in change.unasked:
            self.add(f"remove set {name}", messages.delete_set(change.family, self.table, name))
            change.actual.port_sets.discard(name)
            self.cut()

    def _write(
        self, family: Family, name: str, hook: Hook | None, packed: Packed, actual: Actual
    ) -> None:
        table, have = self.table, actual.chains.get(name)
        if have is not None:
            self.add(f"empty chain {name}", messages.flush_chain(family, table, name))
            if have[0] != hook:
                self.add(f"remove chain {name}", messages.delete_chain(family, table, name))
        if hook is not None or (have is not None and have[0] != hook):
            self.add(f"make chain {name}", messages.new_chain(family, table, name, hook))
        requests = packed.requests(family, table, name)
        self.add(f"write chain {name}", *requests, rules_of=(family, name))
        self.cut()
        actual.chains[name] = (hook, packed.hashes)

    def _make_maps(self, family: Family, desired: DesiredTable, actual: Actual) -> None:
        for name in desired.maps.keys() - actual.maps.keys():
            request = messages.new_set(
                family,
                self.table,
                name,
                key_type=messages.TYPE_INTERFACE,
                key_length=16,
                data_type=messages.TYPE_VERDICT,
            )
            self.add(f"make map {name}", request)
            actual.maps[name] = {}

    def _change_elements(
        self,
        family: Family,
        desired: DesiredTable,
        actual: Actual,
        elements: Sequence[tuple[str, str]],
        kind: int,
    ) -> None:
        for name, group in itertools.groupby(elements, key=lambda each: each[0]):
            have, want = actual.maps[name], desired.maps.get(name, {})
            packed = []
            for _, interface in group:
                there, asked = have.get(interface), want.get(interface)
                if kind == messages.DELSETELEM and there is not None and there != asked:
                    packed.append(messages.element(interface_key(interface)))
                    del have[interface]
                elif kind == messages.NEWSETELEM and asked is not None and there is None:
                    packed.append(_to_chain(interface, asked))
                    have[interface] = asked
            for first in range(0, len(packed), _ELEMENTS_PER_MESSAGE):
                part = packed[first : first + _ELEMENTS_PER_MESSAGE]
                request = messages.change_elements(kind, family, self.table, name, part)
                self.add(f"change map {name}", request)
                self.cut()


def _target(desired: DesiredTable, element: tuple[str, str]) -> str | None:
    name, interface = element
    return desired.maps.get(name, {}).get(interface)


def _removed_chains(change: Change) -> list[str]:
    have, want = change.actual.chains, change.desired.chains
    return [name for name in change.chains if name in have and name not in want]


def _missing_port_sets(change: Change) -> dict[str, PortSet]:
    """The sets of ports that the written chains look up and that are not there yet."""
    chains = change.desired.chains
    written = [chains[name][1] for name in change.chains if name in chains]
    return {
        name: ports
        for packed in written
        for name, ports in packed.port_sets.items()
        if name not in change.actual.port_sets
    }


def _leads_to_new(change: Change) -> bool:
    """Whether a map that packets ask already is to lead to a chain that is not there yet."""
    return any(
        chain is not None and each[0] in change.actual.maps and chain not in change.actual.chains
        for each in change.elements
        for chain in [_target(change.desired, each)]
    )


def _to_chain(interface: str, chain: str) -> bytes:
    data = verdict_data(messages.ELEMENT_DATA, GOTO, chain)
    return messages.element(interface_key(interface), data=data)
