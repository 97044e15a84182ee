"""ipsets: made and filled before the rules that use them, removed after those are gone.

Invariants:
  SETS-1  Only sets whose name starts with our prefix of an enabled family are touched.
  SETS-2  A set exists, with its members, before a rule that names it is written.
Tested in tests/felix/test_repair.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from felix.rules import names
from linux.errors import KernelError
from linux.ipset import IPSets, SetType

Family = Literal[4, 6]


@dataclass(frozen=True, slots=True)
class WantedSet:
    """One set as it should be; members in ipset's canonical spelling."""

    set_id: str
    family: Family
    type: SetType
    members: frozenset[str]

    @property
    def name(self) -> str:
        """Its name in the kernel."""
        return names.ip_set(self.set_id, self.family)


class Sets:
    """Desired and actual sets. `writes` counts the sets that a commit changed."""

    def __init__(self, families: frozenset[int], max_size: int) -> None:
        self._families = families
        self._max_size = max_size
        self._kernel = IPSets()
        self._desired: dict[str, WantedSet] = {}
        self._actual: dict[str, frozenset[str]] | None = None
        self.writes = 0

    def want(self, sets: Mapping[str, WantedSet]) -> None:
        """Desire exactly these sets."""
        self._desired = dict(sets)

    def forget(self) -> None:
        """Read the kernel's sets again before the next commit."""
        self._actual = None

    def commit(self) -> dict[str, str]:
        """Create and fill; deletes before adds. Returns failures by set."""
        actual = self._read()
        failures: dict[str, str] = {}
        for name, wanted in self._desired.items():
            present = actual.get(name)
            if present == wanted.members:
                continue
            try:
                if present is None:
                    self._kernel.create(name, wanted.type, wanted.family, self._max_size)
                    present = frozenset()
                self._kernel.delete(name, present - wanted.members)
                self._kernel.add(name, wanted.members - present)
            except KernelError as error:
                failures[name] = str(error)
                self._actual = None
                continue
            self.writes += 1
            actual[name] = wanted.members
        return failures

    def sweep(self) -> dict[str, str]:
        """Remove owned sets that nobody wants, after the rules. Returns failures by set."""
        failures: dict[str, str] = {}
        actual = self._read()
        for name in [name for name in actual if name not in self._desired]:
            try:
                self._kernel.destroy(name)
            except KernelError as error:
                failures[name] = str(error)
                continue
            self.writes += 1
            del actual[name]
        return failures

    def _read(self) -> dict[str, frozenset[str]]:
        if self._actual is None:
            prefixes = tuple(f"cali{family}" for family in sorted(self._families))
            self._actual = {
                name: frozenset(self._kernel.members(name))
                for name in self._kernel.names()
                if name.startswith(prefixes)
            }
        return self._actual

    def close(self) -> None:
        """Give the kernel's socket back; the sets stay."""
        self._kernel.close()
