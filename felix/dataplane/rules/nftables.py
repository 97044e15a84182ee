"""The rules in nftables: the same face as `felix.dataplane.rules.iptables`, one table a family.

What is wanted is told layer by layer in the rule model; here it becomes chains of our table, and
endpoints become elements of verdict maps, so that a packet finds its chains by one look-up however
many there are. Everything that differs goes to the kernel as one batch.

Invariants:
  NFD-1  Nothing is sent while nothing changed, and a change is one batch for all layers and both
         families: no packet meets half of it. What is no longer wanted may wait for `sweep`.
  NFD-2  An interface without an element in the map is dropped, as in `felix.rules.dispatch`.
  NFD-3  Where the kernel refuses the rules of a chain, that chain is named (`refused`).
  NFD-4  Tables that vanished, as a flush of the whole rule set leaves it, are made again, and with
         them the sets (`lost`). What others change is heard at once (`watch`).
Tested in tests/felix/dataplane/test_nftables_tables.py and by all tests that have a `backend`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from felix.dataplane.rules.chain_target import Family
from felix.dataplane.rules.drift import Drift
from felix.dataplane.rules.large_chains import LargeChains
from felix.rules import names, nftables
from felix.rules.dispatch import DIRECTIONS, unknown
from felix.rules.model import Action, Chain, Rule, TableModel
from linux.errors import KernelError
from linux.nftables import Code, NamedSets, Packed, Ruleset, Watch, pack, packing

Place = tuple[int, str]
NAMES = ("raw", "mangle", "nat", "filter")
AT_ONCE = 100
"""Rules that are rendered in one step."""
MOST_AHEAD = 80_000
MOST_PACKED = 4000
"""Packed chains that are remembered."""
_LONGEST_INTERFACE = 15
_SET_PREFIX = re.compile(r"(cali[46]0(?:s|n|svc|svcnoport))-")


class ModelTable:
    """One layer of one family, told in the rule model."""

    def __init__(self, rules: Ruleset, family: Family, layer: str) -> None:
        self._rules, self._family, self._layer = rules, family, layer
        self._known: dict[int, tuple[tuple[Rule, ...], Packed]] = {}
        self._ahead: dict[int, tuple[Rule, list[Code]]] = {}
        self._large = LargeChains()

    def want(self, chain: Chain) -> None:
        """A chain, whole."""
        self._known.pop(self._large.now(chain.name, chain.rules), None)
        name = nftables.chain_name(self._layer, chain.name)
        self._rules.want(self._family, name, self.packed(chain.rules))

    def want_hook(self, chain: str, rules: tuple[Rule, ...]) -> None:
        """What stands where iptables has a chain of the kernel's."""
        name = nftables.chain_name(self._layer, chain)
        hook = nftables.hook(self._layer, chain)
        self._rules.want(self._family, name, self.packed(rules), hook)

    def unwant(self, name: str) -> None:
        """This chain is not desired any more."""
        self._known.pop(self._large.now(name), None)
        self._rules.unwant(self._family, nftables.chain_name(self._layer, name))

    def differs(self, name: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than are wanted."""
        return self._rules.differs(self._family, nftables.chain_name(self._layer, name))

    def packed(self, rules: tuple[Rule, ...]) -> Packed:
        """Rules as bytes; pods of one kind have one tuple of rules, which is packed once."""
        known = self._known.get(id(rules))
        if known is None:
            if len(self._known) >= MOST_PACKED:
                self._known.clear()
            codes = [code for rule in rules for code in self._codes(rule)]
            known = self._known[id(rules)] = (rules, pack(codes))
        return known[1]

    def _codes(self, rule: Rule) -> list[Code]:
        known = self._ahead.pop(id(rule), None)
        return nftables.render_rule(rule, self._family, self._layer) if known is None else known[1]

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Render these ahead, in steps; what is rendered serves once."""
        for number, rule in enumerate(rules, 1):
            if id(rule) not in self._ahead:
                if len(self._ahead) >= MOST_AHEAD:
                    self._ahead.clear()
                codes = nftables.render_rule(rule, self._family, self._layer)
                self._ahead[id(rule)] = (rule, codes)
            if number % AT_ONCE == 0:
                yield
        if len(rules) < AT_ONCE or id(rules) in self._known:
            return
        packed = yield from packing([code for rule in rules for code in self._codes(rule)])
        self._known[id(rules)] = (tuple(rules), packed)


class MapDispatch:
    """Endpoints as elements of the verdict maps of both directions: no chain changes."""

    def __init__(self, rules: Ruleset, family: Family, deny: Action) -> None:
        self._rules, self._family = rules, family
        for direction in DIRECTIONS:
            rules.want_map(family, direction.root)
            incoming = nftables.MAPS[direction.root]
            codes = [nftables.dispatch_rule(direction.root, incoming=incoming)]
            codes += nftables.render_rule(unknown(deny), family, "filter")
            rules.want(family, nftables.chain_name("filter", direction.root), pack(codes))

    def add(self, interface: str) -> list[Chain]:
        """An endpoint came. No interface has a name that is too long: it stays unknown."""
        if 0 < len(interface.encode()) <= _LONGEST_INTERFACE:
            for direction in DIRECTIONS:
                chain = names.endpoint_chain(direction.endpoint, interface)
                where = nftables.chain_name("filter", chain)
                self._rules.want_element(self._family, direction.root, interface, where)
        return []

    def remove(self, interface: str) -> tuple[list[Chain], list[str]]:
        """An endpoint left."""
        for direction in DIRECTIONS:
            self._rules.unwant_element(self._family, direction.root, interface)
        return [], []

    def all(self) -> list[Chain]:
        """No chain depends on the endpoints."""
        return []


class NftTables:
    """All layers of both families."""

    name = "nftables"

    def __init__(self, families: Collection[int]) -> None:
        numbers: tuple[Family, ...] = (4, 6)
        self._families = tuple(family for family in numbers if family in families)
        self._rules = Ruleset(self._families, nftables.TABLE)
        self.places: dict[Place, ModelTable] = {
            (family, layer): ModelTable(self._rules, family, layer)
            for family in self._families
            for layer in NAMES
        }
        self._models: dict[Place, TableModel] = {}
        self._suspects: frozenset[tuple[Family, str]] = frozenset()
        self.refused: dict[Place, dict[str, str]] = {}
        self._watch: Watch | None = None
        self.drifted = 0
        self.drift = Drift()
        self.lost = False

    def dispatch(self, family: int, prefixes: tuple[str, ...], deny: Action) -> MapDispatch:
        """How packets of one family find their endpoint: the maps do not depend on prefixes."""
        return MapDispatch(self._rules, cast("Family", family), deny)

    @property
    def garbage(self) -> bool:
        """Whether the kernel has something of ours that is not desired."""
        return self._rules.garbage

    @property
    def saves(self) -> int:
        """How often the tables were read."""
        return self._rules.dumps

    @property
    def restores(self) -> int:
        """How many batches were sent."""
        return self._rules.commits

    @property
    def errors(self) -> tuple[int, int]:
        """How many reads and how many batches failed."""
        return self._rules.dump_errors, self._rules.commit_errors

    @property
    def rules(self) -> int:
        """Rules wanted."""
        return self._rules.rules

    @property
    def chains(self) -> int:
        """Chains wanted."""
        return self._rules.chains

    @property
    def maps(self) -> int:
        """Verdict maps wanted."""
        return self._rules.maps

    def want(self, family: Family, models: Mapping[str, TableModel]) -> None:
        """The chains and hooks of these layers that do not depend on endpoints or policies."""
        for layer, model in models.items():
            place, table = (family, layer), self.places[family, layer]
            before = self._models.get(place)
            if before == model:
                continue
            self._models[place] = model
            names = {chain.name for chain in model.chains} | _hooks(model)
            for name in (_owned(before) if before is not None else set()) - names:
                table.unwant(name)
            for chain in model.chains:
                table.want(chain)
            for name in sorted(_hooks(model)):
                rules = (*model.inserts.get(name, ()), *model.appends.get(name, ()))
                table.want_hook(name, rules)

    def commit_now(self, *, sweep: bool = True) -> bool:
        """As `commit`, before this returns; False where that takes time, or a refusal came."""
        if self._due(sweep):
            if not self._rules.commit_now(sweep=sweep):
                return False
            self.refused, self._suspects = {}, frozenset()
        return True

    async def commit(self, *, sweep: bool = True) -> dict[str, str]:
        """Write what differs; returns failures. What is not desired may stay until `sweep`."""
        if not self._due(sweep):
            return {}
        doubted = self._rules.doubted
        try:
            report = await self._rules.commit(sweep=sweep)
        except KernelError as error:
            self._blame(error)
            return {nftables.TABLE: str(error)}
        self.refused, self._suspects = {}, frozenset()
        self.drifted += len(report.drift)
        if doubted:
            self._found(report.drift)
        return {}

    def _due(self, sweep: bool) -> bool:
        return self._rules.dirty or (sweep and self._rules.garbage)

    def _blame(self, error: KernelError) -> None:
        # What a rule names may have been removed by another program: it is made again first.
        self.lost = self.lost or error.errno == errno.ENOENT
        blamed = self._rules.blamed
        self.refused = {}
        for (family, chain), code in blamed.items():
            if code == errno.ENOENT and (family, chain) not in self._suspects:
                continue
            layer, _, name = chain.partition("-")
            self.refused.setdefault((family, layer), {})[name] = os.strerror(code)
        self._suspects = frozenset(blamed)

    async def accepts(self, place: Place, chains: Iterable[Chain]) -> frozenset[str]:
        """Those of these chains, by name, that the kernel would take now."""
        table, family = self.places[place], cast("Family", place[0])
        return frozenset(
            [
                chain.name
                for chain in chains
                if await self._rules.accepts(family, table.packed(chain.rules))
            ]
        )

    async def read_back(self) -> bool:
        """Read everything; returns whether a commit is due. Raises `KernelError`."""
        drift = await self._rules.refresh()
        self.drifted += len(drift)
        self._found(drift)
        return self._rules.dirty

    def _found(self, drift: tuple[str, ...]) -> None:
        self.drift.take(set(drift))
        self.lost = self.lost or nftables.TABLE in drift

    async def counters(
        self, family: Family, table: str, chains: Collection[str]
    ) -> dict[str, list[tuple[int, int, str]]]:
        """(packets, bytes, comment) of each rule of these chains of the model."""
        names_of = {nftables.chain_name(table, chain): chain for chain in chains}
        by_name = await self._rules.counters(family, names_of)
        return {names_of[name]: rules for name, rules in by_name.items()}

    def watch(self, sets: NamedSets, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever another program changes our tables or sets.

        Nothing is said to be written then before the tables were read.
        """

        def told() -> None:
            self._rules.doubt()
            changed()

        self._watch = Watch(nftables.TABLE, (self._rules.port, sets.port), told)

    def take_lost(self) -> bool:
        """Whether sets may be gone with what another program removed; says so once (NFD-4)."""
        lost, self.lost = self.lost, False
        return lost

    def remove(self) -> bool:
        """Take the tables away, with the sets in them; returns whether there were any.

        Raises `KernelError`.
        """
        return self._rules.remove()

    def close(self) -> None:
        """Give the connections back; the rules stay."""
        if self._watch is not None:
            self._watch.close()
        self._rules.close()


def open_sets(families: Collection[int]) -> NamedSets:
    """The sets of our tables, by the names that ipsets have."""
    prefixes: dict[Family, str] = {}
    if 4 in families:
        prefixes[4] = "cali4"
    if 6 in families:
        prefixes[6] = "cali6"
    return NamedSets(prefixes, nftables.TABLE, (nftables.set_name, _ipset_name))


def _ipset_name(name: str) -> str:
    return _SET_PREFIX.sub(r"\1:", name, count=1)


def _hooks(model: TableModel) -> set[str]:
    return model.inserts.keys() | model.appends.keys()


def _owned(model: TableModel) -> set[str]:
    return {chain.name for chain in model.chains} | _hooks(model)
