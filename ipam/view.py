"""What the allocator believes the datastore holds, at which revision.

A view may be wrong: every decision made from it carries guards, and a commit that loses
brings the truth back (`CommitConflict.current`). So reading first is a question of speed,
never of safety (IPAM-6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from libcalico.datastore.interface import Change, Delete, Entry, Put
from libcalico.model.codec import encode_value
from libcalico.model.keys import Key


class View:
    """Known entries by key; a key may be known to be absent, or not known at all."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry | None] = {}

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

    def learn(self, entries: Mapping[Key, Entry | None]) -> None:
        """Take over what the datastore just said."""
        self._entries.update(entries)

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop what is not worth remembering, or no longer certain."""
        for key in list(keys):
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def wrote(self, changes: Iterable[Change], revision: int) -> None:
        """Remember what a commit of ours made of the datastore."""
        for change in changes:
            if isinstance(change, Put):
                raw = encode_value(
                    change.key, change.value, change.base.raw if change.base else None
                )
                self._entries[change.key] = Entry(change.key, change.value, revision, raw)
            elif isinstance(change, Delete):
                self._entries[change.key] = None
