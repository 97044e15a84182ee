"""The plan in the making: what a group of requests changes, before it is committed.

Invariant IPAM-15: what a block says about a handle is believed only in a transaction that
writes or compares the block: a stale view must not make a handle forget an address.

A request fills a `Step` without touching anything; `TransactionDraft.enter` takes the whole step
over, or the request leaves no trace (IPAM-8). Pure; tested through tests/ipam/test_planner.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ipam.allocator.view import View
from ipam.records import blocks, handles
from ipam.records.block_editor import BlockEditor, release_stamp
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import ABSENT, Change, Check, Delete, Put
from libcalico.model import Handle
from libcalico.model.keys import BlockKey, HandleKey, Key

Candidate = tuple[BlockKey, Collection[int]]
"""A block that may have free addresses, and its reserved ordinals."""


class Missing(Exception):
    """These keys must be read before the request can be decided."""

    def __init__(self, *keys: Key) -> None:
        self.keys = keys


@dataclass(slots=True)
class Step:
    """The changes of one request."""

    handle_id: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    given: list[tuple[BlockKey, list[int]]] = field(default_factory=list)
    freed: list[tuple[BlockKey, list[int]]] = field(default_factory=list)
    handle: dict[str, int] = field(default_factory=dict)
    companion: Change | None = None
    seen: list[BlockKey] = field(default_factory=list)
    """Blocks that decided something and may stay as they are: the transaction compares them."""

    def keys(self) -> set[Key]:
        """Every object that the step changes, without the companion's."""
        touched: set[Key] = {key for key, _ in self.given + self.freed}
        touched.update(self.seen)
        if self.handle and self.handle_id:
            touched.add(HandleKey(self.handle_id))
        return touched

    @property
    def width(self) -> int:
        """How many objects the step changes."""
        return len(self.keys()) + (self.companion is not None)


class TransactionDraft:
    """Edits of blocks, new handles, and the companions' changes."""

    def __init__(self, view: View, now: int = 0, cooldown: int = 0) -> None:
        self.view = view
        self._now, self._cooldown = now, cooldown
        self._edits: dict[BlockKey, BlockEditor] = {}
        self._touched: set[BlockKey] = set()
        self._seen: set[BlockKey] = set()
        self._handles: dict[HandleKey, Handle | None] = {}
        self._companions: dict[Key, Change] = {}
        self.candidates: dict[tuple[int, tuple[str, ...]], list[Candidate]] = {}

    def edit(self, key: BlockKey) -> BlockEditor | None:
        """The block in its present state, cooled addresses collected; None where it is absent."""
        edit = self._edits.get(key)
        if edit is None:
            block = self.view.value(key)
            if block is None:
                return None
            edit = self._edits[key] = BlockEditor(block)
            edit.collect(self._now, self._cooldown)
        return edit

    def frees(self, key: BlockKey) -> bool:
        """Whether a block without free addresses may have some: freed in this plan, or cooled."""
        return key in self._edits or self.view.cools(key)

    def handle(self, handle_id: str) -> Handle | None:
        """The handle in its present state."""
        key = HandleKey(handle_id)
        if key in self._handles:
            return self._handles[key]
        handle: Handle | None = self.view.value(key)
        return handle

    def knows(self, key: Key) -> bool:
        """Whether the object's state is known, absence included."""
        return key in self._edits or key in self._handles or key in self.view

    def require(self, *keys: Key) -> None:
        """Raise `Missing` for those of these objects whose state is not known."""
        if unknown := [key for key in keys if not self.knows(key)]:
            raise Missing(*unknown)

    def addresses(self, key: BlockKey, ordinals: Sequence[int]) -> list[IPAddress]:
        """The addresses of some ordinals of a block."""
        first = key.cidr.network_address
        return [first + ordinal for ordinal in ordinals]

    def fits(self, step: Step, limit: int) -> bool:
        """Whether the step fits into this transaction: its size, and no companion twice."""
        companion = step.companion
        if companion is not None and companion.key in self._companions:
            return False
        touched = self._touched | self._seen | self._handles.keys() | step.keys()
        return len(touched) + len(self._companions) + (companion is not None) <= limit

    def enter(self, step: Step) -> None:
        """Add the step to the draft."""
        self._seen.update(step.seen)
        for key, ordinals in step.given:
            edit = self._edits[key]
            edit.give(ordinals, step.handle_id, step.attributes)
            self._touched.add(key)
        if step.freed:
            self.candidates.clear()
        for key, ordinals in step.freed:
            self._edits[key].give_back(ordinals, release_stamp(self._now, self._cooldown))
            self._touched.add(key)
        if step.handle and step.handle_id:
            handle = self.handle(step.handle_id)
            for cidr, count in step.handle.items():
                if count > 0:
                    handle = handles.add(handle, cidr, count)
                elif handle is not None:
                    handle = handles.subtract(handle, cidr, -count)
            self._handles[HandleKey(step.handle_id)] = handle
        if step.companion is not None:
            self._companions[step.companion.key] = step.companion

    def changes(self) -> list[Change]:
        """The transaction."""
        made: list[Change] = []
        for key in sorted(self._touched, key=_order):
            entry = self.view.get(key)
            assert entry is not None
            block = self._edits[key].result()
            if blocks.is_abandoned(block):
                made.append(Delete(key, entry.revision))
            else:
                value = blocks.written(block, entry.value)
                made.append(Put(key, value, entry.revision, self.view.base(key)))
        for key in sorted(self._seen - self._touched, key=_order):
            entry = self.view.get(key)
            made.append(Check(key, entry.revision if entry else ABSENT))
        for handle_key, handle in self._handles.items():
            stored = self.view.get(handle_key)
            if handle is not None:
                guard = stored.revision if stored else ABSENT
                made.append(Put(handle_key, handle, guard, self.view.base(handle_key)))
            elif stored is not None:
                made.append(Delete(handle_key, stored.revision))
        return made + list(self._companions.values())


def _order(key: BlockKey) -> tuple[int, int]:
    return key.cidr.version, int(ip_address(key.cidr.network_address))
