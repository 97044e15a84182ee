"""The stored objects that a question is about, read at one go.

Tested in `tests/calicoctl/test_explain.py` on a real etcd.
"""

from __future__ import annotations

from datetime import UTC, datetime

from calicoctl.session import Options, datastore
from felix.explain.world import READ, World
from libcalico.commit_confirmed import effective
from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model.keys import ResourceKey


async def read_world(options: Options) -> World:
    """The world as it is stored, as felix takes it."""
    async with datastore(options) as store:
        return await world_of(store)


async def world_of(store: Datastore) -> World:
    """The world of a datastore; a change that was not confirmed in time does not count in it."""
    objects: dict[ResourceKey, object] = {}
    unreadable: list[str] = []
    now = datetime.now(UTC)
    for kind in READ:
        async for page in pages_of(store, Selection(kind)):
            for entry in page.entries:
                key = entry.key
                if not isinstance(key, ResourceKey):
                    continue
                value = effective(key, entry.value, now)
                if value is not None:
                    objects[key] = value
            unreadable += [f"{name} cannot be read: {reason}" for name, reason in page.broken]
    return World(objects, tuple(unreadable))
