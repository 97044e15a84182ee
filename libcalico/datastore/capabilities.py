"""What some stores can do besides `interface.Datastore`, and how a caller asks any store for it.

Tested in tests/libcalico/test_etcd_store.py, test_syncer_sinks.py and test_etcd_limits.py there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from libcalico.datastore.interface import (
    Batch,
    Change,
    Compacted,
    Datastore,
    Entry,
    Listing,
    Rows,
    Selection,
)
from libcalico.model.keys import Key, ResourceKey

LIST_ATTEMPTS = 3


@runtime_checkable
class Paged(Protocol):
    """A store that lists in pages, each in bounded memory."""

    def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """The pages of a listing, all at one revision: `revision`, or the present one.

        There is at least one page. Raises `Compacted` when that revision is compacted meanwhile.
        """


@runtime_checkable
class Rowed(Protocol):
    """A store that lists resources as rows, without making objects of them."""

    def rows(self, selection: Selection) -> AsyncIterator[Rows]:
        """The rows in portions, all at one revision; there is at least one portion."""


@runtime_checkable
class Refusing(Protocol):
    """A store that does not own all of its objects."""

    def refuse(self, change: Change) -> None:
        """Raise DatastoreError for a change that the store never makes.

        Nothing is read or written.
        """


@runtime_checkable
class Replaceable(Protocol):
    """A store that may turn out to be another one, or at an earlier state (`Replaced`).

    Only the first caller gets the exception, and may take it for a failure like any other.
    `when_replaced` is called before that, so that the process drops what it knew.
    """

    when_replaced: Callable[[], None]


@runtime_checkable
class Deferring(Protocol):
    """A store whose watches can wait while their owner has urgent work.

    Events are only late: none is lost or reordered.
    """

    def hold(self) -> None:
        """Pause events for some 20 ms from now; repeated calls pause them for 50 ms at most."""


class Readable(Protocol):
    """What a syncer needs of a store; it may be `Paged` and `Rowed`, too."""

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection at one revision."""

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`; raises `Compacted` or `DatastoreUnavailable`."""


@runtime_checkable
class Divided(Protocol):
    """A store whose long reads may go another way than its single calls."""

    @property
    def reader(self) -> Readable:
        """What to list and watch by, for a process that follows the store."""

    @property
    def detour(self) -> str:
        """Why long reads do not go the way that was asked for; empty where they do."""


@runtime_checkable
class Leasing(Protocol):
    """A store in which objects may share a time to live that is kept without a write."""

    async def commit(self, changes: Sequence[Change]) -> int:
        """`Datastore.commit`; also raises LeaseEnded."""

    async def grant(self, ttl: int) -> int:
        """A new lease of `ttl` seconds, for `Put.lease`."""

    async def keep_alive(self, lease: int) -> bool:
        """Begin a lease's time anew; False where the store has no such lease (any more)."""

    async def seconds_left(self, key: Key) -> int:
        """Whole seconds until an object ends with its lease; 0 for one that does not, or none."""


@runtime_checkable
class Bounded(Protocol):
    """A store that may be full: then it still answers and deletes, and refuses new writes."""

    full: str
    """Why it was full when it was last written to; empty while it takes writes."""

    async def require_room(self, key: Key) -> None:
        """Raise DatastoreError unless a write of `key` would succeed now; nothing is written."""


def reader_of(store: Readable) -> Readable:
    """`Divided.reader`; a store of another kind reads by itself."""
    return store.reader if isinstance(store, Divided) else store


async def require_room(store: Datastore, key: Key) -> None:
    """`Bounded.require_room`; a store of another kind counts as having room."""
    if isinstance(store, Bounded):
        await store.require_room(key)


def why_detour(store: Readable) -> str:
    """`Divided.detour`; a store of another kind has one way."""
    return store.detour if isinstance(store, Divided) else ""


def why_full(store: Datastore) -> str:
    """`Bounded.full`; empty for a store of another kind."""
    return store.full if isinstance(store, Bounded) else ""


async def rows_of(store: Readable, selection: Selection) -> AsyncIterator[Rows]:
    """The rows of a selection of resources; for a store without rows they are made of its pages."""
    if isinstance(store, Rowed):
        async for rows in store.rows(selection):
            yield rows
        return
    async for page in pages_of(store, replace(selection, raw=True)):
        yield [(name_of(one.key), one.raw, one.revision) for one in page.entries], page.revision


def name_of(key: Key) -> str:
    """The name of a resource as it stands in rows."""
    assert isinstance(key, ResourceKey)
    return f"{key.namespace}/{key.name}" if key.namespace else key.name


async def pages_of(
    store: Readable, selection: Selection, revision: int = 0
) -> AsyncIterator[Listing]:
    """The pages of a listing; a store without pages gives one page, of its present revision."""
    if not isinstance(store, Paged):
        yield await store.list(selection)
        return
    async for page in store.pages(selection, revision):
        yield page


async def entries_of(store: Readable, selection: Selection) -> AsyncIterator[Entry]:
    """The entries of a listing, by pages: they are never all in memory."""
    async with aclosing(pages_of(store, selection)) as pages:  # type: ignore[type-var]
        async for page in pages:
            for entry in page.entries:
                yield entry


async def whole_listing(store: Paged, selection: Selection) -> Listing:
    """All pages of a listing as one.

    A listing whose revision is compacted between two pages begins again; raises `Compacted` when
    that happens `LIST_ATTEMPTS` times.
    """
    for attempt in range(LIST_ATTEMPTS):
        entries, broken, revision = list[Entry](), list[tuple[str, str]](), 0
        try:
            async for page in store.pages(selection):
                entries.extend(page.entries)
                broken.extend(page.broken)
                revision = page.revision
        except Compacted:
            if attempt == LIST_ATTEMPTS - 1:
                raise
            continue
        return Listing(entries, revision, broken)
    raise AssertionError("unreachable")
