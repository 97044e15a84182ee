"""Give a claim up: the block goes if it is empty, else it stays without owner (IPAM-11).

Tested in tests/ipam/test_claims.py.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ipam.allocator.stored_claims import (
    owner_of,
)
from ipam.records import blocks
from libcalico.datastore.interface import (
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
)
from libcalico.model import Block, BlockAffinity
from libcalico.model.keys import AffinityKey
from libcalico.model.resources.ipam import PENDING_DELETION


async def release(store: Datastore, affinity: Entry, entry: Entry | None) -> bool:
    """Give a claim up; the block goes if it is empty, else it stays without owner.

    Returns whether the block is gone. Raises `CommitConflict` if it changed meanwhile.
    """
    key = affinity.key
    assert isinstance(key, AffinityKey)
    block: Block | None = entry.value if entry else None
    if entry is None or block is None or block.owner != owner_of(key):
        await store.commit([Delete(key, affinity.revision)])
        return entry is None
    mark = Put(key, BlockAffinity(state=PENDING_DELETION), affinity.revision, affinity)
    revision = await store.commit([mark])
    empty = blocks.is_empty(block)
    if empty:
        last: Change = Delete(entry.key, entry.revision)
    else:
        orphan = msgspec.structs.replace(
            blocks.written(block, block),
            affinity=None,
            affinity_claim_time=None,
            hostAffinity=None,
        )
        last = Put(entry.key, orphan, entry.revision, entry)
    try:
        await store.commit([last, Delete(key, revision)])
    except CommitConflict as conflict:
        await _unmark(store, affinity, revision, conflict.current.get(entry.key))
        raise
    return empty


async def _unmark(store: Datastore, affinity: Entry, revision: int, block: Entry | None) -> None:
    """The owner works in its block after all: its claim must not stay half given up.

    Speakers announce confirmed claims only, so a mark that stayed would split the block's
    route into host routes until the owner looks at its claims again.
    """
    key = affinity.key
    assert isinstance(key, AffinityKey)
    if block is None or block.value is None or block.value.owner != owner_of(key):
        return
    with suppress(CommitConflict):
        await store.commit([Put(key, affinity.value, revision, affinity)])
