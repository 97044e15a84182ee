"""Give addresses back by name or by handle: what `ipam.admin.library` offers for release.

Block and handles change in one transaction for each block. Afterwards a block that is empty and
whose pool no longer selects its owner goes as well.

Source: docs/reference/data-model.md#release. Tested in tests/ipam/test_library.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_network

from ipam.allocator import claim_release, stored_claims
from ipam.allocator.committer import Plan, settle
from ipam.allocator.facts import read_facts
from ipam.allocator.settings import get_config
from ipam.allocator.transaction_draft import Step, TransactionDraft
from ipam.allocator.view import View
from ipam.records import blocks, handles, pool_choice, pools
from ipam.records.block_editor import BlockEditor, handle_of
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError, NotAllocated, NotOwner
from ipam.records.pools import within
from libcalico.datastore.interface import CommitConflict, Datastore, Selection
from libcalico.model import IPAMConfig
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key

AT_ONCE = 60
"""Addresses in one transaction: each may bring a handle of its own."""


@dataclass(frozen=True, slots=True)
class Release:
    """One address to give back; only if the handle and the sequence, where given, are its own."""

    address: IPAddress
    handle: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """Addresses by what became of them; `refused` with the reason for each."""

    released: Sequence[IPAddress] = ()
    unallocated: Sequence[IPAddress] = ()
    refused: Mapping[IPAddress, Exception] = field(default_factory=dict)


async def release_ips(store: Datastore, releases: Iterable[Release]) -> ReleaseResult:
    """Give addresses back; what does not match its handle or sequence is refused, the rest goes."""
    by_address = {release.address: release for release in releases}
    config = await get_config(store)
    grouped, unallocated = await _by_block(store, by_address)
    released: list[IPAddress] = []
    refused: dict[IPAddress, Exception] = {}
    for key, members in grouped.items():
        for start in range(0, len(members), AT_ONCE):
            part = members[start : start + AT_ONCE]
            result = await settle(
                store, View(), partial(_plan_ips, key=key, releases=part, config=config)
            )
            released += result.released
            unallocated += result.unallocated
            refused |= result.refused
    await release_unselected(store, grouped)
    return ReleaseResult(released, unallocated, refused)


async def release_by_handle(store: Datastore, handle_id: str) -> list[IPAddress]:
    """Give back all that a handle holds; raises `NotAllocated` if there is no such handle."""
    entry = await store.get(HandleKey(handle_id))
    if entry is None:
        raise NotAllocated(f"handle {handle_id!r} does not exist: nothing is allocated under it")
    config = await get_config(store)
    keys = handles.block_keys(entry.value)
    view = View()
    released: list[IPAddress] = []
    for key in keys:
        plan = partial(_plan_handle, key=key, handle_id=handle_id, config=config)
        freed: list[IPAddress] = await settle(store, view, plan)
        released += freed
    await release_unselected(store, keys)
    return released


async def release_unselected(store: Datastore, keys: Iterable[BlockKey]) -> list[IPNetwork]:
    """Give up those of the blocks that are empty and whose pool does not select their owner."""
    gone: list[IPNetwork] = []
    for key, entry in (await store.get_many(list(keys))).items():
        host = blocks.owner_host(entry.value) if entry else None
        if entry is None or host is None or not blocks.is_empty(entry.value):
            continue
        assert isinstance(key, BlockKey)
        known = await read_facts(store, host)
        pool = pools.containing(known.pools, key.cidr)
        if pool is not None and pool_choice.selects_node(pool, known.node_labels):
            continue
        affinity = await store.get(stored_claims.key_of(host, key.cidr))
        try:
            if affinity is not None and await claim_release.release(store, affinity, entry):
                gone.append(key.cidr)
        except CommitConflict:
            continue  # its owner found a use for it
    return gone


async def _by_block(
    store: Datastore, by_address: Mapping[IPAddress, Release]
) -> tuple[dict[BlockKey, list[Release]], list[IPAddress]]:
    """The releases by the block that holds them, and the addresses of no block."""
    stored = pools.usable((await store.list(Selection("IPPool"))).entries)
    likely: dict[BlockKey, list[Release]] = {}
    elsewhere: list[Release] = []
    for address, release in by_address.items():
        pool = pools.containing(stored, ip_network(address))
        if pool is None:
            elsewhere.append(release)
            continue
        cidr = ip_network(f"{address}/{pool.block_size}", strict=False)
        likely.setdefault(BlockKey(cidr), []).append(release)
    stored_blocks = await stored_claims.readable(store, list(likely)) if likely else {}
    for key in [key for key in likely if stored_blocks.get(key) is None]:
        elsewhere += likely.pop(key)
    if not elsewhere:
        return likely, []
    listed = (await store.list(Selection("Block"))).entries
    every = [entry.key.cidr for entry in listed if isinstance(entry.key, BlockKey)]
    unallocated: list[IPAddress] = []
    for release in elsewhere:
        own = ip_network(release.address)
        home = next((cidr for cidr in every if within(own, cidr)), None)
        if home is None:
            unallocated.append(release.address)
        else:
            likely.setdefault(BlockKey(home), []).append(release)
    return likely, unallocated


def _plan_ips(
    view: View, key: BlockKey, releases: Sequence[Release], config: IPAMConfig
) -> Plan[ReleaseResult]:
    if key not in view:
        return Plan(ReleaseResult(), missing=frozenset({key}))
    draft = TransactionDraft(view, now=time.time_ns(), cooldown=config.ipCooldownSeconds)
    edit = draft.edit(key)
    if edit is None:
        return Plan(ReleaseResult(unallocated=[release.address for release in releases]))
    steps: dict[str, Step] = {}
    unallocated: list[IPAddress] = []
    refused: dict[IPAddress, Exception] = {}
    for release in releases:
        ordinal = int(release.address) - int(key.cidr.network_address)
        if edit.is_free(ordinal):
            unallocated.append(release.address)
            continue
        try:
            handle_id = _require_own(edit, ordinal, release)
        except IPAMError as error:
            refused[release.address] = error
            continue
        step = steps.setdefault(handle_id, Step(handle_id))
        step.freed.append((key, [ordinal]))
    unknown = {HandleKey(h) for h in steps if h and not draft.knows(HandleKey(h))}
    if unknown:
        return Plan(ReleaseResult(), missing=frozenset(unknown))
    cidr, freed = str(key.cidr), []
    for handle_id, step in steps.items():
        gone = [ordinal for _, ordinals in step.freed for ordinal in ordinals]
        staying = len(edit.ordinals_of(handle_id)) - len(gone)
        step.handle[cidr] = -handles.fewer(draft.handle(handle_id), cidr, len(gone), staying)
        draft.enter(step)
        freed += gone
    result = ReleaseResult(draft.addresses(key, freed), unallocated, refused)
    return Plan(result, draft.changes())


def _require_own(edit: BlockEditor, ordinal: int, release: Release) -> str:
    holder = edit.holder(ordinal)
    held_by = handle_of(holder) if holder else ""
    if release.handle is not None and held_by != release.handle:
        raise NotOwner(
            f"address {release.address} belongs to handle {held_by or '<none>'}, "
            f"not to {release.handle}"
        )
    blocks.require_sequence(edit, ordinal, release.address, release.sequence)
    return held_by


def _plan_handle(
    view: View, key: BlockKey, handle_id: str, config: IPAMConfig
) -> Plan[list[IPAddress]]:
    handle_key = HandleKey(handle_id)
    keys: set[Key] = {key, handle_key}
    if unknown := {one for one in keys if one not in view}:
        return Plan([], missing=frozenset(unknown))
    draft = TransactionDraft(view, now=time.time_ns(), cooldown=config.ipCooldownSeconds)
    edit = draft.edit(key)
    ordinals = edit.ordinals_of(handle_id) if edit else []
    step = Step(handle_id, seen=[key])
    if ordinals:
        step.freed.append((key, ordinals))
    handle = view.value(handle_key)
    # What the handle counts goes whole: Calico's counts may overstate.
    step.handle[str(key.cidr)] = (
        -max((handle.block or {}).get(str(key.cidr), 1), 1) if handle else 0
    )
    draft.enter(step)
    return Plan(draft.addresses(key, ordinals), draft.changes())
