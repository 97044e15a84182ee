"""What the allocator believes the datastore holds, at which revision.

A view may be wrong: every decision made from it carries guards, and a commit that loses
brings the truth back (`CommitConflict.current`). So reading first is a question of speed,
never of safety.

Invariant IPAM-6: a plan compares everything that it writes or deletes with what it was made from.
Tested in tests/ipam/test_restoration.py and tests/ipam/test_claims.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipam.allocator.restoration import Use
from ipam.records import blocks
from libcalico.datastore.interface import Change, Delete, Entry, Put, revision_of
from libcalico.model.codec import encode_value
from libcalico.model.keys import BlockKey, IPNetwork, Key, ResourceKey
from libcalico.model.resources.ipam import Block

Remembered = Callable[[IPNetwork], Sequence[Use]]
Foreign = Callable[[], Awaitable[str]]


async def at_home() -> str:
    """No reason why this machine is not the node."""
    return ""


async def beside() -> str:
    """For programs that take a node's addresses without knowing its pods, as for its tunnels."""
    return (
        "what runs on the node is known to its calico-cni alone, which writes the block again "
        "when a pod next needs an address"
    )


@dataclass
class OwnNode:
    """The node's own knowledge of what runs there; it may be set later.

    `remembered`: the pods here have these addresses of a block, even if the datastore lacks them.
    `foreign`: why this machine is not known to be the node, and what runs here says nothing.
    `made_again`: hears that a block was written, or may have been, that had been deleted with
    addresses in use; by this node, or by another one while pods here have addresses of it.
    `all_gone`: hears that a block went with its claim, and that the pods which are remembered to
    have addresses of it have no endpoint either. The node may be about to be removed.
    """

    remembered: Remembered = lambda _: ()
    foreign: Foreign = beside
    made_again: Callable[[], None] = lambda: None
    all_gone: Callable[[], None] = lambda: None


class View:
    """Known entries by key; a key may be known to be absent, or not known at all.

    `own`: what the node says of itself whose addresses these are.
    """

    def __init__(self, own: OwnNode | None = None) -> None:
        self.own = own or OwnNode()
        self._entries: dict[Key, Entry | None] = {}
        self._lost: dict[Key, Entry] = {}
        self._sound: dict[Key, tuple[int, bool]] = {}
        self._plain: dict[Key, tuple[int, bool]] = {}
        self._cools: dict[Key, tuple[int, bool]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The entry, or None if it is absent or not known."""
        return self._entries.get(key)

    def value(self, key: Key) -> Any:
        """The entry's value, or None."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def sound(self, key: BlockKey) -> bool:
        """Whether a known block keeps the queue invariant; asked once for each revision."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        known = self._sound.get(key)
        if known is None or known[0] != entry.revision:
            known = self._sound[key] = entry.revision, not blocks.problem(entry.value)
        return known[1]

    def cools(self, key: BlockKey) -> bool:
        """Whether a known block holds addresses that cool; asked once for each revision."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        known = self._cools.get(key)
        if known is None or known[0] != entry.revision:
            cooling = any(attribute.releasedAt for attribute in entry.value.attributes or ())
            known = self._cools[key] = entry.revision, cooling
        return known[1]

    def base(self, key: Key) -> Entry | None:
        """The entry, if it has members that we do not know and a write must keep (DS-2).

        Laying a block over its old bytes costs many times its encoding, so this is asked once
        for each revision; what we wrote ourselves has no such members, or had them before.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        known = self._plain.get(key)
        if known is None or known[0] != entry.revision:
            plain = not entry.raw or encode_value(key, entry.value, None) == entry.raw
            known = self._plain[key] = entry.revision, plain
        return None if known[1] else entry

    def learn(self, entries: Mapping[Key, Entry | None]) -> None:
        """Store entries that were just read."""
        for key, entry in entries.items():
            if entry is None and isinstance(key, BlockKey) and (known := self._entries.get(key)):
                self._lost[key] = known
        self._entries.update(entries)

    def before(self, key: BlockKey) -> Block | None:
        """The value of a block as it was known before another writer deleted it, or as it is."""
        entry = self._entries.get(key) or self._lost.get(key)
        return entry.value if entry else None

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop what is not worth remembering, or no longer certain."""
        for key in list(keys):
            self._entries.pop(key, None)
            self._lost.pop(key, None)
            self._sound.pop(key, None)
            self._plain.pop(key, None)
            self._cools.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._lost.clear()
        self._sound.clear()
        self._plain.clear()
        self._cools.clear()

    def wrote(self, changes: Iterable[Change], revision: int) -> None:
        """Remember what a commit of ours made of the datastore.

        The bytes of plain IPAM values are not kept: they are those of the value.
        """
        for change in changes:
            if isinstance(change, Put):
                self._lost.pop(change.key, None)
                raw, own = b"", revision_of(revision, change.key)
                if change.base is not None or isinstance(change.key, ResourceKey):
                    raw = encode_value(
                        change.key, change.value, change.base.raw if change.base else None
                    )
                elif isinstance(change.key, BlockKey):
                    # A plan keeps the invariants, and a block that it was made from was sound.
                    before = self._sound.get(change.key)
                    if before and before[1]:
                        self._sound[change.key] = own, True
                self._entries[change.key] = Entry(change.key, change.value, own, raw)
            elif isinstance(change, Delete):
                self._entries[change.key] = None
