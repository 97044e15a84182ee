"""Free cooled addresses in blocks that are not being written otherwise.

A node frees cooled addresses with its next write of the block; a block that lies idle, or has
no owner any more, is swept from outside. Source: docs/reference/data-model.md#release (block GC),
8.6 (the sweep).
Tested in tests/ipam/test_library.py.
"""

from __future__ import annotations

import time

from ipam.allocator import affinities
from ipam.allocator.settings import get_config
from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from libcalico.datastore.interface import Change, CommitConflict, Datastore, Delete, Put, Selection


async def sweep_cooled(store: Datastore, clock: affinities.Clock = time.time_ns) -> int:
    """Write every block that holds addresses whose cool-down is over; returns how many."""
    cooldown = (await get_config(store)).ipCooldownSeconds
    swept = 0
    for entry in (await store.list(Selection("Block"))).entries:
        edit = BlockEditor(entry.value)
        if not edit.collect(clock(), cooldown):
            continue
        block = edit.result()
        change: Change = Put(entry.key, blocks.written(block, entry.value), entry.revision, entry)
        if blocks.is_abandoned(block):
            change = Delete(entry.key, entry.revision)
        try:
            await store.commit([change])
        except CommitConflict:
            continue  # its writer has freed them as well
        swept += 1
    return swept
