"""A list that stays true: a snapshot, then changes, through restarts and compactions.

Every selection is listed in pages and then watched by a task of its own. Changes wait in one
map by key until the consumer takes them, so a burst on one key costs one update, and a slow
consumer costs memory by the number of objects, never of changes. A listing waits when too
much is waiting: a snapshot of any size passes through bounded memory. What was handed over is
remembered by its revision, so a re-list emits real differences only. Families of very many
objects go to a sink of their own, as bytes, and nothing is remembered of them here.

The collector rests while a snapshot is read, and where the process lives for what it follows
(`resident`) what the first one made is not walked again: with 100,000 objects a full pass would
hold the event loop longer than everything else here.

Invariants (tests/libcalico/test_syncer.py, test_syncer_model.py there):
  SYNC-1  After every batch the consumer's view equals the store at some moment, per key;
          no key ever goes back to an older state.
  SYNC-2  A reconnect or a re-list emits nothing for an object that did not change.
  SYNC-3  `in_sync` is true once every selection has been listed completely and handed over,
          and stays true.
  SYNC-4  The updates of a batch come in the order in which the store made them. Between
          batches this holds for each selection, unless a re-list was needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from libcalico import gc_control
from libcalico.datastore.capabilities import name_of, pages_of, reader_of, rows_of, why_detour
from libcalico.datastore.interface import (
    Compacted,
    Datastore,
    Entry,
    Event,
    Listing,
    Replaced,
    Row,
    Selection,
)
from libcalico.errors import DatastoreError
from libcalico.model.keys import Key
from libcalico.process.backoff import Backoff, spread
from libcalico.process.tasks import ended, start

log = logging.getLogger(__name__)

BATCH = 100
"""Updates in one batch at most: what a consumer does with one does not hold the loop long."""
WAITING = 2000
"""A listing goes on when fewer updates than this wait for the consumer."""


@dataclass(frozen=True, slots=True)
class Update:
    """The new state of one object; `entry` is None when it is gone."""

    key: Key
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class SyncBatch:
    """The changes since the batch before. `in_sync`: the snapshot is complete with this one."""

    updates: list[Update]
    in_sync: bool


class Sink(Protocol):
    """Receives a family of resources as they are stored, and keeps what it needs of them.

    For families of hundreds of thousands of objects: the syncer keeps nothing of them, and passes
    them on at once, not in batches. A sink never raises, whichever bytes it gets.
    """

    def begin(self) -> None:
        """A listing begins, perhaps anew: what it does not name until `end` is gone."""

    def apply_rows(self, rows: Sequence[Row]) -> None:
        """These are so now; of a listing many may be as they were."""

    def end(self, revision: int) -> None:
        """The listing is complete, at this revision."""

    def gone(self, name: str, revision: int) -> None:
        """The resource was deleted at this revision."""

    def __len__(self) -> int:
        """The number of resources."""


@dataclass(slots=True, eq=False)
class _Feed:
    selection: Selection
    sink: Sink | None = None
    known: set[Key] = field(default_factory=set)
    revision: int | None = None
    listed: bool = False
    connected: bool = False

    @property
    def size(self) -> int:
        """The number of objects, as far as the datastore was read."""
        return len(self.known if self.sink is None else self.sink)


class Syncer:
    """Follows `selections` of a store. One consumer iterates `batches()`.

    Families that have a sink go to it instead; `in_sync` waits for them too. `connected` is true
    while every selection is listed or watched without trouble; `error` is the last trouble.
    `on_connection` is called whenever `connected` may have changed, `on_replaced` when a selection
    is about to be listed anew because the store is another one (a backup was restored).

    `fleeting`: objects that were made and deleted before the consumer saw them are reported as
    deleted, too. `resident` takes all that the process has made out of the collector's sight after
    each first listing; garbage in a cycle at that moment stays for ever. `relists`: how often a
    selection was listed anew.
    """

    def __init__(
        self,
        store: Datastore,
        selections: Sequence[Selection],
        *,
        backoff_maximum: float = 2.0,
        sinks: Mapping[str, Sink] = MappingProxyType({}),
        resident: bool = False,
        fleeting: bool = False,
        on_connection: Callable[[], None] = lambda: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._origin, self._store = store, reader_of(store)
        self._on_connection, self._on_replaced = on_connection, on_replaced
        self._feeds = [
            _Feed(replace(one, raw=one.family in sinks), sinks.get(one.family))
            for one in selections
        ]
        self._backoff_maximum = backoff_maximum
        self._resident, self._fleeting = resident, fleeting
        self._pending: OrderedDict[Key, tuple[int, Entry | None]] = OrderedDict()
        self._delivered: dict[Key, int] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._before_sync: int | None = None
        self.error = ""
        self.relists = 0

    @property
    def connected(self) -> bool:
        """Whether all selections are being followed right now."""
        return all(feed.connected for feed in self._feeds)

    @property
    def in_sync(self) -> bool:
        """Whether all selections have been listed at least once."""
        return all(feed.listed for feed in self._feeds)

    @property
    def detour(self) -> str:
        """`capabilities.Divided.detour`."""
        return why_detour(self._origin)

    def known(self) -> dict[str, int]:
        """The number of objects of each followed family, as far as the datastore was read."""
        counts: dict[str, int] = {}
        for feed in self._feeds:
            family = feed.selection.family
            counts[family] = counts.get(family, 0) + feed.size
        return counts

    async def batches(self) -> AsyncIterator[SyncBatch]:
        """Batches for ever; the first with `in_sync` may be empty. Cancel or close to stop."""
        tasks = [start(self._follow(feed), feed.selection.family) for feed in self._feeds]
        announced = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for task in tasks:
                    if task.done():
                        task.result()
                while True:
                    updates = self._take()
                    in_sync = announced or self._before_sync == 0
                    if updates or in_sync != announced:
                        announced = in_sync
                        yield SyncBatch(updates, in_sync)
                    if not self._pending:
                        break
                    await asyncio.sleep(0)
        finally:
            for task in tasks:
                task.cancel()
            await ended(tasks)

    def _take(self) -> list[Update]:
        if self._before_sync is None and self.in_sync:
            # What waits now completes the snapshot; what comes later queues behind it.
            self._before_sync = len(self._pending)
        taken: list[tuple[int, Update]] = []
        for _ in range(min(BATCH, len(self._pending))):
            key, (revision, entry) = self._pending.popitem(last=False)
            if self._before_sync:
                self._before_sync -= 1
            if entry is None:
                if self._delivered.pop(key, None) is not None or self._fleeting:
                    taken.append((revision, Update(key, None)))
            elif self._delivered.get(key) != (mark := _mark(entry)):
                self._delivered[key] = mark
                taken.append((revision, Update(key, entry)))
        if len(self._pending) < WAITING:
            self._room.set()
        taken.sort(key=lambda one: one[0])
        return [update for _, update in taken]

    async def _follow(self, feed: _Feed) -> None:
        backoff = Backoff(0.1, self._backoff_maximum)
        try:
            while True:
                try:
                    if feed.revision is None:
                        first = self._resident and not feed.listed
                        with gc_control.resting(lambda: first):  # noqa: B023
                            await self._list(feed)
                    await self._watch(feed, backoff)
                except Compacted as problem:
                    feed.revision = None
                    level = logging.INFO
                    if isinstance(problem, Replaced):
                        level = logging.WARNING
                        self._on_replaced()
                    family = feed.selection.family
                    log.log(level, "listing again: %s", problem, extra={"family": family})
                    # A second compaction at once is only slow, never wrong.
                    await backoff.wait()
                except DatastoreError as problem:
                    self._lost(feed, problem)
                    await backoff.wait()
        finally:
            feed.connected = False
            self._wake.set()

    def _connected(self, feed: _Feed, connected: bool) -> None:
        if feed.connected != connected:
            feed.connected = connected
            self._on_connection()

    async def _list(self, feed: _Feed) -> None:
        if feed.listed:
            self.relists += 1
            await asyncio.sleep(spread(feed.size))  # other nodes read it anew, too
        if feed.sink is None:
            feed.revision = await self._list_entries(feed)
        else:
            feed.revision = await self._list_rows(feed, feed.sink)
        feed.listed = True
        self._connected(feed, True)
        self._wake.set()

    async def _list_rows(self, feed: _Feed, sink: Sink) -> int:
        sink.begin()
        revision = 0
        async for rows, revision in rows_of(self._store, feed.selection):  # noqa: B007
            sink.apply_rows(rows)
        sink.end(revision)
        return revision

    async def _list_entries(self, feed: _Feed) -> int:
        present: set[Key] = set()
        revision = 0
        async for page in pages_of(self._store, feed.selection):
            revision = page.revision
            self._note_page(page, feed, present)
            while len(self._pending) >= WAITING:
                self._room.clear()
                await self._room.wait()
        for key in feed.known - present:
            self._note(key, revision, None)
        feed.known = present
        return revision

    def _note_page(self, page: Listing, feed: _Feed, present: set[Key]) -> None:
        for name, reason in page.broken:
            log.error("not readable: %s", reason, extra={"object": name})
        for entry in page.entries:
            present.add(entry.key)
            # Known from now on: a listing that is begun anew must be able to take it back.
            feed.known.add(entry.key)
            self._note(entry.key, entry.revision, entry)
        self._wake.set()

    async def _watch(self, feed: _Feed, backoff: Backoff) -> None:
        assert feed.revision is not None
        async for batch in self._store.watch([feed.selection], feed.revision):
            backoff.reset()
            if not feed.connected:
                self._connected(feed, True)
                log.info("the datastore is back", extra={"family": feed.selection.family})
            for event in batch:
                self._changed(feed, event)
            feed.revision = max(feed.revision, batch.revision)
            if batch:
                self._wake.set()

    def _changed(self, feed: _Feed, event: Event) -> None:
        if feed.sink is not None:
            name = name_of(event.key)
            if event.entry is None:
                feed.sink.gone(name, event.revision)
            else:
                feed.sink.apply_rows([(name, event.entry.raw, event.revision)])
            return
        if event.broken:
            log.error("not readable: %s", event.broken, extra={"object": str(event.key)})
        if event.entry is None:
            feed.known.discard(event.key)
        else:
            feed.known.add(event.key)
        self._note(event.key, event.revision, event.entry)

    def _note(self, key: Key, revision: int, entry: Entry | None) -> None:
        waiting = key in self._pending
        if not waiting and entry is not None and self._delivered.get(key) == _mark(entry):
            return
        # A key that waits keeps its place: the snapshot is complete when its last place is.
        self._pending[key] = (revision, entry)

    def _lost(self, feed: _Feed, problem: DatastoreError) -> None:
        self.error = str(problem)
        if feed.connected or not feed.listed:
            log.warning(
                "the datastore is away: %s", problem, extra={"family": feed.selection.family}
            )
        self._connected(feed, False)


def _mark(entry: Entry) -> int:
    # The bytes count too: in a store that was set up anew, revisions begin anew.
    return hash((entry.revision, entry.raw))
