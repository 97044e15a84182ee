"""A block that one transaction changes, many times over, before it becomes a value again.

A group of requests touches one block again and again; copying 4,096 ordinals each time would
cost more than everything else. `BlockEditor` copies once, keeps its indexes, and `result` is the
new block. A caller chooses first (`free`, `ordinals_of`) and changes when all else is clear: no
change is undone.

Cooling (docs/reference/data-model.md#block, #release): where the operator set a cool-down, a
released ordinal stays allocated to an attribute that says only `releasedAt`; `collect` frees it
later. Blocks that others wrote so are understood under every setting.

Tested through ipam.records.blocks in tests/ipam/test_blocks.py and in
tests/ipam/test_block_editor.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from ipam.records.naming import microseconds_since, rfc3339_nano
from libcalico.model import Attribute, Block

WINDOWS_NOTE = "windows host rsvd"
WINDOWS_HANDLE = "windows-reserved-ipam-handle"


def handle_of(attribute: Attribute) -> str:
    """Handles found in blocks end at the first carriage return
    (docs/reference/data-model.md#attributes-and-handles)."""
    return (attribute.handle_id or "").partition("\r")[0]


def is_windows_reserved(attribute: Attribute) -> bool:
    """Whether this is what Calico sets aside in every block of a Windows node."""
    return (attribute.secondary or {}).get("note") == WINDOWS_NOTE


def is_expired(released_at: str, now: int, cooldown: int) -> bool:
    """Whether an address released then may be given out again; `now` in nanoseconds.

    A time that cannot be read never expires: missing information means in use.
    """
    if cooldown <= 0:
        return True
    rested = microseconds_since(released_at, now)
    return rested is not None and rested >= cooldown * 1_000_000


class BlockEditor:
    """Changes of one block; `changed` says whether there are any."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.changed = False
        self._allocations = list(block.allocations)
        self._queue = list(block.unallocated or [])
        self._attributes = list(block.attributes or [])
        self._sequences = dict(block.sequenceNumberForAllocation or {})
        self._ordinals: dict[int, list[int]] | None = None
        self._indexes: dict[str, list[int]] | None = None
        self._freed = False

    def free(self, count: int, reserved: Collection[int] = ()) -> list[int]:
        """The next `count` ordinals of the queue, fewer if it is short, passing the reserved."""
        if not reserved:
            return self._queue[:count]
        return [o for o in self._queue if o not in reserved][:count]

    def holder(self, ordinal: int) -> Attribute | None:
        """The holder of an ordinal; None when it is free or cooling."""
        attribute = self._attribute(self._allocations[ordinal])
        return None if attribute is None or attribute.releasedAt else attribute

    def is_free(self, ordinal: int) -> bool:
        """Whether the ordinal has no holder: it is free, or cooling."""
        index = self._allocations[ordinal]
        attribute = self._attribute(index)
        return index is None or bool(attribute and attribute.releasedAt)

    def ordinals_of(self, handle_id: str) -> list[int]:
        """The ordinals of a handle, ascending."""
        indexes, ordinals = self._by_handle().get(handle_id, ()), self._by_index()
        return sorted(ordinal for index in indexes for ordinal in ordinals.get(index, ()))

    def sequence(self, ordinal: int) -> int | None:
        """The block's sequence number from before the write that gave the ordinal out."""
        return self._sequences.get(str(ordinal))

    def give(
        self, ordinals: Sequence[int], handle_id: str | None, attributes: Mapping[str, str]
    ) -> None:
        """Allocate ordinals that are free."""
        if not ordinals:
            return
        if self._queue[: len(ordinals)] == ordinals:
            del self._queue[: len(ordinals)]
        else:
            taken = set(ordinals)
            self._queue = [o for o in self._queue if o not in taken]
        attribute = Attribute(handle_id=handle_id or None, secondary=dict(attributes))
        self._point(ordinals, self._index_of(attribute))

    def give_back(self, ordinals: Sequence[int], released_at: str = "") -> None:
        """Free ordinals, in this order at the tail; with `released_at` they cool first."""
        if not ordinals:
            return
        self._freed = True
        if released_at:
            self._point(ordinals, self._index_of(Attribute(releasedAt=released_at)))
            return
        by_index = self._by_index()
        queued = set(self._queue) if self._is_odd() else ()
        for ordinal in ordinals:
            index = self._allocations[ordinal]
            if index is not None:
                by_index[index].remove(ordinal)
            self._allocations[ordinal] = None
            self._sequences.pop(str(ordinal), None)
            if ordinal not in queued:
                self._queue.append(ordinal)
        self.changed = True

    def collect(self, now: int, cooldown: int) -> bool:
        """Free what has cooled for `cooldown` seconds, ascending; whether there was anything."""
        expired = {
            index
            for index, attribute in enumerate(self._attributes)
            if attribute.releasedAt and is_expired(attribute.releasedAt, now, cooldown)
        }
        if not expired:
            return False
        self.give_back([o for o, index in enumerate(self._allocations) if index in expired])
        return True

    def result(self) -> Block:
        """The block with all changes; its own sequence number is the caller's affair."""
        if not self.changed:
            return self.block
        allocations, attributes = self._allocations, self._attributes
        if self._freed:
            used = sorted({index for index in allocations if index is not None})
            if len(used) != len(attributes) and (not used or used[-1] < len(attributes)):
                new = {old: place for place, old in enumerate(used)}
                allocations = [None if index is None else new[index] for index in allocations]
                attributes = [attributes[index] for index in used]
        return msgspec.structs.replace(
            self.block,
            allocations=list(allocations),
            unallocated=list(self._queue),
            attributes=list(attributes),
            sequenceNumberForAllocation=dict(self._sequences),
        )

    def _attribute(self, index: int | None) -> Attribute | None:
        known = index is not None and 0 <= index < len(self._attributes)
        return self._attributes[index] if known else None  # type: ignore[index]

    def _is_odd(self) -> bool:
        # Only in a block that breaks IPAM-1 can an allocated ordinal be queued already.
        return sum(1 for i in self._allocations if i is None) != len(self._queue)

    def _by_index(self) -> dict[int, list[int]]:
        """The ordinals of each attribute; who only assigns never needs them."""
        if self._ordinals is None:
            self._ordinals = {}
            for ordinal, index in enumerate(self._allocations):
                if index is not None:
                    self._ordinals.setdefault(index, []).append(ordinal)
        return self._ordinals

    def _by_handle(self) -> dict[str, list[int]]:
        """The attributes of each handle."""
        if self._indexes is None:
            indexes: dict[str, list[int]] = {}
            for index, attribute in enumerate(self._attributes):
                handle = attribute.handle_id or ""
                if "\r" in handle:
                    handle = handle_of(attribute)
                if handle in indexes:
                    indexes[handle].append(index)
                else:
                    indexes[handle] = [index]
            self._indexes = indexes
        return self._indexes

    def _index_of(self, attribute: Attribute) -> int:
        same = self._by_handle().setdefault(handle_of(attribute), [])
        for index in same:
            if self._attributes[index] == attribute:
                return index
        self._attributes.append(attribute)
        same.append(len(self._attributes) - 1)
        return len(self._attributes) - 1

    def _point(self, ordinals: Sequence[int], index: int) -> None:
        for ordinal in ordinals:
            before = self._allocations[ordinal]
            if before is not None:
                self._by_index()[before].remove(ordinal)
                self._freed = True
            self._allocations[ordinal] = index
            self._sequences[str(ordinal)] = self.block.sequenceNumber
            if self._ordinals is not None:
                self._ordinals.setdefault(index, []).append(ordinal)
        self.changed = True


def cooling(block: Block) -> Iterator[tuple[int, str]]:
    """The ordinals that cool, and since when."""
    attributes = block.attributes or []
    since = {i: a.releasedAt for i, a in enumerate(attributes) if a.releasedAt}
    if since:
        for ordinal, index in enumerate(block.allocations):
            if index in since:
                yield ordinal, since[index] or ""


def release_stamp(now: int, cooldown: int) -> str:
    """The stamp of a released address: the time where there is a cool-down, else empty."""
    return rfc3339_nano(now) if cooldown > 0 else ""
