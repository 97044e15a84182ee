"""Every object of the datastore as stored, one file a kind.

Tested in tests/calicoctl/test_diags.py.
"""

from __future__ import annotations

import json

from calicoctl.diags.archive import Archive
from libcalico import apiconfig
from libcalico.datastore.interface import Datastore, Entry, Selection
from libcalico.errors import MuslinError
from libcalico.model.kinds import KINDS

ALLOCATOR = ("Block", "BlockAffinity", "Handle", "IPAMConfig")
MOST_OBJECTS = 20_000


async def add(archive: Archive, config: apiconfig.DatastoreConfig) -> bool:
    """Put all kinds in; returns whether the datastore answered. Its errors go to the index."""
    # Late: gRPC starts with this import, and no program may be run after it.
    from libcalico.datastore import connect

    try:
        config.check()
        store = await connect(config, quiet=True)
    except MuslinError as error:
        archive.missing("datastore", str(error))
        return False
    try:
        kinds = {kind.plural: kind.family for kind in KINDS.values() if not kind.internal}
        for name, family in {**kinds, **{f"ipam-{one}": one for one in ALLOCATOR}}.items():
            if not await _add_family(archive, store, name.lower(), family):
                return False
    finally:
        await store.close()
    return True


async def _add_family(archive: Archive, store: Datastore, name: str, family: str) -> bool:
    file = f"datastore/{name}.json"
    try:
        listing = await store.list(Selection(family))
    except MuslinError as error:
        archive.missing(file, str(error))
        return False
    items = [_plain(entry) for entry in listing.entries[:MOST_OBJECTS]]
    tree: dict[str, object] = {
        "revision": listing.revision,
        "count": len(listing.entries),
        "items": items,
    }
    if listing.broken:
        tree["broken"] = [list(one) for one in listing.broken]
    archive.add(file, json.dumps(tree), form="document", source=f"datastore: {family}")
    return True


def _plain(entry: Entry) -> dict[str, object]:
    try:
        value = json.loads(entry.raw)
    except ValueError:
        value = entry.raw.decode(errors="replace")
    return {"key": str(entry.key), "revision": entry.revision, "value": value}
