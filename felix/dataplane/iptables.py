"""The iptables tables of both families: what is wanted in them, committed where it differs.

Invariants:
  TBL-1  A table in which nothing is wanted otherwise than before is not even looked at, except
         by the periodic re-read; so nothing runs while nothing changes.
  TBL-2  filter is committed last: what it refers to in other tables is there before.
  TBL-3  What nobody wants any more may stand until `sweep`; what comes never waits for it.
Tested in tests/felix/test_repair.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Literal

from felix.rules.iptables import render_rules
from felix.rules.model import TableModel
from linux.errors import CommandError
from linux.iptables import HashScheme, Table, detect_backend

SCHEME = HashScheme(
    "cali:",
    ("cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-"),
)
NAMES = ("raw", "mangle", "nat", "filter")
Family = Literal[4, 6]

log = logging.getLogger(__name__)


class IptablesTables:
    """Four tables in each family. Made by `open_tables`."""

    def __init__(
        self, backend: Literal["nft", "legacy"], families: frozenset[int], lock_wait: int
    ) -> None:
        self.backend = backend
        numbers: tuple[Family, ...] = (4, 6)
        self._tables: dict[tuple[Family, str], Table] = {
            (family, name): Table(
                name, family, backend, SCHEME, lock_wait=lock_wait, warm=name == "filter"
            )
            for family in numbers
            if family in families
            for name in NAMES
        }
        self._models: dict[tuple[Family, str], TableModel] = {}
        self._garbage: set[tuple[Family, str]] = set()
        self.drifted = 0

    @property
    def filters(self) -> dict[int, Table]:
        """The filter table of each family."""
        return {family: table for (family, name), table in self._tables.items() if name == "filter"}

    @property
    def garbage(self) -> bool:
        """Whether something stands that nobody wants."""
        return bool(self._garbage)

    @property
    def saves(self) -> int:
        """Programs started to read tables, so far."""
        return sum(table.saves for table in self._tables.values())

    @property
    def restores(self) -> int:
        """Programs started to write tables, so far."""
        return sum(table.restores for table in self._tables.values())

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
            wanted = {chain.name for chain in model.chains}
            for chain in before.chains if before is not None else ():
                if chain.name not in wanted:
                    table.unwant(chain.name)
            for chain in model.chains:
                table.want(chain.name, render_rules(chain.rules))
            table.want_hooks(
                {chain: render_rules(rules) for chain, rules in model.inserts.items()},
                {chain: render_rules(rules) for chain, rules in model.appends.items()},
            )

    async def commit(self, *, sweep: bool = True) -> dict[str, str]:
        """Write the tables that differ, several at once; returns failures by table."""
        failures: dict[str, str] = {}

        async def one(place: tuple[Family, str], table: Table) -> None:
            try:
                report = await table.commit(sweep=sweep)
            except CommandError as error:
                failures[_title(place)] = str(error)
                return
            self.drifted += len(report.drift)
            (self._garbage.add if report.garbage else self._garbage.discard)(place)

        for last in (False, True):
            due = [
                one(place, table)
                for place, table in self._tables.items()
                if (place[1] == "filter") is last
                and (table.dirty or (sweep and place in self._garbage))
            ]
            if due:
                await asyncio.gather(*due)
        return failures

    async def read_back(self) -> bool:
        """Read every table, one after the other; returns whether a commit is due.

        Beside commits, which wait for one table at most.
        """
        for place, table in self._tables.items():
            try:
                self.drifted += len(await table.refresh())
            except CommandError as error:
                log.warning("not read back: %s", error, extra={"object": _title(place)})
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
