"""ipsets: made and filled before the rules that use them, removed after those are gone.

Invariants:
  SETS-1  Only sets whose name starts with our prefix of an enabled family are touched.
  SETS-2  A set exists, with its members, before a rule that names it is written.
  SETS-3  A change of members costs what changes, not what the set holds.
  SETS-4  A set of our name but another type or family is replaced, never filled.
Tested in tests/felix/test_sets.py and, with felix, test_repair.py, test_policy_packets.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, cast

from felix.calc.policy_model import SetChange, SetKind
from felix.rules import names
from linux.errors import KernelError
from linux.ipset import IPSets, SetType

Family = Literal[4, 6]

_TYPES: dict[SetKind, SetType] = {
    SetKind.NETS: "hash:net",
    SetKind.ADDRESS_PORTS: "hash:ip,port",
}
# A set of networks cannot hold everything, but its two halves.
_HALVES = {"0.0.0.0/0": ("0.0.0.0/1", "128.0.0.0/1"), "::/0": ("::/1", "8000::/1")}
_WHOLE = {half: whole for whole, halves in _HALVES.items() for half in halves}


@dataclass(slots=True)
class _Wanted:
    """One set of one family: as asked for, and what differs from what was last written."""

    set_id: str
    family: Family
    type: SetType
    members: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    anew: bool = True

    def holds(self, member: str) -> bool:
        return member in self.members or _WHOLE.get(member) in self.members

    def kernel_members(self) -> set[str]:
        return set(_halved(self.members))


def _halved(members: Iterable[str]) -> Iterable[str]:
    for member in members:
        yield from _HALVES.get(member, (member,))


def _family(member: str) -> Family:
    return 6 if ":" in member.partition(",")[0] else 4


class Sets:
    """Desired and actual sets. `writes` counts the sets that a commit changed."""

    def __init__(self, families: frozenset[int], max_size: int) -> None:
        self._families = cast("tuple[Family, ...]", tuple(sorted(families)))
        self._max_size = max_size
        self._kernel = IPSets()
        self._desired: dict[str, _Wanted] = {}
        self._dirty: set[str] = set()
        self._actual: dict[str, set[str]] | None = None
        self._failed: dict[str, str] = {}
        self.writes = 0

    def __len__(self) -> int:
        return len(self._desired)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the sets that are wanted."""
        return frozenset(wanted.set_id for wanted in self._desired.values())

    @property
    def failed(self) -> frozenset[str]:
        """The ids of sets that the kernel does not hold as wanted."""
        return frozenset(self._desired[name].set_id for name in self._failed)

    # -- what is wanted ------------------------------------------------------------------------

    def want(self, set_id: str, kind: SetKind, members: Iterable[str]) -> None:
        """A set with exactly these members, those of each family in its own kernel set."""
        split: dict[Family, set[str]] = {family: set() for family in self._families}
        for member in members:
            split.get(_family(member), set()).add(member)
        for family, found in split.items():
            wanted = self._get(set_id, family, kind)
            if wanted.anew or found != wanted.members:
                self._touch(wanted, found ^ wanted.members)
                wanted.members = found

    def change(self, change: SetChange) -> None:
        """What the calculation says of one set."""
        if change.removed_whole:
            self.unwant(change.set_id)
            return
        if change.full is not None:
            self.want(change.set_id, change.kind, change.full)
        for members, there in ((change.removed, False), (change.added, True)):
            for member in members:
                family = _family(member)
                if family in self._families:
                    wanted = self._get(change.set_id, family, change.kind)
                    (wanted.members.add if there else wanted.members.discard)(member)
                    self._touch(wanted, (member,))

    def unwant(self, set_id: str) -> None:
        """No rule will name this set any more."""
        for family in self._families:
            name = names.ip_set(set_id, family)
            self._desired.pop(name, None)
            self._dirty.discard(name)
            self._failed.pop(name, None)

    def _get(self, set_id: str, family: Family, kind: SetKind) -> _Wanted:
        name = names.ip_set(set_id, family)
        wanted = self._desired.get(name)
        if wanted is None:
            wanted = self._desired[name] = _Wanted(set_id, family, _TYPES[kind])
            self._dirty.add(name)
        return wanted

    def _touch(self, wanted: _Wanted, members: Iterable[str]) -> None:
        wanted.touched.update(_halved(members))
        self._dirty.add(names.ip_set(wanted.set_id, wanted.family))

    # -- the kernel ----------------------------------------------------------------------------

    def forget(self) -> None:
        """Read the kernel's sets again before the next commit."""
        self._actual = None

    def commit(self) -> dict[str, str]:
        """Create and fill; deletes before adds. Returns failures by set."""
        if self._actual is None:
            for name, wanted in self._desired.items():
                wanted.anew = True
                self._dirty.add(name)
        actual = self._read() if self._dirty else {}
        for name in list(self._dirty):
            wanted = self._desired[name]
            try:
                changed = self._write(name, wanted, actual)
            except KernelError as error:
                self._failed[name] = str(error)
                wanted.anew = True
                actual.pop(name, None)
                self._reread(name, actual)
                continue
            self._failed.pop(name, None)
            wanted.anew = False
            wanted.touched.clear()
            self._dirty.discard(name)
            self.writes += changed
        return dict(self._failed)

    def _write(self, name: str, wanted: _Wanted, actual: dict[str, set[str]]) -> bool:
        present = actual.get(name)
        if present is not None and wanted.anew and not self._suits(name, wanted):
            # While a rule uses it this is refused; the policies close, which frees it.
            self._kernel.destroy(name)
            present = None
            del actual[name]
        created = present is None
        if present is None:
            self._kernel.create(name, wanted.type, wanted.family, self._max_size)
            present = actual[name] = set()
        if wanted.anew or created:
            goal = wanted.kernel_members()
            doomed, missing = present - goal, goal - present
        else:
            doomed = {m for m in wanted.touched if m in present and not wanted.holds(m)}
            missing = {m for m in wanted.touched if m not in present and wanted.holds(m)}
        if doomed:
            self._kernel.delete(name, doomed)
            present -= doomed
        if missing:
            self._kernel.add(name, missing)
            present |= missing
        return created or bool(doomed or missing)

    def _suits(self, name: str, wanted: _Wanted) -> bool:
        there = self._kernel.info(name)
        return there is None or (there.type, there.family) == (wanted.type, wanted.family)

    def _reread(self, name: str, actual: dict[str, set[str]]) -> None:
        """What a refused change left."""
        try:
            actual[name] = self._kernel.members(name)
        except KernelError:
            actual.pop(name, None)

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

    def _read(self) -> dict[str, set[str]]:
        if self._actual is None:
            prefixes = tuple(f"cali{family}" for family in self._families)
            self._actual = {
                name: self._kernel.members(name)
                for name in self._kernel.names()
                if name.startswith(prefixes)
            }
        return self._actual

    def close(self) -> None:
        """Give the kernel's socket back; the sets stay."""
        self._kernel.close()
