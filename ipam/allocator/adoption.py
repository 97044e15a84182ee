"""The addresses of a running attachment stand in their blocks under its handle, and so does the
handle itself.

A block that was deleted and made again names its addresses, but perhaps no handle, for that was
deleted too; and a handle that is gone is not found by the pod's DEL.

Tested in tests/cni/test_restore.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ipam.allocator.committer import Plan, settle
from ipam.allocator.view import View
from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import ABSENT, Change, Check, Datastore, Put
from libcalico.model import Block, Handle
from libcalico.model.keys import BlockKey, HandleKey, Key


async def adopt(
    store: Datastore,
    handle_id: str,
    attributes: Mapping[str, str],
    by_block: Mapping[BlockKey, Sequence[IPAddress]],
) -> bool:
    """Write what `plan_adopt` plans, as of now; whether something changed.

    Raises Contention, DatastoreError.
    """
    plan = partial(plan_adopt, handle_id=handle_id, attributes=attributes, by_block=by_block)
    return await settle(store, View(), plan)


def plan_adopt(
    view: View,
    handle_id: str,
    attributes: Mapping[str, str],
    by_block: Mapping[BlockKey, Sequence[IPAddress]],
) -> Plan[bool]:
    """Give the handle what stands in the blocks for no handle, and write it as the blocks say.

    An address that is free, or that another handle has, stays as it is.
    """
    handle_key = HandleKey(handle_id)
    keys: list[Key] = [*by_block, handle_key]
    if missing := frozenset(key for key in keys if key not in view):
        return Plan(False, missing=missing)
    changes: list[Change] = []
    seen: list[Change] = []
    counts: dict[str, int] = {}
    for key, addresses in by_block.items():
        entry = view.get(key)
        if entry is None or blocks.problem(entry.value):
            continue
        changed = _adopted(entry.value, handle_id, attributes, addresses)
        if changed is not entry.value:
            written = blocks.written(changed, entry.value)
            changes.append(Put(key, written, entry.revision, entry))
        else:
            # What it says of the handle is believed only if it still says so (IPAM-15).
            seen.append(Check(key, entry.revision))
        owned = sum(one.handle_id == handle_id for one in blocks.allocations(changed))
        if owned:
            counts[str(key.cidr)] = owned
    handle = view.get(handle_key)
    known = dict(handle.value.block or {}) if handle else {}
    if counts and any(known.get(cidr) != count for cidr, count in counts.items()):
        fresh = Handle(block=known | counts)
        changes.append(Put(handle_key, fresh, handle.revision if handle else ABSENT, handle))
    return Plan(bool(changes), [*changes, *seen] if changes else ())


def _adopted(
    block: Block, handle_id: str, attributes: Mapping[str, str], addresses: Sequence[IPAddress]
) -> Block:
    nameless = {
        one.address
        for one in blocks.allocations(block)
        if not one.handle_id and one.attributes.get("node", "") in ("", attributes.get("node"))
    }
    ordinals = [blocks.ordinal_of(block, one) for one in addresses if one in nameless]
    if not ordinals:
        return block
    edit = BlockEditor(block)
    edit.give_back(ordinals)
    edit.give(ordinals, handle_id, attributes)
    return edit.result()
