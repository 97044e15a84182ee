"""A datastore that can be read and never written.

Invariants:
  WEB-1  No code of the page can write to the datastore: the client that it holds refuses.
Tested in tests/web/test_readonly.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from libcalico.datastore.interface import Batch, Change, Datastore, Entry, Listing, Selection
from libcalico.errors import DatastoreError
from libcalico.model.keys import Key


class ReadOnly:
    """`interface.Datastore` without writes: `commit` raises DatastoreError before anything else."""

    def __init__(self, store: Datastore) -> None:
        self.__store = store

    async def get(self, key: Key) -> Entry | None:
        """The object, or None."""
        return await self.__store.get(key)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects at one revision."""
        return await self.__store.get_many(keys)

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision."""
        return await self.__store.list(selection)

    async def commit(self, changes: Sequence[Change]) -> int:
        """Refused. Raises DatastoreError."""
        names = ", ".join(str(change.key) for change in changes)
        raise DatastoreError(f"the page only reads: {names} was not written")

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`."""
        return self.__store.watch(selections, revision)

    async def close(self) -> None:
        """Close the connection."""
        await self.__store.close()
