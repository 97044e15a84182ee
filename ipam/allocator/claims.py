"""More addresses for a node: a new block, an abandoned empty one, a borrowed one.

Tried in this order, as Calico does (docs/reference/data-model.md#automatic-assignment steps 5 to 7,
4.5). Tested in tests/ipam/test_claims.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from ipaddress import ip_network
from itertools import islice

from msgspec.structs import replace

from ipam.allocator import affinities, claim_release, stored_claims
from ipam.allocator.view import View
from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from ipam.records.errors import BlockLimit, BlockOverlaps, PoolsExhausted
from ipam.records.naming import microseconds_since
from ipam.records.pools import Pool, block_order, names, within
from libcalico.datastore.interface import CommitConflict, Datastore, Entry, Selection
from libcalico.model import Block, IPAMConfig
from libcalico.model.keys import BlockKey, IPNetwork

log = logging.getLogger(__name__)

DEFAULT_BLOCK_LIMIT = 20
RECLAIM_AFTER_SECONDS = 60
FIRST_LOOK = 16


async def claim_one(
    store: Datastore,
    view: View,
    host: str,
    pools: Sequence[Pool],
    block_count: int,
    config: IPAMConfig,
    clock: affinities.Clock = time.time_ns,
    reserved: Sequence[IPNetwork] = (),
    max_blocks: int = 0,
) -> IPNetwork:
    """Claim one more block in `pools` for `host`, which holds `block_count` blocks there already.

    Blocks that are `reserved` as a whole are passed over. Raises `BlockLimit`, or
    `PoolsExhausted` if no block is free (borrowing may then help).
    """
    limit = block_limit(config, max_blocks)
    if block_count >= limit:
        raise BlockLimit(
            f"all {block_count} blocks of node {host} in pools {names(pools)} are full, "
            f"and a node may hold {limit} blocks (maxBlocksPerHost)"
        )
    if not config.auto_allocate_blocks:
        raise PoolsExhausted(
            f"no free address for node {host} in pools {names(pools)}: "
            "auto_allocate_blocks is false, so no block is claimed"
        )
    for pool in pools:
        order = (c for c in block_order(pool, host) if view.get(BlockKey(c)) is None)
        near = list(islice((c for c in order if not _reserved(c, reserved)), FIRST_LOOK))
        present = await stored_claims.readable(store, [BlockKey(cidr) for cidr in near])
        free = (cidr for cidr in near if present.get(BlockKey(cidr), ...) is None)
        if claimed := await _first(store, view, host, free, clock, pool):
            return claimed
    everything = {entry.key: entry for entry in (await store.list(Selection("Block"))).entries}
    for pool in pools:
        absent = (
            c
            for c in block_order(pool, host)
            if BlockKey(c) not in everything and not _reserved(c, reserved)
        )
        if claimed := await _first(store, view, host, absent, clock, pool):
            return claimed
    for pool in pools:
        for number, stored in enumerate(everything.values()):
            if number % 256 == 255:
                await asyncio.sleep(0)
            entry = _reclaimable(stored, pool, host, clock(), config.ipCooldownSeconds)
            if (
                entry
                and not _reserved(ip_network(entry.value.cidr), reserved)
                and await _reclaim(store, entry)
            ):
                freed = iter([ip_network(entry.value.cidr)])
                if claimed := await _first(store, view, host, freed, clock, pool):
                    return claimed
    raise PoolsExhausted(f"no free block for node {host} in pools {names(pools)}")


async def borrowable(
    store: Datastore,
    view: View,
    host: str,
    pools: Sequence[Pool],
    reserved: Sequence[IPNetwork] = (),
    now: int = 0,
    cooldown: int = 0,
    known: Collection[IPNetwork] = (),
) -> list[IPNetwork]:
    """Blocks with free addresses but for the `known`, in this host's order; entries are learned."""
    own = blocks.owner_text(host)
    networks: list[IPNetwork] = []
    listing = await store.list(Selection("Block"))
    entries = {entry.key: entry for entry in listing.entries}
    for pool in pools:
        inside: dict[BlockKey, Entry] = {}
        for number, (key, entry) in enumerate(entries.items()):
            if number % 256 == 255:
                await asyncio.sleep(0)  # thousands of blocks must not hold up other calls
            if (
                isinstance(key, BlockKey)
                and within(key.cidr, pool.cidr)
                and key.cidr not in known
                # Its own block, its claim disturbed, serves again once that is settled (IPAM-10).
                and entry.value.owner != own
                and free_addresses(entry.value, key.cidr, reserved, now, cooldown)
            ):
                inside[key] = entry
        start = int(next(block_order(pool, host), pool.cidr).network_address)
        # By number: in the order of their texts half of a pool would come out of turn.
        ordered = sorted(inside, key=lambda key: int(key.cidr.network_address))
        later = [key for key in ordered if int(key.cidr.network_address) >= start]
        earlier = [key for key in ordered if int(key.cidr.network_address) < start]
        for key in later + earlier:
            view.learn({key: inside[key]})
            networks.append(key.cidr)
    return networks


def free_addresses(
    block: Block, cidr: IPNetwork, reserved: Sequence[IPNetwork], now: int, cooldown: int
) -> int:
    """How many addresses of a block may be given out now; none of an inconsistent one."""
    if blocks.problem(block):
        return 0
    edit = BlockEditor(block)
    edit.collect(now, cooldown)
    return len(edit.free(blocks.size(cidr), blocks.reserved_ordinals(cidr, reserved)))


async def _first(
    store: Datastore,
    view: View,
    host: str,
    candidates: Iterator[IPNetwork],
    clock: affinities.Clock,
    pool: Pool,
) -> IPNetwork | None:
    taken: list[IPNetwork] = []
    for cidr in candidates:
        if any(within(cidr, other) for other in taken):
            continue
        try:
            if await affinities.claim(store, view, host, cidr, clock, pool):
                return cidr
        except BlockOverlaps as error:
            log.warning("block passed over: %s", error)
            taken.append(error.other)
        except CommitConflict:
            continue
    return None


def _reclaimable(entry: Entry, pool: Pool, host: str, now: int, cooldown: int) -> Entry | None:
    """The entry with what has cooled collected, if its owner has no use for the block."""
    cidr = ip_network(entry.value.cidr)
    if not within(cidr, pool.cidr) or entry.value.owner in (None, blocks.owner_text(host)):
        return None
    edit = BlockEditor(entry.value)
    edit.collect(now, cooldown)
    block = edit.result()
    if not blocks.is_empty(block) or not _is_old(block, now):
        return None
    return replace(entry, value=block)


def _is_old(block: Block, now: int) -> bool:
    if not block.affinity_claim_time:
        return True
    age = microseconds_since(block.affinity_claim_time, now)
    return age is not None and age >= RECLAIM_AFTER_SECONDS * 1_000_000


def _reserved(cidr: IPNetwork, reserved: Sequence[IPNetwork]) -> bool:
    return bool(reserved) and len(blocks.reserved_ordinals(cidr, reserved)) == blocks.size(cidr)


def block_limit(config: IPAMConfig, max_blocks: int = 0) -> int:
    """How many blocks a node may hold: the lesser of the request's and the configured limit."""
    limits = [limit for limit in (config.maxBlocksPerHost, max_blocks) if limit > 0]
    return min(limits, default=DEFAULT_BLOCK_LIMIT)


async def _reclaim(store: Datastore, entry: Entry) -> bool:
    key = stored_claims.affinity_key(entry)
    affinity = await store.get(key) if key else None
    if affinity is None:
        return False
    try:
        gone = await claim_release.release(store, affinity, entry)
    except CommitConflict:
        return False
    log.info("empty block reclaimed", extra={"block": entry.value.cidr, "owner": key})
    return gone
