"""The datastore interface on the Kubernetes API.

Guards are resourceVersions. A commit of several changes is no transaction here: its changes are
applied in the order of `order.phases`, those of one phase together, and taken back in reverse
when a guard of a later one does not hold. What cannot be taken back, because the API is away or
this process dies, is what the allocator and the collector put right (KDD-1 to KDD-3).

Objects are read one by one: several at once are not of one moment, as they are in etcd. Without
an event loop (`libcalico.process.unlooped`) what is done together is done one after the other.
Tested against a real kube-apiserver in tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from libcalico.datastore import built_in
from libcalico.datastore.capabilities import whole_listing
from libcalico.datastore.interface import (
    ABSENT,
    Batch,
    Change,
    Check,
    CommitConflict,
    Entry,
    Listing,
    Put,
    Revision,
    Selection,
)
from libcalico.datastore.kubernetes import listing, order
from libcalico.datastore.kubernetes.decode import entry_of
from libcalico.datastore.kubernetes.failures import as_datastore_error, translated
from libcalico.datastore.kubernetes.feeds import Feed
from libcalico.datastore.kubernetes.mapping import Patched
from libcalico.datastore.kubernetes.positions import Memory, Positions
from libcalico.datastore.kubernetes.table import Table
from libcalico.datastore.kubernetes.writer import Done, Lost, Writer
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import (
    Busy,
    KubernetesError,
    Unreachable,
)
from libcalico.model import Handle
from libcalico.model.keys import HostKey, Key, StatusKey
from libcalico.process import unlooped

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")
TOGETHER = 16
"""Requests at a time."""


class KubernetesDatastore:
    """`interface.Datastore` on the Kubernetes API. `close` closes the client."""

    def __init__(self, client: Client, *, pod_cidr: bool = False) -> None:
        self._client = client
        self._table = Table(pod_cidr=pod_cidr)
        self._writer = Writer(client, self._table)
        self._memory = Memory()
        self._turns: asyncio.Semaphore | None = None

    async def get(self, key: Key) -> Entry | None:
        """The object, or None. Raises InvalidValue when it cannot be understood."""
        if key == built_in.KEY:
            return built_in.entry()
        mapping = self._table.of_key(key)
        place = mapping.place(key) if mapping else None
        if mapping is None or place is None:
            return None
        with translated():
            tree = await self._writer.objects.read(mapping.collection, place)
            if tree is None or mapping.key(tree) != key:
                return None
            await listing.have_nodes(self._client, mapping, [tree])
        entry, reason = entry_of(mapping, key, tree)
        if reason:
            raise InvalidValue("$", "...", reason, str(key))
        if entry is None:
            with translated():
                await self._writer.finish(mapping, place, tree)
            return None
        if isinstance(mapping, Patched):
            self._writer.remember(entry)
        return entry

    async def get_many(self, requested: Sequence[Key]) -> dict[Key, Entry | None]:
        """Several objects, each in its present state."""
        keys = list(dict.fromkeys(requested))
        if not unlooped.in_loop():
            return {key: await self.get(key) for key in keys}
        import asyncio

        entries = await asyncio.gather(*(self._in_turn(self.get, key) for key in keys))
        return dict(zip(keys, entries, strict=True))

    async def list(self, selection: Selection) -> Listing:
        """All objects of a selection."""
        return await whole_listing(self, selection)

    async def pages(self, selection: Selection, revision: int = 0) -> AsyncIterator[Listing]:
        """The pages of a listing, of `revision` or the present one."""
        positions: Positions = {}
        for feed in self._feeds(selection):
            async for page, at in listing.pages(self._client, feed, revision):
                positions[feed.path] = at
                yield Listing(page.entries, max(positions.values()), page.broken)
        last: list[Entry] = []
        if built_in.is_selected(selection):
            last.append(built_in.entry())
        yield Listing(last, self._memory.keep(selection.family, positions), [])

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply the changes in their order; returns the new revision, a `Revision` for several.

        Raises CommitConflict when a guard does not hold; the changes made so far are undone then.
        Raises DatastoreUnavailable when their fate is unknown, or they could not be undone.
        """
        kept = [
            change
            for change in built_in.permitted(changes)
            if not isinstance(change.key, StatusKey | HostKey)
        ]
        await self._check([change for change in kept if isinstance(change, Check)])
        handles = {
            change.key: await self._handle(change) for change in kept if order.is_handle(change)
        }
        own: dict[Key, int] = {}
        done: list[Done] = []
        for phase in order.phases(kept, handles.get):
            outcomes = await self._outcomes(phase, own)
            for one in outcomes:
                if isinstance(one, Done):
                    done.append(one)
                    own[one.key] = one.revision
            failed = [one for one in outcomes if isinstance(one, BaseException)]
            if failed:
                await self._take_back(done, failed)
        return Revision.of(own) if len(own) > 1 else max(own.values(), default=0)

    def refuse(self, change: Change) -> None:
        """Raise DatastoreError for a change that only Kubernetes makes."""
        self._writer.refuse(change)

    def watch(self, selections: Sequence[Selection], revision: int) -> AsyncIterator[Batch]:
        """Batches of events after `revision`; raises `Compacted` or `DatastoreUnavailable`.

        Events of one object are in order.
        """
        from libcalico.datastore.kubernetes import watch as watching

        feeds: list[Feed] = []
        positions: Positions = {}
        for selection in selections:
            mine = self._feeds(selection)
            positions |= self._memory.find(selection.family, revision, [feed.path for feed in mine])
            feeds += mine
        return watching.watch(self._client, feeds, positions, self._memory)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    # -- reading -------------------------------------------------------------------------------

    def _feeds(self, selection: Selection) -> Sequence[Feed]:
        feeds = []
        for mapping in self._table.of_family(selection.family):
            asked = mapping.asked(selection)
            path = mapping.collection.path(asked.namespace)
            feeds.append(Feed(selection, mapping, path, asked.parameters, asked.brief))
        return feeds

    async def _in_turn(
        self, work: Callable[P, Awaitable[T]], *about: P.args, **named: P.kwargs
    ) -> T:
        import asyncio

        self._turns = self._turns or asyncio.Semaphore(TOGETHER)
        # Begun when its turn comes: what is cancelled before has begun nothing.
        async with self._turns:
            return await work(*about, **named)

    # -- writing -------------------------------------------------------------------------------

    async def _check(self, checks: Sequence[Check]) -> None:
        entries = await self.get_many([one.key for one in checks])
        wrong: dict[Key, Entry | None] = {}
        for one in checks:
            entry = entries[one.key]
            if (entry.revision if entry else ABSENT) != one.guard:
                wrong[one.key] = entry
        if wrong:
            raise CommitConflict(wrong)

    async def _handle(self, change: Change) -> Handle | None:
        """The handle before the change as its writer saw it; read where that is not known."""
        if not change.guard:
            return None
        base = change.base if isinstance(change, Put) else None
        entry = base or self._known(change.key, change.guard) or await self.get(change.key)
        return entry.value if entry else None

    def _known(self, key: Key, revision: int) -> Entry | None:
        mapping = self._table.of_key(key)
        place = mapping.place(key) if mapping else None
        if mapping is None or place is None:
            return None
        tree = self._writer.objects.known(mapping.collection, place, revision)
        return entry_of(mapping, key, tree)[0] if tree is not None else None

    async def _outcomes(
        self, phase: Sequence[Change], own: dict[Key, int]
    ) -> Sequence[Done | BaseException]:
        """What became of the changes of a phase; those after a failure may not be begun."""
        if unlooped.in_loop():
            import asyncio

            return await asyncio.gather(
                *(self._in_turn(self._apply, change, own) for change in phase),
                return_exceptions=True,
            )
        outcomes: list[Done | BaseException] = []
        for change in phase:
            try:
                outcomes.append(await self._apply(change, own))
            except Exception as error:  # noqa: BLE001 - `gather` collects all, too
                outcomes.append(error)
                break
        return outcomes

    async def _apply(self, change: Change, own: dict[Key, int]) -> Done:
        # Of a key that comes twice the second write stands on the first.
        guard = own.get(change.key, change.guard)
        return await self._writer.apply(change, guard)

    async def _take_back(self, done: Sequence[Done], failed: Sequence[BaseException]) -> None:
        """Undo the changes in reverse, then raise the error that explains it."""
        for one in failed:
            if not isinstance(one, Exception):
                raise one
            if isinstance(one, Unreachable | Busy) or _unclear(one):
                # It may have been written after all: taking the others back could break that.
                assert isinstance(one, KubernetesError)
                raise DatastoreUnavailable(f"{as_datastore_error(one)}; what was written stays")
        undone: list[Key] = []
        for past in reversed(done):
            if past.undo is None:
                continue
            try:
                await past.undo()
            except KubernetesError as error:
                import logging

                log = logging.getLogger(__name__)
                log.warning("a commit is not taken back: %s: %s", past.key, error)
                raise DatastoreUnavailable(
                    f"{past.key} could not be taken back: {error}; {failed[0]}"
                ) from None
            undone.append(past.key)
        lost = [one for one in failed if isinstance(one, Lost)]
        for one in failed:
            if not isinstance(one, Lost):
                raise as_datastore_error(one) if isinstance(one, KubernetesError) else one
        current: dict[Key, Entry | None] = {one.key: self._now(one) for one in lost}
        # What came back has another revision than before.
        current |= {
            key: entry for key, entry in (await self.get_many(undone)).items() if key not in current
        }
        raise CommitConflict(current)

    def _now(self, lost: Lost) -> Entry | None:
        mapping = self._table.of_key(lost.key)
        if lost.tree is None or mapping is None:
            return None
        entry, reason = entry_of(mapping, lost.key, lost.tree)
        if reason and entry is not None:
            return Entry(lost.key, None, entry.revision, entry.raw)
        if entry is not None and isinstance(mapping, Patched):
            self._writer.remember(entry)
        return entry


def _unclear(error: Exception) -> bool:
    return isinstance(error, KubernetesError) and getattr(error, "status", 0) >= 500
