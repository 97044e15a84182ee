"""Giving back in bulk: the addresses and claims of a removed node, the blocks of a removed pool.

Every step is guarded and idempotent; whoever is interrupted simply starts again.
Source: data model 1.13 and 4.7. Tested in tests/ipam/test_service.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from ipaddress import ip_network

from ipam import affinities, blocks, handles
from ipam.affinities import claimed_network
from ipam.blocks import IPAddress
from ipam.committer import ATTEMPTS, Plan, settle
from ipam.errors import Contention
from ipam.pools import within
from ipam.view import View
from libcalico.datastore.interface import (
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.model.keys import BlockKey, HandleKey, IPNetwork, Key


async def release_addresses(store: Datastore, addresses: Iterable[IPAddress]) -> list[IPAddress]:
    """Release addresses whoever holds them; returns those that were in use."""
    wanted = set(addresses)
    released: list[IPAddress] = []
    for entry in (await store.list(Selection("Block"))).entries:
        cidr = ip_network(entry.value.cidr)
        inside = [a for a in wanted if a.version == cidr.version and a in cidr]
        # A few at a time: each may bring a handle of its own into the transaction.
        for start in range(0, len(inside), 60):
            plan = partial(_release, cidr=cidr, addresses=inside[start : start + 60])
            freed: list[IPAddress] = await settle(store, View(), plan)
            released += freed
    return released


def _release(view: View, cidr: IPNetwork, addresses: list[IPAddress]) -> Plan[list[IPAddress]]:
    key = BlockKey(cidr)
    if key not in view:
        return Plan([], missing=frozenset({key}))
    entry = view.get(key)
    if entry is None:
        return Plan([])
    held = [a for a in blocks.allocations(entry.value) if a.address in addresses]
    keys: set[Key] = {HandleKey(a.handle_id) for a in held if a.handle_id}
    if unknown := {handle for handle in keys if handle not in view}:
        return Plan([], missing=frozenset(unknown))
    block, freed = blocks.release(entry.value, [a.address for a in held])
    if not freed:
        return Plan([])
    changes: list[Change] = []
    if blocks.is_abandoned(block):
        changes.append(Delete(key, entry.revision))
    else:
        changes.append(Put(key, blocks.written(block, entry.value), entry.revision, entry))
    for handle_key in sorted(keys, key=str):
        handle = view.get(handle_key)
        if handle is None:
            continue
        count = sum(1 for a in held if HandleKey(a.handle_id) == handle_key)
        left = handles.subtract(handle.value, str(cidr), count)
        if left is None:
            changes.append(Delete(handle_key, handle.revision))
        else:
            changes.append(Put(handle_key, left, handle.revision, handle))
    return Plan(freed, changes)


async def release_host(store: Datastore, node: str) -> list[IPAddress]:
    """Release the addresses of a node's endpoints and tunnels, then all its claims.

    Blocks with addresses of others in them stay, without owner. Returns what was released.
    """
    endpoints = await store.list(Selection("WorkloadEndpoint", name_prefix=""))
    addresses = {
        blocks.parse_address(text)
        for entry in endpoints.entries
        if entry.value.spec.node == node
        for text in entry.value.spec.ipNetworks
    }
    stored = (await store.list(Selection("Block"))).entries
    for entry in stored:
        addresses.update(
            allocation.address
            for allocation in blocks.allocations(entry.value)
            if allocation.attributes.get("node") == node
            and allocation.attributes.get("type", "").endswith("TunnelAddress")
        )
    released = await release_addresses(store, addresses)
    for affinity in (await store.list(Selection("BlockAffinity", host=node))).entries:
        await _give_up(store, affinity)
    return released


async def release_pool_affinities(store: Datastore, pool: IPNetwork) -> int:
    """Give up the claims on a pool's blocks; returns how many blocks are gone.

    The pool must be disabled before. Blocks in use stay, without owner, until their last
    address is released.
    """
    gone = 0
    for affinity in (await store.list(Selection("BlockAffinity"))).entries:
        if within(claimed_network(affinity), pool):
            gone += await _give_up(store, affinity)
    return gone


async def _give_up(store: Datastore, affinity: Entry) -> bool:
    current: Entry | None = affinity
    for _ in range(ATTEMPTS):
        if current is None:
            return False
        block = await store.get(BlockKey(claimed_network(current)))
        try:
            return await affinities.release(store, current, block)
        except CommitConflict:
            current = await store.get(affinity.key)
    raise Contention(f"gave up releasing {affinity.key}: others keep changing it")
