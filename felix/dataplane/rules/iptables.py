"""The iptables tables of both families: what is wanted in them, committed where it differs.

Invariants:
  TBL-1  A table in which nothing is wanted otherwise than before is not even looked at, except
         by the periodic re-read; so nothing runs while nothing changes.
  TBL-2  filter is committed last: what it refers to in other tables is there before.
  TBL-3  What is no longer wanted may stand until `sweep`; what comes never waits for it.
  TBL-4  When a table's restore is refused, the chains that are refused alone are found and named
         (`refused`), so that the others need not wait for them.
Tested in tests/felix/kernel/test_repair.py, test_quarantine.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

from felix.dataplane.rules.chain_target import Family
from felix.dataplane.rules.drift import Drift
from felix.dataplane.rules.large_chains import LargeChains
from felix.rules.dispatch import Bins
from felix.rules.iptables import render_rule, render_rules
from felix.rules.model import Action, Chain, Rule, TableModel
from libcalico.process.tasks import together
from linux.errors import CommandError
from linux.iptables import HashScheme, Table, detect_backend
from linux.iptables.render import Renderer
from linux.iptables.table import Report

SCHEME = HashScheme(
    "cali:",
    ("cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-"),
)
NAMES = ("raw", "mangle", "nat", "filter")
AT_ONCE = 100
"""Rules that are rendered in one step."""
MOST_AHEAD = 80_000
MOST_TEXTS = 4000
"""Rendered chains that are remembered."""


class ModelTable:
    """One table, told in the rule model."""

    def __init__(self, table: Table, texts: Texts) -> None:
        self._table, self._texts = table, texts
        self._large = LargeChains()

    def want(self, chain: Chain) -> None:
        """A chain, whole."""
        self._texts.forget(self._large.now(chain.name, chain.rules))
        text = self._texts.of_bin(chain.rules) if chain.unordered else self._texts.of(chain.rules)
        self._table.want(chain.name, text, unordered=chain.unordered, closed=chain.closed)

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Render these rules ahead, in steps: the next chain that holds them finds it done."""
        return self._texts.prepare(rules)

    def unwant(self, name: str) -> None:
        """This chain is not desired any more."""
        self._texts.forget(self._large.now(name))
        self._table.unwant(name)

    def differs(self, name: str) -> bool:
        """Whether the kernel has a chain of this name with other rules than are wanted."""
        return self._table.differs(name)


class Texts:
    """Rendered rules by identity: pods of one kind have one tuple of rules, in both families."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Rule, ...], tuple[str, ...]]] = {}
        self._lines: dict[int, tuple[Rule, str]] = {}
        self._ahead: dict[int, tuple[Rule, str]] = {}

    def of(self, rules: tuple[Rule, ...]) -> tuple[str, ...]:
        """The text of these rules."""
        known = self._known.get(id(rules))
        if known is None:
            if len(self._known) >= MOST_TEXTS:
                self._known.clear()
            known = self._known[id(rules)] = (rules, tuple(map(self._line, rules)))
        return known[1]

    def forget(self, identity: int) -> None:
        """Rules with this `id` are no chain's any more."""
        self._known.pop(identity, None)

    def _line(self, rule: Rule) -> str:
        known = self._ahead.pop(id(rule), None)
        return render_rule(rule) if known is None else known[1]

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Render these ahead, in steps; what is rendered serves once."""
        for number, rule in enumerate(rules, 1):
            if id(rule) not in self._ahead:
                if len(self._ahead) >= MOST_AHEAD:
                    self._ahead.clear()
                self._ahead[id(rule)] = (rule, render_rule(rule))
            if number % AT_ONCE == 0:
                yield

    def of_bin(self, rules: tuple[Rule, ...]) -> tuple[str, ...]:
        """The same of a chain that comes again and again with one rule more, or less."""
        known = self._lines
        if len(known) >= MOST_TEXTS:
            known.clear()
        texts = []
        for rule in rules:
            line = known.get(id(rule))
            if line is None:
                line = known[id(rule)] = (rule, render_rule(rule))
            texts.append(line[1])
        return tuple(texts)


class IptablesTables:
    """Four tables in each family. Made by `open_tables`."""

    def __init__(
        self, backend: Literal["nft", "legacy"], families: frozenset[int], lock_wait: int
    ) -> None:
        self.backend = backend
        numbers: tuple[Family, ...] = (4, 6)
        renderers = {name: Renderer(SCHEME) for name in NAMES}
        self._tables: dict[tuple[Family, str], Table] = {
            (family, name): Table(
                name,
                family,
                backend,
                SCHEME,
                lock_wait=lock_wait,
                warm=name == "filter",
                renderer=renderers[name],
            )
            for family in numbers
            if family in families
            for name in NAMES
        }
        texts = Texts()
        self.places: dict[tuple[int, str], ModelTable] = {
            place: ModelTable(table, texts) for place, table in self._tables.items()
        }
        self.refused: dict[tuple[int, str], dict[str, str]] = {}
        self._models: dict[tuple[Family, str], TableModel] = {}
        self._garbage: set[tuple[Family, str]] = set()
        self.drifted = 0
        self.drift = Drift()

    @property
    def name(self) -> str:
        """What people call it."""
        return f"iptables-{self.backend}"

    def dispatch(self, family: int, prefixes: tuple[str, ...], deny: Action) -> Bins:
        """How packets of one family find their endpoint: the same way in each."""
        return Bins(prefixes, deny)

    def take_lost(self) -> bool:
        """Whether sets went with the rules: ipsets lie elsewhere."""
        return False

    @property
    def garbage(self) -> bool:
        """Whether the kernel has something of ours that is not desired."""
        return bool(self._garbage)

    @property
    def saves(self) -> int:
        """Programs started to read tables, so far."""
        return sum(table.programs.saves for table in self._tables.values())

    @property
    def restores(self) -> int:
        """Programs started to write tables, so far."""
        return sum(table.programs.restores for table in self._tables.values())

    @property
    def errors(self) -> tuple[int, int]:
        """How many reads and how many writes failed."""
        programs = [table.programs for table in self._tables.values()]
        return sum(p.save_errors for p in programs), sum(p.restore_errors for p in programs)

    @property
    def lines(self) -> int:
        """Lines written so far."""
        return sum(table.programs.lines for table in self._tables.values())

    @property
    def rules(self) -> int:
        """Rules wanted in chains of ours."""
        return sum(table.rules for table in self._tables.values())

    @property
    def chains(self) -> int:
        """Chains of ours that are wanted."""
        return sum(table.chains for table in self._tables.values())

    def want(self, family: Family, models: Mapping[str, TableModel]) -> None:
        """The chains and hooks of these tables that do not depend on endpoints or policies."""
        for name, model in models.items():
            place, table = (family, name), self._tables[family, name]
            before = self._models.get(place)
            if before == model:
                continue
            self._models[place] = model
            names = {chain.name for chain in model.chains}
            for chain in before.chains if before is not None else ():
                if chain.name not in names:
                    table.unwant(chain.name)
            for chain in model.chains:
                self.places[place].want(chain)
            table.want_hooks(
                {chain: render_rules(rules) for chain, rules in model.inserts.items()},
                {chain: render_rules(rules) for chain, rules in model.appends.items()},
            )

    def _due(self, *, last: bool, sweep: bool) -> list[tuple[tuple[Family, str], Table]]:
        """The tables in which something is to be written: filter, or (not `last`) the others."""
        return [
            (place, table)
            for place, table in self._tables.items()
            if (place[1] == "filter") is last
            and (table.dirty or (sweep and place in self._garbage))
        ]

    def _written(self, place: tuple[Family, str], report: Report) -> None:
        self.refused.pop(place, None)
        self.drifted += len(report.drift)
        (self._garbage.add if report.garbage else self._garbage.discard)(place)

    def commit_now(self, *, sweep: bool = True) -> bool:
        """As `commit`, before this returns; False: that takes a program, or a refusal came, and a
        `commit` is to follow.
        """
        return all(
            self._at_once(place, table, sweep=sweep)
            for last in (False, True)
            for place, table in self._due(last=last, sweep=sweep)
        )

    def _at_once(self, place: tuple[Family, str], table: Table, *, sweep: bool) -> bool:
        report = table.commit_now(sweep=sweep)
        if report is not None:
            self._written(place, report)
        return report is not None

    async def commit(self, *, sweep: bool = True) -> dict[str, str]:
        """Write the tables that differ, several at once; returns failures by table."""
        failures: dict[str, str] = {}

        async def one(place: tuple[Family, str], table: Table) -> None:
            try:
                report = await table.commit(sweep=sweep)
            except CommandError as error:
                failures[_title(place)] = str(error)
                self.refused[place] = await table.refused()
                return
            self._written(place, report)

        for last in (False, True):
            due = [
                one(place, table)
                for place, table in self._due(last=last, sweep=sweep)
                if not self._at_once(place, table, sweep=sweep)
            ]
            if due:
                await together(due, "commit of rules")
        return failures

    async def accepts(self, place: tuple[int, str], chains: Iterable[Chain]) -> frozenset[str]:
        """Those of these chains, by name, that the kernel would take now."""
        table = self._tables[cast("Family", place[0]), place[1]]
        texts = {chain.name: render_rules(chain.rules) for chain in chains}
        return frozenset(texts.keys() - (await table.refused(texts)).keys())

    async def counters(
        self, family: Family, table: str, chains: Collection[str]
    ) -> dict[str, list[tuple[int, int, str]]]:
        """Packets, bytes and text of each rule of these chains, as the kernel has them."""
        return await self._tables[family, table].counters(chains)

    async def read_back(self) -> bool:
        """Read every table, one after the other; returns whether a commit is due.

        Beside commits, which wait for one table at most. Raises the first `CommandError` once all
        have been tried.
        """
        unread: list[CommandError] = []
        differing: set[str] = set()
        for place, table in self._tables.items():
            try:
                drift = await table.refresh()
                self.drifted += len(drift)
                differing |= {f"{name} in {_title(place)}" for name in drift}
            except CommandError as error:
                unread.append(error)
        self.drift.take(differing)
        if unread:
            raise unread[0]
        return any(table.dirty for table in self._tables.values())

    def close(self) -> None:
        """Give back what waits; the rules stay."""
        for table in self._tables.values():
            table.close()


def _title(place: tuple[Family, str]) -> str:
    return f"{place[1]} of IPv{place[0]}"


async def open_tables(
    wanted_backend: str, families: frozenset[int], lock_wait: float
) -> IptablesTables:
    """The tables of the back end that this host uses. Raises `CommandError` without iptables."""
    backend = await detect_backend(wanted_backend.lower())
    return IptablesTables(backend, families, max(1, round(lock_wait)))
