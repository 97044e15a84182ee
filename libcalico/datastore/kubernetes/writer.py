"""One change of a commit, as requests to the API; and how to take it back.

Guards are resourceVersions, told with the write itself, so that between reading and writing
nothing is assumed. What a write replaces is remembered for as long as it may have to come back.
Tested in tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from libcalico.datastore.interface import ABSENT, Change, Delete, Entry, Put
from libcalico.datastore.kubernetes.mapping import (
    Collection,
    Patched,
    Place,
    Stored,
    encoded,
    metadata,
    version,
)
from libcalico.datastore.kubernetes.mapping import Mapping as Mapped
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.datastore.kubernetes.objects import TRIES, Objects, keep
from libcalico.datastore.kubernetes.table import Table
from libcalico.errors import DatastoreError
from libcalico.kubernetes.client import MERGE_PATCH, Client
from libcalico.kubernetes.errors import Conflict, ObjectNotFound
from libcalico.model.keys import Key


class Lost(Exception):
    """A guard did not hold: the object is `tree` now, or there is none."""

    def __init__(self, key: Key, tree: Tree | None) -> None:
        self.key, self.tree = key, tree
        super().__init__(str(key))


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made: the object's revision now (0 for none), and how to undo it."""

    key: Key
    revision: int
    undo: Callable[[], Awaitable[None]] | None = None


class Writer:
    """Reads and writes single objects."""

    def __init__(self, client: Client, table: Table) -> None:
        self._table = table
        self.objects = Objects(client)
        self._entries: OrderedDict[tuple[Key, int], Entry] = OrderedDict()

    # -- reading -------------------------------------------------------------------------------

    def remember(self, entry: Entry) -> None:
        """Remember an entry that a reader got: a guard may name its revision."""
        keep(self._entries, (entry.key, entry.revision), entry)

    async def finish(self, mapped: Mapped, place: Place, tree: Tree) -> None:
        """Delete what is marked as deleted; it is no error if it is gone already."""
        try:
            await self.objects.delete(mapped.collection.path(place.namespace, place.name), tree)
        except (Conflict, ObjectNotFound):
            pass

    # -- writing -------------------------------------------------------------------------------

    async def apply(self, change: Change, guard: int | None) -> Done:
        """Make one change. Raises Lost, KubernetesError, DatastoreError."""
        mapped = self._table.of_key(change.key)
        place = mapped.place(change.key) if mapped else None
        if isinstance(mapped, Patched):
            return await self._patch(mapped, place, change, guard)
        if mapped is None or place is None or not isinstance(mapped, Stored):
            raise _of_kubernetes(change.key)
        if isinstance(change, Put):
            return await self._put(mapped, place, change, guard)
        assert isinstance(change, Delete)
        return await self._remove(mapped, place, change, guard)

    def refuse(self, change: Change) -> None:
        """Raise DatastoreError for a change that is never made, with any stored state."""
        mapped = self._table.of_key(change.key)
        if isinstance(mapped, Patched):
            if isinstance(change, Delete):
                mapped.annotations(change, {})
        elif not isinstance(mapped, Stored):
            raise _of_kubernetes(change.key)

    async def _put(self, mapped: Stored, place: Place, put: Put, guard: int | None) -> Done:
        for _ in range(TRIES):
            before: Tree | None = None
            if guard != ABSENT:
                before = await self._before(mapped, place, put.key, guard)
            try:
                if before is None:
                    return await self._create(mapped, place, put)
                return await self._replace(mapped, place, put, before)
            except (Conflict, ObjectNotFound) as error:
                now = await self.objects.read(mapped.collection, place)
                if now is None:
                    if isinstance(error, ObjectNotFound) and before is None:
                        raise  # its namespace is missing, or its kind
                    if guard:
                        raise Lost(put.key, None) from None
                elif self._going(mapped, put.key, now):
                    await self.finish(mapped, place, now)
                    if guard:
                        raise Lost(put.key, None) from None
                elif guard is not None:
                    raise Lost(put.key, now) from None
        raise DatastoreError(f"{put.key}: others changed it {TRIES} times meanwhile")

    async def _before(
        self, mapped: Stored, place: Place, key: Key, guard: int | None
    ) -> Tree | None:
        """The object to write over; where there is a guard, it has the guard's revision."""
        known = self.objects.known(mapped.collection, place, guard) if guard else None
        if known is not None:
            return known
        now = await self.objects.read(mapped.collection, place)
        if now is not None and self._going(mapped, key, now):
            await self.finish(mapped, place, now)
            now = None
        if guard and (now is None or version(now) != guard):
            raise Lost(key, now)
        return now

    async def _create(self, mapped: Stored, place: Place, put: Put) -> Done:
        collection = mapped.collection
        body = mapped.body(put, None)
        path = collection.path(place.namespace, place.name)
        made = await self.objects.send("POST", collection.path(place.namespace), path, body)
        made = await self._status(collection, path, body, made)

        async def undo() -> None:
            await self.objects.delete(path, made)

        return Done(put.key, version(made), undo)

    async def _replace(self, mapped: Stored, place: Place, put: Put, before: Tree) -> Done:
        collection = mapped.collection
        path = collection.path(place.namespace, place.name)
        body = mapped.body(put, before)
        body["metadata"]["resourceVersion"] = metadata(before)["resourceVersion"]
        made = await self.objects.send("PUT", path, path, body)
        made = await self._status(collection, path, body, made)

        async def undo() -> None:
            old = {**before, "metadata": {**metadata(before)}}
            old["metadata"]["resourceVersion"] = metadata(made)["resourceVersion"]
            await self.objects.send("PUT", path, path, old)

        return Done(put.key, version(made), undo)

    async def _status(self, collection: Collection, path: str, body: Tree, made: Tree) -> Tree:
        """Write the status where the kind has it separately and it differs."""
        desired = body.get("status")
        if not collection.status or desired is None or made.get("status") == desired:
            return made
        try:
            return await self.objects.send(
                "PUT", f"{path}/status", path, {**made, "status": desired}
            )
        except ObjectNotFound:
            return made

    async def _remove(
        self, mapped: Stored, place: Place, change: Delete, guard: int | None
    ) -> Done:
        path = mapped.collection.path(place.namespace, place.name)
        for _ in range(TRIES):
            before = await self._before(mapped, place, change.key, guard)
            if guard == ABSENT and before is not None:
                raise Lost(change.key, before)
            if before is None:
                return Done(change.key, 0)

            async def undo(before: Tree = before) -> None:
                kept = ("name", "namespace", "labels", "annotations", "finalizers")
                meta = {name: metadata(before)[name] for name in kept if name in metadata(before)}
                body = {**before, "metadata": meta}
                await self.objects.send("POST", mapped.collection.path(place.namespace), path, body)

            ours, marked = False, before
            try:
                if mapped.two_phases:
                    spec = {**(before.get("spec") or {}), "deleted": _marked(before)}
                    marked = await self.objects.send("PUT", path, path, {**before, "spec": spec})
                    ours = True
                await self.objects.delete(path, marked)
            except (Conflict, ObjectNotFound):
                now = await self.objects.read(mapped.collection, place)
                if now is None and ours:
                    # A reader of our mark completed it. Taking the rest back would leave half.
                    return Done(change.key, 0, undo)
                if guard is not None:
                    raise Lost(change.key, now) from None
                continue

            return Done(change.key, 0, undo)
        raise DatastoreError(f"{change.key}: others changed it {TRIES} times meanwhile")

    async def _patch(
        self, mapped: Patched, place: Place | None, change: Change, guard: int | None
    ) -> Done:
        for _ in range(TRIES):
            tree = await self.objects.read(mapped.collection, place) if place else None
            if tree is None or mapped.key(tree) != change.key:
                error = mapped.absent(change)
                if error is None:
                    return Done(change.key, 0)
                raise error
            assert place is not None
            if guard is not None and guard != version(tree):
                seen = self._entries.get((change.key, guard))
                base = getattr(change, "base", None)
                if base is not None and base.revision == guard:
                    seen = base
                if not mapped.stands(change, seen, tree):
                    raise Lost(change.key, tree)
            desired = mapped.annotations(change, tree)
            path = mapped.collection.path(place.namespace, place.name)
            if not desired:
                return self._patched(change, tree)
            try:
                made = await self._annotate(path, tree, desired, guarded=True)
            except Conflict:
                continue
            except ObjectNotFound:
                continue
            stored = metadata(tree).get("annotations") or {}
            back = {name: stored.get(name) for name in desired}

            async def undo(
                path: str = path, made: Tree = made, back: dict[str, str | None] = back
            ) -> None:
                await self._annotate(path, made, back, guarded=False)

            return self._patched(change, made, undo)
        raise DatastoreError(f"{change.key}: others changed it {TRIES} times meanwhile")

    def _patched(
        self, change: Change, tree: Tree, undo: Callable[[], Awaitable[None]] | None = None
    ) -> Done:
        if isinstance(change, Put):
            self.remember(Entry(change.key, change.value, version(tree), b""))
        return Done(change.key, version(tree), undo)

    async def _annotate(
        self, path: str, tree: Tree, annotations: Mapping[str, str | None], *, guarded: bool
    ) -> Tree:
        """Patch annotations through the status: a node may write nothing else."""
        meta = {"uid": metadata(tree).get("uid"), "annotations": annotations}
        if guarded:
            meta["resourceVersion"] = metadata(tree).get("resourceVersion")
        raw = encoded({"metadata": meta})
        answer = await self.objects.call("PATCH", f"{path}/status", raw, MERGE_PATCH)
        return self.objects.decode(path, answer)

    @staticmethod
    def _going(mapped: Stored, key: Key, tree: Tree) -> bool:
        spec = tree.get("spec")
        marked = isinstance(spec, dict) and spec.get("deleted") in (True, "true")
        return mapped.two_phases and marked


def _of_kubernetes(key: Key) -> DatastoreError:
    return DatastoreError(
        f"{key} cannot be written here: with the Kubernetes datastore it is made of"
        " Kubernetes' own objects, and changed there"
    )


def _marked(before: Tree) -> bool | str:
    """The mark of deletion as the kind has it: claims have text."""
    return "true" if isinstance((before.get("spec") or {}).get("deleted"), str) else True
