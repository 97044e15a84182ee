"""Documents of policy that cannot be read: which revision of each is in force.

Stands before the calculation, as `felix.calc.commit_confirmed` does. What was last readable here
stays in force while the stored bytes are not; only a document that was never readable here counts
as what `libcalico.model.salvage` makes of it, which closes what it may select (docs/design/0004). A
policy that decodes, but of whose selectors, tier or types some cannot be understood, counts as
unreadable where there is a version to fall back to: it would close more than it was meant to
select. What was readable before a restart, the node remembers on disk
(felix/store/readable_store.py); it is asked once, when the datastore has been read whole, so that
what was deleted meanwhile never comes back.

Invariants (tests/felix/store/test_last_readable.py):
  LRD-1  What is in force of an object depends on its readable versions since it was made, on a
         restart neither.
  LRD-2  A deletion or a readable version counts at once; what is remembered does not hold it up.
  LRD-3  A new object of an old name (another uid) does not inherit what the old one said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from felix.calc.policy.facts import facts_of
from libcalico.datastore.interface import Entry
from libcalico.model import Key, ResourceKey
from libcalico.model.salvage import KINDS_OF_POLICY


class Memory(Protocol):
    """What outlives a restart."""

    def keep(self, key: ResourceKey, revision: int, raw: bytes) -> None:
        """This is the last readable version of an object."""

    def forget(self, key: ResourceKey) -> None:
        """Forget an object."""

    def has_other(self, key: ResourceKey, revision: int, raw: bytes) -> bool:
        """Whether it has a version of the object, and another one than this."""


class Remembered(NamedTuple):
    """A version that was readable before this start."""

    revision: int
    value: Any


class Word(NamedTuple):
    """The version of an object that counts. `stands`: the one in force, and `value` is None."""

    value: Any
    stands: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object whose stored bytes cannot be read.

    `stored` is their revision, `in_force` the one that counts; None: none was ever readable here.
    """

    reason: str
    stored: int
    in_force: int | None

    @property
    def message(self) -> str:
        """What an operator must know."""
        if self.in_force is None:
            return (
                f"revision {self.stored} is stored and cannot be read, and no revision was ever"
                f" readable on this node: what it may select is closed until it is mended or"
                f" deleted: {self.reason}"
            )
        return (
            f"revision {self.in_force} is in force; revision {self.stored} is stored and cannot be"
            f" read (mend or delete it): {self.reason}"
        )


class _Good(NamedTuple):
    revision: int
    uid: str


class LastReadable:
    """The last readable version of each document of policy, by its revision.

    `unreadable` has the objects whose stored version does not count.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._good: dict[ResourceKey, _Good] = {}
        self._settled = False
        self._doubtful: dict[ResourceKey, str] = {}
        self.unreadable: dict[Key, Unreadable] = {}

    def apply_entry(self, key: Key, entry: Entry | None) -> Word:
        """Apply an entry of the datastore, None for a deletion; returns the version that counts."""
        value: Any = entry.value if entry is not None else None
        if not isinstance(key, ResourceKey) or key.kind not in KINDS_OF_POLICY:
            return Word(value)
        self.unreadable.pop(key, None)
        self._doubtful.pop(key, None)
        if entry is None:
            self._forget(key)
            return Word(None)
        uid = str(value.metadata.uid or "")
        reason = entry.broken or self._misread(key, entry)
        if not reason:
            self._good[key] = _Good(entry.revision, uid)
            self._memory.keep(key, entry.revision, entry.raw)
            return Word(value)
        good = self._good.get(key)
        if good is not None and _same(good.uid, uid):
            self.unreadable[key] = Unreadable(reason, entry.revision, good.revision)
            return Word(None, stands=True)
        if self._settled:
            self._forget(key)
        else:
            self._good.pop(key, None)
            self._doubtful[key] = uid
        self.unreadable[key] = Unreadable(reason, entry.revision, None)
        return Word(value)

    @property
    def settled(self) -> bool:
        """Whether the versions of before this start have been recalled."""
        return self._settled

    @property
    def doubtful(self) -> frozenset[ResourceKey]:
        """Objects that may have been readable before this start."""
        return frozenset(self._doubtful)

    def settle(
        self, known: Iterable[ResourceKey], remembered: Mapping[ResourceKey, Remembered]
    ) -> list[tuple[ResourceKey, Any]]:
        """The datastore has been read whole: what of the memory counts, object and value.

        `known` are all objects that the memory has; those that are gone it forgets. `remembered`
        has those of `doubtful` that it has.
        """
        self._settled = True
        restored: list[tuple[ResourceKey, Any]] = []
        for key, uid in self._doubtful.items():
            one = remembered.get(key)
            if one is None or not _same(str(one.value.metadata.uid or ""), uid):
                self._memory.forget(key)
                continue
            record = self.unreadable[key]
            self._good[key] = _Good(one.revision, str(one.value.metadata.uid or ""))
            self.unreadable[key] = Unreadable(record.reason, record.stored, one.revision)
            restored.append((key, one.value))
        self._doubtful.clear()
        for key in list(known):
            if key not in self._good:
                self._memory.forget(key)
        return restored

    def _misread(self, key: ResourceKey, entry: Entry) -> str:
        """Why a policy would close more than it selects, where another version could count."""
        if key.kind not in ("NetworkPolicy", "GlobalNetworkPolicy"):
            return ""
        good = self._good.get(key)
        if good is None:
            other = not self._settled and self._memory.has_other(key, entry.revision, entry.raw)
        else:
            other = good.revision != entry.revision
        facts = facts_of(key, entry.value) if other else None
        return facts.problem if facts is not None and facts.closed else ""

    def _forget(self, key: ResourceKey) -> None:
        self._good.pop(key, None)
        self._memory.forget(key)


def _same(one: str, other: str) -> bool:
    """Whether both may be of one object; unreadable bytes often have no uid."""
    return not one or not other or one == other
