"""Create, update, apply, delete: Calico's rules for writing one resource, over any datastore.

The datastore only compares and swaps. What Calico's client library does around it stands
here: which metadata of the input counts, which fields are filled in, which update is too
old, what is read-only (docs/reference/data-model.md#resource-values, #side-effects-of-writes,
#calicoctls-commands).

Invariants:
  CTL-1  An update is guarded by the revision that it was merged with.
Tested in `tests/calicoctl/test_commands.py` on a real etcd.
"""

from __future__ import annotations

from collections.abc import Callable

from calicoctl import aliases, effects
from calicoctl.listing.reader import Reader, unreadable
from calicoctl.preparing import fresh_resource, over_stored
from libcalico.commit_confirmed import unconfirmed
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
)
from libcalico.errors import AlreadyExists, MuslinError, NotFound
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource, key_of
from libcalico.model.resources.profile import DEFAULT_ALLOW
from libcalico.process.unlooped import pause

UPDATE_TRIES = 5
RETRY_SECONDS = 1.0

KUBERNETES_POLICIES = "knp.default."
"""How the policies begin that the Kubernetes API owns: `libcalico.conversion.POLICY_PREFIX`."""


def _refuse_read_only(key: ResourceKey, operation: str) -> None:
    built_in = key.kind == "Profile" and key.name == DEFAULT_ALLOW
    if key.kind in aliases.READ_ONLY or built_in:
        raise MuslinError(f"operation {operation} is not supported on {key}")
    if key.kind == "NetworkPolicy" and key.name.startswith(KUBERNETES_POLICIES):
        # The controller that follows the Kubernetes API owns these names and would undo the write.
        raise MuslinError(
            f"operation {operation} is not supported on {key}:"
            " kubernetes network policies must be managed through the kubernetes API"
        )


class Client(Reader):
    """Calico's resource operations over a datastore."""

    def __init__(self, store: Datastore, allow_overlap: bool = False) -> None:
        super().__init__(store)
        self._allow_overlap = allow_overlap

    async def create(self, resource: Resource) -> None:
        """Store a new resource; raises `AlreadyExists`."""
        key = key_of(resource)
        _refuse_read_only(key, "Create")
        fresh = fresh_resource(resource)
        if await self.find(key) is not None:
            raise AlreadyExists(f"resource already exists: {key}")
        guards = await effects.before_create(self.store, fresh, self._allow_overlap)
        try:
            await self.store.commit([Put(key, fresh, ABSENT), *guards])
        except CommitConflict as conflict:
            if conflict.current.get(key) is None:
                raise MuslinError(f"{key} was not created: {conflict}; try again") from None
            raise AlreadyExists(f"resource already exists: {key}") from None

    async def update(self, resource: Resource) -> None:
        """Replace a resource that exists; raises `NotFound`, or `MuslinError` when out of date."""
        version = resource.metadata.resourceVersion
        await self.modify(
            key_of(resource), lambda old: over_stored(resource, old), "Update", version, True
        )

    async def modify(
        self,
        key: ResourceKey,
        change: Callable[[Resource], Resource],
        operation: str,
        version: str = "",
        whole: bool = False,
    ) -> None:
        """Store what `change` makes of the stored resource; raises `NotFound`.

        `whole`: the change replaces everything, so a stored value that cannot be read is no
        hindrance; a part of it can be changed only where all of it is known.

        With a `version`, that one must be stored, or `MuslinError` is raised at once; without,
        a conflict is read, changed and tried again, at most `UPDATE_TRIES` times.
        """
        _refuse_read_only(key, operation)
        for attempt in range(UPDATE_TRIES):
            if attempt:
                await pause(RETRY_SECONDS)
            current = await self.find(key)
            if current is None:
                raise NotFound(f"resource does not exist: {key}")
            if version and version != str(current.revision):
                raise _out_of_date(version, current)
            if current.broken and not whole:
                raise unreadable(current)
            changed = change(current.value)
            guards = await effects.before_update(
                self.store, current.value, changed, self._allow_overlap
            )
            changes: list[Change] = [Put(key, changed, current.revision, current)]
            if current.key != key:
                # The key of an older release: the update moves the policy in one commit.
                changes = [
                    Put(key, changed, ABSENT, current),
                    Delete(current.key, current.revision),
                ]
            try:
                await self.store.commit([*changes, *guards])
            except CommitConflict:
                # With a version given, the next turn finds that it is no longer the stored one.
                continue
            return
        raise MuslinError(
            f"update conflict: {key}: others changed it {UPDATE_TRIES} times meanwhile"
        )

    async def apply(self, resource: Resource, within: float = 0.0) -> None:
        """Create, or update where it exists; `within` seconds it is to be confirmed, if any."""
        try:
            await self.create(unconfirmed(resource, None, within) if within else resource)
        except AlreadyExists:
            if not within:
                await self.update(resource)
                return

            def change(old: Resource) -> Resource:
                return unconfirmed(over_stored(resource, old), old, within)

            version = resource.metadata.resourceVersion
            await self.modify(key_of(resource), change, "Update", version)

    async def delete(self, key: ResourceKey, version: str = "") -> None:
        """Delete with everything that hangs on it
        (docs/reference/data-model.md#side-effects-of-writes); raises `NotFound`."""
        _refuse_read_only(key, "Delete")
        entry = await self.find(key)
        if entry is None:
            raise NotFound(f"resource does not exist: {key}")
        if version and version != str(entry.revision):
            raise _out_of_date(version, entry)
        await effects.before_delete(self.store, entry)
        # A pool was disabled just now, so it has a younger revision than the one asked for.
        guarded = version and key.kind != "IPPool"
        try:
            await self.store.commit([Delete(entry.key, entry.revision if guarded else None)])
        except CommitConflict as conflict:
            current = conflict.current.get(entry.key)
            if current is None:
                raise NotFound(f"resource does not exist: {key}") from None
            raise _out_of_date(version, current) from None


def _out_of_date(version: str, stored: Entry) -> MuslinError:
    return MuslinError(
        f"resource version '{version}' is out of date (latest: {stored.revision})."
        " Update the resource YAML/JSON in order to make changes"
    )
