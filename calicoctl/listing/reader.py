"""Reading resources by Calico's rules, over any datastore: `get` needs no more.

A policy may lie under the key of an older release, a stored value may be unreadable, and defaults
are filled in (docs/reference/data-model.md#calicoctls-commands).
Tested in `tests/calicoctl/test_commands.py` on a real etcd.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from calicoctl import cells
from calicoctl.listing.result import Result, in_order
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import DatastoreUnavailable, InvalidValue, MuslinError, NotFound
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.policy import (
    OLD_PREFIX,
    POLICY_KINDS,
    GlobalNetworkPolicy,
    NetworkPolicy,
)
from libcalico.model.resources.pool import IPPool

_WITHOUT_AS = ("yaml", "json", "ps", "name")
"""Styles that never show the AS number of the cluster."""


class Reader:
    """Resources as the operator reads them."""

    def __init__(self, store: Datastore) -> None:
        self.store = store

    async def get(self, key: ResourceKey) -> Entry:
        """One resource, defaults filled in; raises `NotFound`."""
        entry = await self.find(key)
        if entry is None:
            raise NotFound(f"resource does not exist: {key}")
        if entry.broken:
            raise unreadable(entry)
        return with_defaults(entry)

    async def find(self, key: ResourceKey) -> Entry | None:
        """The entry of a resource; a policy may still lie under the key of an older release."""
        entry = await self._read(key)
        if entry is None and key.kind in POLICY_KINDS:
            older = await self._read(key._replace(name=OLD_PREFIX + key.name))
            if older and older.value and older.value.metadata.name == key.name:
                return older
        return entry

    async def _read(self, key: ResourceKey) -> Entry | None:
        """An entry, also one whose value is broken, so that it can be replaced or deleted.

        `value` is None where nothing of it is known but its bytes.
        """
        try:
            return await self.store.get(key)
        except InvalidValue as problem:
            named = Selection(key.kind, namespace=key.namespace, name_prefix=key.name)
            # First what is left of a policy; of other kinds only the bytes are known.
            for selection in (named, replace(named, raw=True)):
                for entry in (await self.store.list(selection)).entries:
                    if entry.key == key:
                        return replace(entry, broken=entry.broken or str(problem))
            raise

    async def list(self, kind: str, namespace: str = "") -> Result:
        """All resources of a kind, by name (tiers by order); of all namespaces when none is given.

        What cannot be read is named in `Result.broken`, beside what can.
        """
        listing = await self.store.list(Selection(kind, namespace=namespace))
        kept = [with_defaults(entry) for entry in listing.entries if not entry.broken]
        entries = in_order(kind, kept)
        broken = [f"{key}: {reason}" for key, reason in listing.broken]
        return Result(kind, entries, listing=True, revision=listing.revision, broken=broken)


def with_defaults(entry: Entry) -> Entry:
    """The entry with the defaults of its kind filled in."""
    if not isinstance(entry.value, (IPPool, NetworkPolicy, GlobalNetworkPolicy)):
        return entry
    from libcalico.model.defaults import apply_defaults  # the other kinds are read without

    return Entry(entry.key, apply_defaults(entry.value), entry.revision, entry.raw)


def unreadable(entry: Entry) -> MuslinError:
    """The error of a resource whose stored bytes cannot be understood."""
    return MuslinError(f"the datastore holds a value that cannot be read: {entry.broken}")


async def table_context(store: Datastore, style: str, kinds: Sequence[str]) -> cells.Context:
    """What the cells of `style` need beside resources of `kinds`: the cluster's AS number."""
    if not style.startswith("go-template") and ("Node" not in kinds or style in _WITHOUT_AS):
        return cells.Context()
    try:
        entry = await store.get(ResourceKey("BGPConfiguration", "default"))
    except DatastoreUnavailable:
        raise
    except MuslinError:
        # Not permitted, or not readable: the table has Calico's default then.
        return cells.Context()
    if entry is None or entry.value.spec.asNumber is None:
        return cells.Context()
    return cells.Context(str(entry.value.spec.asNumber))
