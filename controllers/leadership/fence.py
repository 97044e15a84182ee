"""The datastore and the API for those who may write only while they hold the lease (LEAD-4).

Reading is free. Before each write the lease is looked at in memory; that a write which is under
way when the lease ends does no harm is seen to by the revision that guards it.
Tested in tests/controllers/test_fence.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from libcalico.datastore.capabilities import Refusing, pages_of, require_room, rows_of, why_full
from libcalico.datastore.interface import Batch, Change, Datastore, Entry, Listing, Rows, Selection
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.connections import JSON
from libcalico.model.keys import Key

Check = Callable[[], None]
"""Raises where nothing may be written now."""


class FencedStore:
    """A datastore behind a check."""

    def __init__(self, store: Datastore, check: Check) -> None:
        self._store, self._check = store, check

    async def get(self, key: Key) -> Entry | None:
        """As of the store."""
        return await self._store.get(key)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Entry | None]:
        """As of the store."""
        return await self._store.get_many(keys)

    async def list(self, selection: Selection) -> Listing:
        """As of the store."""
        return await self._store.list(selection)

    def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """As of the store; one without pages has one."""
        return pages_of(self._store, selection, revision)

    def rows(self, selection: Selection) -> AsyncIterator[Rows]:
        """As of the store; of one without rows they are made of its pages."""
        return rows_of(self._store, selection)

    async def commit(self, changes: Sequence[Change]) -> int:
        """As of the store; raises what the check does."""
        self._check()
        return await self._store.commit(changes)

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """As of the store."""
        return self._store.watch(selections, revision)

    def refuse(self, change: Change) -> None:
        """As of the store."""
        if isinstance(self._store, Refusing):
            self._store.refuse(change)

    @property
    def full(self) -> str:
        """As of the store."""
        return why_full(self._store)

    async def require_room(self, key: Key) -> None:
        """As of the store."""
        await require_room(self._store, key)

    async def close(self) -> None:
        """The store is its owner's to close."""


class FencedClient(Client):
    """The API behind a check, with connections of its own."""

    def __init__(self, client: Client, check: Check) -> None:
        super().__init__(client.source)
        self._check = check

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """As of the client; raises what the check does, where it is no question."""
        if method != "GET":
            self._check()
        return await super().request(method, path, query, body, content, accept)
