"""The iptables tables of both families: desired text from the model, committed where it differs.

Invariants:
  TBL-1  A table whose desired text did not change is not even looked at, except by the
         periodic re-read; so nothing runs while nothing changes.
  TBL-2  filter is committed last: what it refers to in other tables is there before.
Tested in tests/felix/test_repair.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

from felix.rules.iptables import render_rule
from felix.rules.model import Rule, TableModel
from linux.errors import CommandError
from linux.iptables import Desired, HashScheme, Table, detect_backend

SCHEME = HashScheme(
    "cali:",
    ("cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-"),
)
NAMES = ("raw", "mangle", "nat", "filter")
Family = Literal[4, 6]


class IptablesTables:
    """Four tables in each family. Made by `open_tables`."""

    def __init__(self, backend: Literal["nft", "legacy"], lock_wait: int) -> None:
        self.backend = backend
        self._lock_wait = lock_wait
        self._tables: dict[tuple[Family, str], Table] = {}
        self._models: dict[tuple[Family, str], TableModel] = {}
        self._committed: dict[tuple[Family, str], TableModel] = {}
        self.drifted = 0
        self.rules = 0

    @property
    def saves(self) -> int:
        """Programs started to read tables, so far."""
        return sum(table.saves for table in self._tables.values())

    @property
    def restores(self) -> int:
        """Programs started to write tables, so far."""
        return sum(table.restores for table in self._tables.values())

    def want(self, family: Family, models: Mapping[str, TableModel]) -> None:
        """Desire these tables of a family."""
        for name, model in models.items():
            self._models[family, name] = model

    async def commit(self, *, refresh: bool = False) -> dict[str, str]:
        """Write the tables that differ, several at once; returns failures by table."""
        failures: dict[str, str] = {}

        async def one(place: tuple[Family, str], model: TableModel) -> None:
            table = self._tables.get(place)
            if table is None:
                table = Table(place[1], place[0], self.backend, SCHEME, lock_wait=self._lock_wait)
                self._tables[place] = table
            try:
                report = await table.commit(self._desired(model), refresh=refresh)
            except CommandError as error:
                self._committed.pop(place, None)
                failures[f"{place[1]} of IPv{place[0]}"] = str(error)
                return
            self._committed[place] = model
            self.drifted += len(report.drift)

        for last in (False, True):
            await asyncio.gather(
                *(
                    one(place, model)
                    for place, model in self._models.items()
                    if (place[1] == "filter") is last
                    and (refresh or self._committed.get(place) != model)
                )
            )
        self.rules = sum(len(c.rules) for m in self._models.values() for c in m.chains)
        return failures

    @staticmethod
    def _desired(model: TableModel) -> Desired:
        return Desired(
            chains={chain.name: _render(chain.rules) for chain in model.chains},
            inserts={name: _render(rules) for name, rules in model.inserts.items()},
            appends={name: _render(rules) for name, rules in model.appends.items()},
        )


def _render(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    return tuple(render_rule(rule) for rule in rules)


async def open_tables(wanted_backend: str, lock_wait: float) -> IptablesTables:
    """The tables of the back end that this host uses. Raises `CommandError` without iptables."""
    backend = await detect_backend(wanted_backend.lower())
    return IptablesTables(backend, max(1, round(lock_wait)))
