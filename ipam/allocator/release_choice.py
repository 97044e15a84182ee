"""Which addresses a handle gives back.

Tested in tests/ipam/test_planner.py.
"""

from __future__ import annotations

from ipam.allocator.requests import Answer, Granted, Release
from ipam.allocator.transaction_draft import Step, TransactionDraft
from ipam.records import handles
from ipam.records.blocks import IPAddress
from libcalico.model import Attribute, Handle
from libcalico.model.keys import BlockKey, HandleKey, Key


def choose_release(draft: TransactionDraft, request: Release) -> tuple[Answer, Step]:
    """The addresses that a handle gives back."""
    companion = request.companion
    keys: list[Key] = [HandleKey(request.handle_id)]
    if companion:
        keys.append(companion.key)
    draft.require(*keys)
    step = Step(request.handle_id)
    released = give_back(draft, request, step)
    if companion:
        step.companion = companion.change(draft.view.get(companion.key), released)
    return Granted(tuple(released), fresh=False), step


def give_back(draft: TransactionDraft, request: Release, step: Step) -> list[IPAddress]:
    """Note in the step what a handle held before it and gives back; the addresses."""
    draft.require(HandleKey(request.handle_id))
    released: list[IPAddress] = []
    handle = draft.handle(request.handle_id)
    for key in blocks_of(draft, handle):
        step.seen.append(key)
        edit = draft.edit(key)
        cidr = str(key.cidr)
        # Calico's counts may overstate: what is not in the block goes from the handle as well.
        count = (handle.block or {}).get(cidr, 0) if handle else 0
        if edit is not None:
            mine = edit.ordinals_of(request.handle_id)
            gone = [
                ordinal
                for ordinal, address in zip(mine, draft.addresses(key, mine), strict=True)
                if _is_released(request, address, edit.holder(ordinal))
            ]
            if gone:
                step.freed.append((key, gone))
                released += draft.addresses(key, gone)
            count -= len(mine) - len(gone)
        if count > 0:
            step.handle[cidr] = step.handle.get(cidr, 0) - count
    return released


def _is_released(request: Release, address: IPAddress, holder: Attribute | None) -> bool:
    included = request.only is None or address in request.only
    said = (holder.secondary if holder else None) or {}
    agrees = all(said.get(name, text) == text for name, text in request.attributes.items())
    return included and agrees and address not in request.spared


def blocks_of(draft: TransactionDraft, handle: Handle | None) -> list[BlockKey]:
    keys = handles.block_keys(handle)
    draft.require(*keys)
    return keys
