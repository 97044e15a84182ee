"""The datastore, as every room sees it: typed objects and guarded commits over several.

Nothing above this file knows etcd keys or Kubernetes objects (wall 2 of the
architecture), so both stores stand behind one protocol. A commit is atomic where the
store has transactions; where it has none, changes are applied in the order given.

Invariants:
  DS-1  A commit applies all of its changes or none.
  DS-2  A value is written over the raw tree it was read from (`Put.base`): fields that we
        do not know survive.
  DS-3  A watch delivers every change after its revision once, in order, or raises
        `Compacted`; it never skips in silence.
Tested in tests/libcalico/test_etcd_store.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

import msgspec

from libcalico.errors import DatastoreError
from libcalico.model.keys import (
    AffinityKey,
    BlockKey,
    HandleKey,
    IPAMConfigKey,
    Key,
    ResourceKey,
    T,
    V,
)

if TYPE_CHECKING:
    from libcalico.model.resources.ipam import Block, BlockAffinity, Handle, IPAMConfig

ABSENT = 0
"""The guard that says: this object must not exist yet."""


class Entry(msgspec.Struct, Generic[V], frozen=True):
    """One stored object: typed value, the bytes it came from, its modification revision.

    An `Entry[IPPool]` holds an IPPool; a plain `Entry` holds a value of any kind.

    `broken` says why a policy could not be decoded; its value is then what `salvage` made of
    it, so that it closes what it was meant to close.
    """

    key: Key
    value: V
    revision: int
    raw: bytes
    broken: str = ""


class Put(msgspec.Struct, frozen=True):
    """Write `value`. `guard`: None writes always, ABSENT creates, N compares the revision.

    `base` is the entry that was read, if one was; its unknown fields are kept (DS-2).
    `ttl`: seconds after which the store forgets the object, unless it is written again;
    0 is for ever. Each such write has a lease of its own, as Calico's. `lease`: one that is there
    (`capabilities.Leasing`), instead.
    """

    key: Key
    value: Any
    guard: int | None = None
    base: Entry | None = None
    ttl: int = 0
    lease: int = 0


class Delete(msgspec.Struct, frozen=True):
    """Remove the object; `guard` as in `Put`. Removing what is absent is no error."""

    key: Key
    guard: int | None = None


class Check(msgspec.Struct, frozen=True):
    """No change, only a condition: the object is at `guard` (ABSENT: does not exist)."""

    key: Key
    guard: int


Change = Put | Delete | Check


class Selection(msgspec.Struct, frozen=True):
    """What to list or watch.

    `family` is a resource kind (`IPPool`) or one of `Block`, `BlockAffinity`, `Handle`,
    `IPAMConfig`, `FelixStatus`, `WorkloadStatus`, `HostEndpointStatus`. For a namespaced kind
    `namespace` narrows it; `name_prefix` narrows any resource kind by the beginning of its
    name; `host` narrows `BlockAffinity`, the status families and `Node` to one node. `raw`: values
    are not decoded (`Entry.value` is None), the reader does that. `live`: of `WorkloadEndpoint`,
    those whose pod has ended may be left out; a store that cannot tell has them all. `brief`: of
    `Node`, addresses and networks that Kubernetes itself gave it may be missing.
    """

    family: str
    namespace: str = ""
    name_prefix: str = ""
    host: str = ""
    raw: bool = False
    live: bool = False
    brief: bool = False


class Listing(msgspec.Struct, frozen=True):
    """The objects of a selection at one `revision` of the store.

    `broken` holds (key text, reason) of values that could not be decoded: named, not lost.
    Broken policies are among the entries as well (`Entry.broken`).
    """

    entries: list[Entry]
    revision: int
    broken: list[tuple[str, str]]


Row = tuple[str, bytes, int]
"""A resource as it is stored: its name, `namespace/name` where its kind has namespaces, its
bytes, its modification revision. Plain, for there may be hundreds of thousands."""
Rows = tuple[list[Row], int]
"""Some rows, and the revision at which they were listed."""


class Event(msgspec.Struct, frozen=True):
    """One change: `entry` is the new state, None for a deletion.

    A value that cannot be decoded arrives as a deletion with `broken` saying why, a policy
    as a broken entry.
    """

    key: Key
    entry: Entry | None
    revision: int
    broken: str = ""


class Batch(list[Event]):
    """Events of a watch, and the `revision` up to which the watch has delivered everything.

    An empty batch only reports progress: nothing happened up to its revision.
    """

    def __init__(self, events: Sequence[Event], revision: int) -> None:
        super().__init__(events)
        self.revision = revision


class Revision(int):
    """The revision of a commit, in a store where each object has a revision of its own."""

    own: Mapping[Key, int] = MappingProxyType({})
    """The objects that the commit wrote, with theirs."""

    @classmethod
    def of(cls, own: Mapping[Key, int]) -> Revision:
        """The highest of several revisions, with all of them in `own`."""
        revision = cls(max(own.values(), default=0))
        revision.own = own
        return revision


def revision_of(revision: int, key: Key) -> int:
    """The revision that a commit gave an object, for the guard of its next change."""
    return revision.own.get(key, revision) if isinstance(revision, Revision) else revision


class CommitConflict(DatastoreError):
    """A guard did not hold; nothing was written.

    `current` has guarded objects as they are now, None for one that is absent: those whose guards
    did not hold, and maybe others. Objects that are not in it were not read.
    """

    def __init__(self, current: dict[Key, Entry | None]) -> None:
        self.current = current
        names = ", ".join(str(key) for key in current)
        super().__init__(f"the datastore changed meanwhile: {names}")


class LeaseEnded(DatastoreError):
    """The store has no such lease any more; nothing was written."""


class Compacted(DatastoreError):
    """The revision to watch from is gone; list again."""


class Replaced(Compacted):
    """The store is another one, or at an earlier state: a backup was restored.

    Revisions that were seen before mean nothing any more; the same numbers come again.
    """


class Datastore(Protocol):
    """Every call has a deadline and raises `DatastoreUnavailable` when it passes."""

    @overload
    async def get(self, key: ResourceKey[T]) -> Entry[T] | None: ...
    @overload
    async def get(self, key: BlockKey) -> Entry[Block] | None: ...
    @overload
    async def get(self, key: AffinityKey) -> Entry[BlockAffinity] | None: ...
    @overload
    async def get(self, key: HandleKey) -> Entry[Handle] | None: ...
    @overload
    async def get(self, key: IPAMConfigKey) -> Entry[IPAMConfig] | None: ...
    @overload
    async def get(self, key: Key) -> Entry | None: ...

    async def get(self, key: Key) -> Entry | None:
        """The object, or None."""

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision."""

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision."""

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply all or nothing; returns the new revision. Raises `CommitConflict`.

        After a commit of several changes, `revision_of` gives the revision of one object.
        """

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`; raises `Compacted` or `DatastoreUnavailable`."""

    async def close(self) -> None:
        """Close the connection."""
