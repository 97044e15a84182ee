"""ipsets: made and filled before the rules that use them, removed after those are gone.

A set may hold hundreds of thousands of members. What touches many is done in slices, between
which the loop does other work; a set of another size is built beside and swapped.

Invariants:
  SETS-1  Only sets whose name starts with our prefix of an enabled family are touched.
  SETS-2  A set exists, with its members, before a rule that names it is written.
  SETS-3  A change of members costs what changes, not what the set holds.
  SETS-4  A set of our name but another type or family is replaced, never filled.
  SETS-5  No slice holds the loop up for 50 ms, however large a set is.
  SETS-6  A set that cannot be written costs nothing until it changes. It exists all the
          same, with what it had: rules that name it stand.
  SETS-7  All that comes is added before anything is removed. What goes from one set to another, or
          is in a wider net of the same set, is in one of them all the time; only where a set has no
          room for both does the old go first.
Tested in tests/felix/dataplane/test_sets.py and, with felix, test_repair.py,
test_policy_packets.py.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from felix.calc.policy_model import SetChange, SetKind
from felix.dataplane.rules.chain_target import Family
from felix.rules import names
from linux.errors import KernelError
from linux.ipset import IPSets, SetInfo, SetType
from linux.nftables import NamedSets

SLICE = 2000
"""Members that one message to the kernel names; about 15 ms."""
MANY = 200
"""Sets that are read of without others having their turn."""
LARGE = 5 * SLICE
"""Sets of more members are read in a thread."""
TRIES = 4
"""How often a set that cannot be written is tried anew before it is changed."""
BUSY_FOR = 5.0
"""Seconds for which a set may still be in use when it is to go: the kernel gives a set free some
moments after the rule that named it (nf_tables destroys rules later)."""

_TYPES: dict[SetKind, SetType] = {
    SetKind.NETS: "hash:net",
    SetKind.ADDRESS_PORTS: "hash:ip,port",
}
# A set of networks cannot hold everything, but its two halves.
_HALVES = {"0.0.0.0/0": ("0.0.0.0/1", "128.0.0.0/1"), "::/0": ("::/1", "8000::/1")}
_WHOLE = {half: whole for whole, halves in _HALVES.items() for half in halves}


@dataclass(slots=True)
class _DesiredSet:
    """One set of one family: as asked for, and what differs from what was last written.

    `touched`: members that changed since, and whether the kernel has them. `anew`: what the
    kernel has is not known. `tries`: failures since it was changed.
    """

    set_id: str
    family: Family
    type: SetType
    members: set[str] = field(default_factory=set)
    touched: dict[str, bool] = field(default_factory=dict)
    anew: bool = True
    tries: int = 0

    def holds(self, member: str) -> bool:
        return member in self.members or _WHOLE.get(member) in self.members

    def put(self, member: str, there: bool) -> None:
        self.tries = 0
        if not self.anew:
            for each in _HALVES.get(member, (member,)):
                self.touched.setdefault(each, self.holds(each))
        (self.members.add if there else self.members.discard)(member)

    def kernel_members(self) -> set[str]:
        if _HALVES.keys().isdisjoint(self.members):
            return self.members
        return {each for member in self.members for each in _HALVES.get(member, (member,))}


def _slices(members: Iterable[str], size: int) -> Iterator[list[str]]:
    waiting = iter(members)
    while part := list(islice(waiting, size)):
        yield part


async def _minus(one: set[str], other: set[str]) -> set[str]:
    """What is in one set and not in the other."""
    if len(one) <= LARGE:
        return one - other
    if not other:
        return one
    missing: set[str] = set()
    for part in _slices(one, LARGE):
        missing.update(member for member in part if member not in other)
        await asyncio.sleep(0)
    return missing


async def _changed(desired: _DesiredSet) -> tuple[set[str], set[str]]:
    """Of the members that were touched: what the kernel has to lose, and to get."""
    doomed, missing = set[str](), set[str]()
    before = desired.touched.copy()
    for part in _slices(before, LARGE):
        for member in part:
            if (had := before[member]) != desired.holds(member):
                (doomed if had else missing).add(member)
        if len(before) > LARGE:
            await asyncio.sleep(0)
    return doomed, missing


def _family(member: str) -> Family:
    return 6 if ":" in member.partition(",")[0] else 4


class Sets:
    """Desired and actual sets. `writes` counts what was changed, `errors` what could not be.

    `calls`: requests to the kernel that change a set; `lines`: members that these named, and sets
    made or removed. `foreign`: sets of others in the kernel, when all were read last.
    `to_sweep`: some were still in use at the last sweep, which is to be repeated.
    """

    def __init__(
        self,
        families: frozenset[int],
        max_size: int,
        kernel: IPSets | NamedSets | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = cast("tuple[Family, ...]", tuple(sorted(families)))
        self._max_size = max_size
        self._kernel = kernel if kernel is not None else IPSets()
        self._told: list[SetChange] = []
        self._desired: dict[str, _DesiredSet] = {}
        self._dirty: dict[str, None] = {}
        self._present: set[str] | None = None
        self._failed: dict[str, str] = {}
        self._clock = clock
        self._busy: dict[str, float] = {}
        self.to_sweep = False
        self.writes = self.errors = self.calls = self.lines = self.foreign = 0

    def __len__(self) -> int:
        return len(self._desired)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the sets that are wanted."""
        ids = {wanted.set_id for wanted in self._desired.values()}
        for change in self._told:
            (ids.discard if change.removed_whole else ids.add)(change.set_id)
        return frozenset(ids)

    @property
    def failed(self) -> frozenset[str]:
        """The ids of sets that the kernel does not hold as wanted."""
        return frozenset(self._desired[name].set_id for name in self._failed)

    # -- what is wanted ------------------------------------------------------------------------

    def want(self, set_id: str, kind: SetKind, members: Iterable[str]) -> None:
        """A set with exactly these members, those of each family in its own kernel set."""
        self.change(SetChange(set_id, kind, full=frozenset(members)))

    def change(self, change: SetChange) -> None:
        """What the calculation says of one set; it is read by the next commit."""
        self._told.append(change)

    def unwant(self, set_id: str) -> None:
        """No rule will name this set any more."""
        if self._told or names.ip_set(set_id, self._families[0]) in self._desired:
            self.change(SetChange(set_id, SetKind.NETS, removed_whole=True))

    def resize(self, max_size: int) -> None:
        """How many members a set may hold, from the next commit on."""
        if max_size != self._max_size:
            self._max_size = max_size
            self._distrust()

    def forget(self) -> None:
        """Read the kernel's sets again before the next commit; also while one is under way."""
        self._present = None

    def _distrust(self) -> None:
        for name, desired in self._desired.items():
            desired.anew, desired.tries = True, 0
            desired.touched.clear()
            self._dirty[name] = None

    async def _take(self) -> None:
        changes, self._told = deque(self._told), []
        for number in range(1, len(changes) + 1):
            # It is held here alone: the members of large sets are not all in memory twice.
            change = changes.popleft()
            if not number % MANY:
                await asyncio.sleep(0)
            if change.removed_whole:
                self._drop(change.set_id)
                continue
            if change.full is not None:
                await self._take_full(change.set_id, change.kind, change.full)
            for members, there in ((change.removed, False), (change.added, True)):
                for part in _slices(members, SLICE):
                    for member in part:
                        self._put(change, member, there=there)
                    if len(members) > SLICE:
                        await asyncio.sleep(0)

    def _put(self, change: SetChange, member: str, *, there: bool) -> None:
        family = _family(member)
        if family in self._families:
            self._get(change.set_id, family, change.kind).put(member, there)
            self._dirty[names.ip_set(change.set_id, family)] = None

    async def _take_full(self, set_id: str, kind: SetKind, full: frozenset[str]) -> None:
        split: dict[Family, set[str]] = {family: set() for family in self._families}
        for part in _slices(full, SLICE):
            for member in part:
                family = _family(member)
                if family in split:
                    split[family].add(member)
            if len(full) > SLICE:
                await asyncio.sleep(0)
        for family, listed in split.items():
            desired = self._get(set_id, family, kind)
            if listed == desired.members:
                continue
            self._dirty[names.ip_set(set_id, family)] = None
            desired.tries = 0
            if desired.anew:
                desired.members = listed
                continue
            gone, fresh = (
                await _minus(desired.members, listed),
                await _minus(listed, desired.members),
            )
            for members, there in ((gone, False), (fresh, True)):
                for part in _slices(members, SLICE):
                    for member in part:
                        desired.put(member, there)
                    if len(members) > SLICE:
                        await asyncio.sleep(0)

    def _drop(self, set_id: str) -> None:
        for family in self._families:
            name = names.ip_set(set_id, family)
            self._desired.pop(name, None)
            self._dirty.pop(name, None)
            self._failed.pop(name, None)

    def _get(self, set_id: str, family: Family, kind: SetKind) -> _DesiredSet:
        name = names.ip_set(set_id, family)
        desired = self._desired.get(name)
        if desired is None:
            desired = self._desired[name] = _DesiredSet(set_id, family, _TYPES[kind])
            self._dirty[name] = None
            self._busy.pop(name, None)
        return desired

    # -- the kernel ----------------------------------------------------------------------------

    async def commit(self) -> dict[str, str]:
        """Create, fill, then remove members (SETS-7). Returns failures by set."""
        await self._take()
        present = self._present
        if present is None:
            present = self._present = self._names()
            self._distrust()
        filled: dict[str, tuple[bool, set[str]]] = {}
        for name in list(self._dirty):
            desired = self._desired[name]
            if desired.tries >= TRIES:
                continue
            try:
                filled[name] = await self._fill(name, desired, present)
            except KernelError as error:
                self._failure(name, error)
        for name, (changed, doomed) in filled.items():
            try:
                await self._in_slices(self._kernel.delete, name, doomed)
            except KernelError as error:
                self._failure(name, error)
                continue
            self._failed.pop(name, None)
            desired = self._desired[name]
            desired.anew, desired.tries = False, 0
            desired.touched.clear()
            self._dirty.pop(name, None)
            self.writes += changed or bool(doomed)
        return dict(self._failed)

    def _failure(self, name: str, error: KernelError) -> None:
        desired = self._desired[name]
        self.errors += 1
        self._failed[name] = str(error)
        desired.anew = True
        desired.touched.clear()
        desired.tries += 1

    async def _fill(
        self, name: str, desired: _DesiredSet, present: set[str]
    ) -> tuple[bool, set[str]]:
        """Make a set and add what it lacks; whether anything was done, and what is to go."""
        known = not desired.anew and name in present
        created, there = (False, None) if known else self._made(name, desired, present)
        if len(desired.members) > self._max_size:
            size = f"{len(desired.members)} members, maxIpsetSize is {self._max_size}"
            raise KernelError(errno.ENOSPC, f"fill IP set {name}", f"the set is full: {size}")
        if there is not None and there.maxelem not in (0, self._max_size):
            await self._rebuild(name, desired, present)
            return True, set()
        if known:
            doomed, missing = await _changed(desired)
        else:
            goal = desired.kernel_members()
            have = await self._members(name, there) if there is not None else set()
            doomed, missing = await _minus(have, goal), await _minus(goal, have)
        changed = created or bool(missing)
        if len(desired.members) + len(doomed) > self._max_size:
            await self._in_slices(self._kernel.delete, name, doomed)
            changed, doomed = changed or bool(doomed), set()
        await self._in_slices(self._kernel.add, name, missing)
        return changed, doomed

    def _made(
        self, name: str, desired: _DesiredSet, present: set[str]
    ) -> tuple[bool, SetInfo | None]:
        """See that a set of this name and kind is there: whether it is new, else what it is."""
        there = self._kernel.info(name) if name in present else None
        if there is None:
            if self._made_new(name, desired, present):
                return True, None
            # Another program made it, perhaps with members, since the names were read.
            there = self._kernel.info(name)
        if there is not None and (there.type, there.family) != (desired.type, desired.family):
            # While a rule uses it this is refused; the policies close, which frees it.
            self._destroy(name)
            return self._made_new(name, desired, present), None
        return False, there

    def _made_new(self, name: str, desired: _DesiredSet, present: set[str]) -> bool:
        present.discard(name)
        try:
            self._count(1)
            created = self._kernel.create(name, desired.type, desired.family, self._max_size)
        except KernelError as error:
            if error.errno != errno.EEXIST:
                raise
            created = False
        present.add(name)
        return created

    async def _rebuild(self, name: str, desired: _DesiredSet, present: set[str]) -> None:
        """A set that may hold another number of members; rules never see it half filled."""
        beside = f"cali{desired.family}t0"
        self._destroy(beside)
        self._count(1)
        self._kernel.create(beside, desired.type, desired.family, self._max_size)
        present.add(beside)
        await self._in_slices(self._kernel.add, beside, desired.kernel_members())
        self._count(1)
        self._kernel.swap(beside, name)
        self._destroy(beside)
        present.discard(beside)

    async def _in_slices(
        self, act: Callable[[str, Iterable[str]], None], name: str, members: set[str]
    ) -> None:
        if len(members) <= SLICE:
            if members:
                self._count(len(members))
                act(name, members)
            return
        for part in _slices(members, SLICE):
            self._count(len(part))
            act(name, part)
            await asyncio.sleep(0)

    def _destroy(self, name: str) -> None:
        self._count(1)
        self._kernel.destroy(name)

    def _count(self, lines: int) -> None:
        self.calls += 1
        self.lines += lines

    async def _members(self, name: str, there: SetInfo) -> set[str]:
        if there.entries <= LARGE:
            return self._kernel.members(name)

        # A socket of its own: it is for one thread at a time.
        with self._kernel.another() as kernel:
            return await asyncio.to_thread(kernel.members, name)

    def _names(self) -> set[str]:
        prefixes = tuple(f"cali{family}" for family in self._families)
        all_names = self._kernel.names()
        ours = {name for name in all_names if name.startswith(prefixes)}
        self.foreign = len(all_names) - len(ours)
        return ours

    def sweep(self) -> dict[str, str]:
        """Remove owned sets that are not desired, after the rules. Returns failures by set."""
        failures: dict[str, str] = {}
        if self._told:
            return failures
        if self._present is None:
            self._present = self._names()
            self._distrust()
        doomed = [name for name in self._present if name not in self._desired]
        now = self._clock()
        self._busy = {name: since for name, since in self._busy.items() if name in doomed}
        for name in doomed:
            try:
                self._destroy(name)
            except KernelError as error:
                since = self._busy.setdefault(name, now)
                if error.errno != errno.EBUSY or now - since > BUSY_FOR:
                    failures[name] = str(error)
                continue
            self.writes += 1
            self._present.discard(name)
            self._busy.pop(name, None)
        self.to_sweep = any(name not in failures for name in self._busy)
        return failures

    def close(self) -> None:
        """Give the kernel's socket back; the sets stay."""
        self._kernel.close()
