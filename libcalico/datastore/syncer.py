"""A list that stays true: a snapshot, then changes, through restarts and compactions.

Every selection is listed and then watched by a task of its own. Changes wait in one map by
key until the consumer takes them, so a burst on one key costs one update. What was handed
over is remembered by its revision, so a re-list emits real differences only.

Invariants (tests/libcalico/test_syncer.py):
  SYNC-1  After every batch the consumer's view equals the store at some moment, per key;
          no key ever goes back to an older state.
  SYNC-2  A reconnect or a re-list emits nothing for an object that did not change.
  SYNC-3  `in_sync` is true once every selection has been listed completely, and stays true.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from libcalico.backoff import Backoff
from libcalico.datastore.interface import Compacted, Datastore, Entry, Event, Selection
from libcalico.errors import DatastoreError
from libcalico.model.keys import Key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Update:
    """The new state of one object; `entry` None: it is gone."""

    key: Key
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class SyncBatch:
    """What changed since the batch before. `in_sync`: the snapshot is complete with this one."""

    updates: list[Update]
    in_sync: bool


@dataclass(slots=True, eq=False)
class _Feed:
    selection: Selection
    known: set[Key] = field(default_factory=set)
    revision: int | None = None
    listed: bool = False
    connected: bool = False


class Syncer:
    """Follows `selections` of a store. One consumer iterates `batches()`.

    `connected` is true while every selection is listed or watched without trouble;
    `error` says what the last trouble was.
    """

    def __init__(
        self, store: Datastore, selections: Sequence[Selection], *, backoff_maximum: float = 2.0
    ) -> None:
        self._store = store
        self._feeds = [_Feed(selection) for selection in selections]
        self._backoff_maximum = backoff_maximum
        self._pending: dict[Key, Entry | None] = {}
        self._delivered: dict[Key, tuple[int, int]] = {}
        self._wake = asyncio.Event()
        self.error = ""

    @property
    def connected(self) -> bool:
        """Whether all selections are being followed right now."""
        return all(feed.connected for feed in self._feeds)

    @property
    def in_sync(self) -> bool:
        """Whether all selections have been listed at least once."""
        return all(feed.listed for feed in self._feeds)

    async def batches(self) -> AsyncIterator[SyncBatch]:
        """Batches for ever; the first with `in_sync` may be empty. Cancel or close to stop."""
        tasks = [asyncio.create_task(self._follow(feed)) for feed in self._feeds]
        announced = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for task in tasks:
                    if task.done():
                        task.result()
                in_sync = self.in_sync
                updates = self._take()
                if updates or in_sync != announced:
                    announced = in_sync
                    yield SyncBatch(updates, in_sync)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self) -> list[Update]:
        pending, self._pending = self._pending, {}
        updates = []
        for key, entry in pending.items():
            if entry is None:
                if self._delivered.pop(key, None) is not None:
                    updates.append(Update(key, None))
                continue
            mark = (entry.revision, hash(entry.raw))
            if self._delivered.get(key) != mark:
                self._delivered[key] = mark
                updates.append(Update(key, entry))
        return updates

    async def _follow(self, feed: _Feed) -> None:
        backoff = Backoff(0.1, self._backoff_maximum)
        try:
            while True:
                try:
                    if feed.revision is None:
                        await self._list(feed)
                    await self._watch(feed, backoff)
                except Compacted as problem:
                    log.info("listing again: %s", problem, extra={"family": feed.selection.family})
                    feed.revision = None
                    # A second compaction at once is only slow, never wrong.
                    await backoff.wait()
                except DatastoreError as problem:
                    self._lost(feed, problem)
                    await backoff.wait()
        finally:
            feed.connected = False
            self._wake.set()

    async def _list(self, feed: _Feed) -> None:
        listing = await self._store.list(feed.selection)
        for name, reason in listing.broken:
            log.error("not readable: %s", reason, extra={"object": name})
        present = set()
        for entry in listing.entries:
            present.add(entry.key)
            self._pending[entry.key] = entry
        for key in feed.known - present:
            self._pending[key] = None
        feed.known = present
        feed.revision = listing.revision
        feed.listed = True
        feed.connected = True
        self._wake.set()

    async def _watch(self, feed: _Feed, backoff: Backoff) -> None:
        assert feed.revision is not None
        async for batch in self._store.watch([feed.selection], feed.revision):
            backoff.reset()
            if not feed.connected:
                feed.connected = True
                log.info("the datastore is back", extra={"family": feed.selection.family})
            for event in batch:
                self._note(feed, event)
            feed.revision = max(feed.revision, batch.revision)
            if batch:
                self._wake.set()

    def _note(self, feed: _Feed, event: Event) -> None:
        if event.broken:
            log.error("not readable: %s", event.broken, extra={"object": str(event.key)})
        self._pending[event.key] = event.entry
        if event.entry is None:
            feed.known.discard(event.key)
        else:
            feed.known.add(event.key)

    def _lost(self, feed: _Feed, problem: DatastoreError) -> None:
        self.error = str(problem)
        if feed.connected or not feed.listed:
            log.warning(
                "the datastore is away: %s", problem, extra={"family": feed.selection.family}
            )
        feed.connected = False
