"""The release of everything that a dead container held, as one transaction.

Tested in tests/ipam/test_collector.py.
"""

from __future__ import annotations

from ipam.allocator.committer import Plan
from ipam.allocator.view import View
from ipam.collector.leak_evidence import (
    Suspect,
)
from ipam.records import blocks, handles
from ipam.records.block_editor import BlockEditor
from ipam.records.blocks import IPAddress
from ipam.records.errors import SequenceMismatch
from libcalico.datastore.interface import Change, Delete, Put
from libcalico.model.keys import BlockKey, HandleKey, Key


def plan_release(view: View, suspect: Suspect, released_at: str = "") -> Plan[list[IPAddress]]:
    """Everything of a suspect, or nothing if it is not what was seen any more (IPAM-24, 25).

    With `released_at` the addresses cool first, as the operator asked.
    """
    by_block: dict[BlockKey, list[tuple[IPAddress, int | None]]] = {}
    for allocation in sorted(suspect.allocations, key=lambda h: str(h.address)):
        by_block.setdefault(BlockKey(allocation.block), []).append(
            (allocation.address, allocation.sequence)
        )
    handle_key = HandleKey(suspect.handle_id)
    keys: list[Key] = [*by_block, *suspect.endpoints, handle_key]
    if missing := frozenset(key for key in keys if key not in view):
        return Plan([], missing=missing)
    changes: list[Change] = []
    for key, revision in suspect.endpoints.items():
        entry = view.get(key)
        if entry is None or entry.revision != revision:
            return Plan([])
        changes.append(Delete(key, revision))
    handle = view.get(handle_key)
    left = handle.value if handle else None
    released: list[IPAddress] = []
    for block_key, held_there in by_block.items():
        entry = view.get(block_key)
        if entry is None:
            return Plan([])
        changed = entry.value
        for address, sequence in held_there:
            try:
                changed, freed = blocks.release(
                    changed, [address], suspect.handle_id, sequence, released_at
                )
            except SequenceMismatch:
                return Plan([])
            if not freed:
                return Plan([])
            released += freed
        if blocks.is_abandoned(changed):
            changes.append(Delete(block_key, entry.revision))
        else:
            written = blocks.written(changed, entry.value)
            changes.append(Put(block_key, written, entry.revision, entry))
        if left is not None:
            cidr = str(block_key.cidr)
            staying = len(BlockEditor(changed).ordinals_of(suspect.handle_id))
            left = handles.subtract(left, cidr, handles.fewer(left, cidr, len(held_there), staying))
    if handle is not None:
        if left is None:
            changes.append(Delete(handle_key, handle.revision))
        else:
            changes.append(Put(handle_key, left, handle.revision, handle))
    return Plan(released, changes)
