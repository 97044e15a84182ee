"""A store in memory with etcd's semantics, for models that need thousands of steps.

Revisions, guards and whole transactions are etcd's; values are encoded and decoded by the
real codec, so nothing passes that could not be stored. `before_commit` lets a test act as a
rival, or fail a call, at every step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from libcalico.datastore.interface import (
    Change,
    CommitConflict,
    Delete,
    Entry,
    Listing,
    Put,
    Selection,
)
from libcalico.model.codec import decode_value, encode_value
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, Key, ResourceKey

FAMILIES = {BlockKey: "Block", AffinityKey: "BlockAffinity", HandleKey: "Handle"}


class MemoryStore:
    """Implements `libcalico.datastore.interface.Datastore` but for `watch`."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.revision = 1
        self.commits = 0
        self.reads = 0
        self.before_commit: Callable[[Sequence[Change]], None] = lambda _: None
        self.after_commit: Callable[[Sequence[Change]], None] = lambda _: None

    async def get(self, key: Key) -> Entry | None:
        return (await self.get_many([key]))[key]

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        self.reads += 1
        return {key: self.entries.get(key) for key in keys}

    async def list(self, selection: Selection) -> Listing:
        self.reads += 1
        chosen = [entry for key, entry in self.entries.items() if _selects(selection, key)]
        if selection.raw:
            chosen = [replace(entry, value=None) for entry in chosen]
        return Listing(sorted(chosen, key=lambda entry: str(entry.key)), self.revision, [])

    async def commit(self, changes: Sequence[Change]) -> int:
        assert len({change.key for change in changes}) == len(changes)
        assert len(changes) <= 128
        self.commits += 1
        self.before_commit(changes)
        guarded = {c.key: self.entries.get(c.key) for c in changes if c.guard is not None}
        for change in changes:
            entry = self.entries.get(change.key)
            if change.guard is not None and change.guard != (entry.revision if entry else 0):
                raise CommitConflict(guarded)
        self.revision += 1
        for change in changes:
            if isinstance(change, Put):
                raw = encode_value(
                    change.key, change.value, change.base.raw if change.base else None
                )
                value = decode_value(change.key, raw)
                self.entries[change.key] = Entry(change.key, value, self.revision, raw)
            elif isinstance(change, Delete):
                self.entries.pop(change.key, None)
        self.after_commit(changes)
        return self.revision

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Any]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def blocks(self) -> dict[BlockKey, Any]:
        """Stored blocks."""
        return {k: e.value for k, e in self.entries.items() if isinstance(k, BlockKey)}

    def handles(self) -> dict[str, Any]:
        """Stored handles by id."""
        return {k.handle_id: e.value for k, e in self.entries.items() if isinstance(k, HandleKey)}


def _selects(selection: Selection, key: Key) -> bool:
    if isinstance(key, ResourceKey):
        return (
            key.kind == selection.family
            and key.name.startswith(selection.name_prefix)
            and (key.kind != "Node" or selection.host in ("", key.name))
            and (key.kind != "Node" or selection.host in ("", key.name))
            and selection.namespace in ("", key.namespace)
        )
    if FAMILIES.get(type(key)) != selection.family:
        return False
    return not (selection.host and isinstance(key, AffinityKey) and key.host != selection.host)
