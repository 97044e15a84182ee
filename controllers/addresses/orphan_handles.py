"""Handles that no block names any more: what an ADD or DEL leaves that died between its writes.

With the Kubernetes datastore a handle is written before its blocks and removed after them
(KDD-1 in libcalico/datastore/kubernetes/order.py), so an orphan is harmless, but no other part
would ever remove it. One is deleted when two looks, a grace period apart, found it unnamed and
unchanged: a user of the handle writes it first. Pure, but for the deletion.
Tested in tests/controllers/test_orphan_handles.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ipam.records.block_editor import handle_of
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import CommitConflict, Datastore, Delete, Selection
from libcalico.model import Block
from libcalico.model.keys import HandleKey

log = logging.getLogger(__name__)


class OrphanHandles:
    """The handles of the last look. `period`: seconds between two looks at least."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._looked: float | None = None
        self._seen: dict[HandleKey, int] = {}
        self.deleted = 0

    def is_due(self, now: float) -> bool:
        """Whether to look; `now` is of one monotonic clock."""
        return self._looked is None or now - self._looked >= self._period

    async def look(self, store: Datastore, blocks: Iterable[Block], now: float) -> None:
        """One look. `blocks` are all blocks, read before. Raises DatastoreError."""
        named = {handle_of(one).lower() for block in blocks for one in block.attributes}
        handles: dict[HandleKey, int] = {}
        async for page in pages_of(store, Selection("Handle", raw=True)):
            for entry in page.entries:
                assert isinstance(entry.key, HandleKey)
                handles[entry.key] = entry.revision
        for key, revision in self.observe(handles, named, now):
            try:
                await store.commit([Delete(key, revision)])
            except CommitConflict:
                continue
            self.deleted += 1
            log.info("a handle without addresses is deleted", extra={"handle": key.handle_id})

    def observe(
        self, handles: dict[HandleKey, int], named: set[str], now: float
    ) -> list[tuple[HandleKey, int]]:
        """The orphans that are confirmed, at their revisions. `named`: in lower case, by blocks."""
        orphans = {
            key: revision for key, revision in handles.items() if key.handle_id.lower() not in named
        }
        before, self._seen, self._looked = self._seen, orphans, now
        return [(key, at) for key, at in orphans.items() if before.get(key) == at]
