"""From what is wanted and what is there to requests in an order that the kernel takes.

A chain is emptied and filled next to each other, so that the requests may be cut into parts
between chains: an empty chain is never met. Chains that the kernel calls come last: what they
lead to is there before.

A packet keeps the rules of the generation in which it entered a chain, but a map answers it from
the newest generation. A map that went in one batch with the rules that ask it would leave such a
packet without an answer, and the rule behind the map drops it. So rules go first, and their map
goes in a later batch: `barriers` says where. Nor has a chain that is made any rules for such a
packet: an element that leads to it goes in the next batch (`splits`), or the packet would leave the
new chain at its end as if policy had accepted it.

Tested in tests/linux/test_nftables_plan.py and, with a kernel, test_nftables.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from linux.errors import KernelError
from linux.nftables import messages
from linux.nftables.connection import Refused
from linux.nftables.dump import Actual
from linux.nftables.expressions import GOTO, Family, interface_key, verdict_data
from linux.nftables.messages import Hook
from linux.nftables.rules import Packed

_ELEMENTS_PER_MESSAGE = 500
# The headers around a batch, and what rounding to four bytes may add.
_AROUND = 256


@dataclass(slots=True)
class Wanted:
    """What one family's table should hold."""

    chains: dict[str, tuple[Hook | None, Packed]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """Requests, what each is about, and where they may be cut."""

    table: str
    requests: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    barriers: set[int] = field(default_factory=set)
    """Requests before which a batch ends, and every packet has left the rules of that batch."""
    splits: set[int] = field(default_factory=set)
    """Requests before which a batch ends."""
    _rules_of: list[tuple[Family, str] | None] = field(default_factory=list)
    _apart: bool = False
    _cuts: list[int] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def parts(self, room: int) -> list[tuple[int, int]]:
        """First and end of each batch: one, if all fits into so many bytes and nothing waits."""
        found: list[tuple[int, int]] = []
        start = size = 0
        for first, end in itertools.pairwise([0, *self._cuts]):
            length = sum(len(request) + 3 for request in self.requests[first:end])
            apart = first in self.barriers or first in self.splits
            if size and (apart or size + length + _AROUND > room):
                found.append((start, first))
                start, size = first, 0
            size += length
        return [*found, (start, len(self.requests))]

    def blamed(self, error: KernelError) -> dict[tuple[Family, str], int]:
        """The chains whose rules were refused, and the errno."""
        found: dict[tuple[Family, str], int] = {}
        for place, code in error.faults if isinstance(error, Refused) else ():
            chain = self._rules_of[place] if 0 <= place < len(self._rules_of) else None
            if chain is not None:
                found.setdefault(chain, code)
        return found

    def _add(
        self, about: str, *requests: bytes, rules_of: tuple[Family, str] | None = None
    ) -> None:
        self.requests += requests
        self.names += [about] * len(requests)
        self._rules_of += [rules_of] * len(requests)

    def _cut(self) -> None:
        self._cuts.append(len(self.requests))

    def family(
        self,
        family: Family,
        wanted: Wanted,
        actual: Actual,
        names: Sequence[str],
        elements: Sequence[tuple[str, str]],
    ) -> None:
        """Plan these chains and elements (map, interface); `actual` becomes what will be there."""
        doomed, made = self.chains(family, wanted, actual, names, elements)
        self.elements(family, wanted, actual, elements, doomed, made)

    def chains(
        self,
        family: Family,
        wanted: Wanted,
        actual: Actual,
        names: Sequence[str],
        elements: Sequence[tuple[str, str]],
    ) -> tuple[Sequence[str], Collection[tuple[str, str]]]:
        """Plan what is made and written, and elements that go.

        Returns the chains that are to be removed, and each (map, chain) where the map is asked
        already and the chain is made here.
        """
        table = self.table
        self._apart = False
        if not actual.enabled:
            self._add(f"make table {table}", messages.new_table(family, table))
            actual.enabled = True
        write: list[str] = []
        # A map that is made here is asked by no packet yet.
        made = {
            (asked, name) for asked in actual.maps for name in names if name not in actual.chains
        }
        doomed: list[str] = []
        for name in names:
            have, want = actual.chains.get(name), wanted.chains.get(name)
            if want is None:
                doomed += [name] if have is not None else []
            elif have is None or have != (want[0], want[1].hashes):
                write.append(name)
                if have is None and want[0] is None:
                    self._add(f"make chain {name}", messages.new_chain(family, table, name, None))
        self._make_maps(family, wanted, actual)
        self._cut()
        gone = [e for e in elements if e[1] not in wanted.maps.get(e[0], {})]
        self._change_elements(family, wanted, actual, gone, messages.DELSETELEM)
        for name in sorted(write, key=lambda name: wanted.chains[name][0] is not None):
            self._write(family, name, *wanted.chains[name], actual)
        self.written += write
        return doomed, made

    def elements(
        self,
        family: Family,
        wanted: Wanted,
        actual: Actual,
        elements: Sequence[tuple[str, str]],
        doomed: Sequence[str],
        made: Collection[tuple[str, str]],
    ) -> None:
        """Plan elements that come, and what is removed, once all families have their chains."""
        table = self.table
        leads = {(name, wanted.maps.get(name, {}).get(key)) for name, key in elements}
        if not self._apart and not leads.isdisjoint(made):
            self._cut()
            self.splits.add(len(self.requests))
            self._apart = True
        self._change_elements(family, wanted, actual, elements, messages.DELSETELEM)
        self._change_elements(family, wanted, actual, elements, messages.NEWSETELEM)
        for name in doomed:
            self._add(f"empty chain {name}", messages.flush_chain(family, table, name))
        # No rule asks these maps any more; their elements may lead to chains that go below.
        unused = actual.maps.keys() - wanted.maps.keys()
        if unused:
            self._cut()
            self.barriers.add(len(self.requests))
        for name in unused:
            self._add(f"remove map {name}", messages.delete_set(family, table, name))
            del actual.maps[name]
        for name in doomed:
            self._add(f"remove chain {name}", messages.delete_chain(family, table, name))
            del actual.chains[name]
        self._cut()
        self.deleted += doomed

    def _write(
        self, family: Family, name: str, hook: Hook | None, packed: Packed, actual: Actual
    ) -> None:
        table, have = self.table, actual.chains.get(name)
        if have is not None:
            self._add(f"empty chain {name}", messages.flush_chain(family, table, name))
            if have[0] != hook:
                self._add(f"remove chain {name}", messages.delete_chain(family, table, name))
        if hook is not None or (have is not None and have[0] != hook):
            self._add(f"make chain {name}", messages.new_chain(family, table, name, hook))
        requests = packed.requests(family, table, name, self._ids)
        self._add(f"write chain {name}", *requests, rules_of=(family, name))
        self._cut()
        actual.chains[name] = (hook, packed.hashes)

    def _make_maps(self, family: Family, wanted: Wanted, actual: Actual) -> None:
        for name in wanted.maps.keys() - actual.maps.keys():
            request = messages.new_set(
                family,
                self.table,
                name,
                key_type=messages.TYPE_INTERFACE,
                key_length=16,
                set_id=next(self._ids),
                data_type=messages.TYPE_VERDICT,
            )
            self._add(f"make map {name}", request)
            actual.maps[name] = {}

    def _change_elements(
        self,
        family: Family,
        wanted: Wanted,
        actual: Actual,
        elements: Sequence[tuple[str, str]],
        kind: int,
    ) -> None:
        for name, group in itertools.groupby(elements, key=lambda each: each[0]):
            have, want = actual.maps[name], wanted.maps.get(name, {})
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
                self._add(f"change map {name}", request)
                self._cut()


def _to_chain(interface: str, chain: str) -> bytes:
    data = verdict_data(messages.ELEMENT_DATA, GOTO, chain)
    return messages.element(interface_key(interface), data=data)
