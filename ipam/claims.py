"""More addresses for a node: a new block, an empty one that somebody left, a borrowed one.

Tried in this order, as Calico does (data model 4.4 steps 5 to 7, 4.5). Tested in
tests/ipam/test_claims.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_network
from itertools import islice

from ipam import affinities, blocks
from ipam.errors import BlockLimit, PoolsExhausted
from ipam.pools import Pool, block_order, names, within
from ipam.view import View
from libcalico.datastore.interface import CommitConflict, Datastore, Entry, Selection
from libcalico.model import IPAMConfig
from libcalico.model.ipam import DEFAULT_IPAM_CONFIG
from libcalico.model.keys import BlockKey, IPAMConfigKey, IPNetwork

log = logging.getLogger(__name__)

DEFAULT_BLOCK_LIMIT = 20
RECLAIM_AFTER_SECONDS = 60
FIRST_LOOK = 16


async def read_config(store: Datastore) -> IPAMConfig:
    """The allocator's settings; absent means borrowing allowed and blocks claimed freely."""
    entry = await store.get(IPAMConfigKey())
    return entry.value if entry else DEFAULT_IPAM_CONFIG


async def claim_one(
    store: Datastore,
    view: View,
    host: str,
    pools: Sequence[Pool],
    held: int,
    config: IPAMConfig,
    clock: affinities.Clock = time.time_ns,
) -> IPNetwork:
    """Claim one more block in `pools` for `host`, which holds `held` blocks there already.

    Raises `BlockLimit`, or `PoolsExhausted` if no block is free (borrowing may then help).
    """
    limit = config.maxBlocksPerHost or DEFAULT_BLOCK_LIMIT
    if held >= limit:
        raise BlockLimit(
            f"all {held} blocks of node {host} in pools {names(pools)} are full, "
            f"and a node may hold {limit} blocks (maxBlocksPerHost)"
        )
    if not config.auto_allocate_blocks:
        raise PoolsExhausted(
            f"no free address for node {host} in pools {names(pools)}: "
            "auto_allocate_blocks is false, so no block is claimed"
        )
    for pool in pools:
        near = list(islice(block_order(pool, host), FIRST_LOOK))
        present = await affinities.readable(store, [BlockKey(cidr) for cidr in near])
        free = (cidr for cidr in near if present.get(BlockKey(cidr), ...) is None)
        if claimed := await _first(store, view, host, free, clock):
            return claimed
    everything = {entry.key: entry for entry in (await store.list(Selection("Block"))).entries}
    for pool in pools:
        absent = (c for c in block_order(pool, host) if BlockKey(c) not in everything)
        if claimed := await _first(store, view, host, absent, clock):
            return claimed
    for pool in pools:
        for entry in everything.values():
            if _reclaimable(entry, pool, host, clock()) and await _reclaim(store, entry):
                freed = iter([ip_network(entry.value.cidr)])
                if claimed := await _first(store, view, host, freed, clock):
                    return claimed
    raise PoolsExhausted(f"no free block for node {host} in pools {names(pools)}")


async def borrowable(
    store: Datastore, view: View, host: str, pools: Sequence[Pool]
) -> list[IPNetwork]:
    """Blocks of others with free addresses, in this host's block order; entries are learned."""
    found: list[IPNetwork] = []
    listing = await store.list(Selection("Block"))
    entries = {entry.key: entry for entry in listing.entries}
    for pool in pools:
        inside = {
            key: entry
            for key, entry in entries.items()
            if isinstance(key, BlockKey)
            and within(key.cidr, pool.cidr)
            and blocks.free_count(entry.value)
        }
        start = next(block_order(pool, host), pool.cidr)
        ordered = sorted(inside, key=lambda key: str(key.cidr))
        later = [k for k in ordered if int(k.cidr.network_address) >= int(start.network_address)]
        for key in later + [k for k in ordered if k not in later]:
            view.learn({key: inside[key]})
            found.append(key.cidr)
    return found


async def _first(
    store: Datastore,
    view: View,
    host: str,
    candidates: Iterator[IPNetwork],
    clock: affinities.Clock,
) -> IPNetwork | None:
    for cidr in candidates:
        try:
            if await affinities.claim(store, view, host, cidr, clock):
                return cidr
        except CommitConflict:
            continue
    return None


def _reclaimable(entry: Entry, pool: Pool, host: str, now: int) -> bool:
    block = entry.value
    cidr = ip_network(block.cidr)
    if not within(cidr, pool.cidr):
        return False
    if blocks.used_count(block) or blocks.owner_host(block) in (None, host):
        return False
    if not block.affinity_claim_time:
        return True
    try:
        claimed = datetime.fromisoformat(block.affinity_claim_time.replace("Z", "+00:00"))
    except ValueError:
        return False
    return now / 1e9 - claimed.astimezone(UTC).timestamp() >= RECLAIM_AFTER_SECONDS


async def _reclaim(store: Datastore, entry: Entry) -> bool:
    key = affinities.affinity_key(entry)
    affinity = await store.get(key) if key else None
    if affinity is None:
        return False
    try:
        gone = await affinities.release(store, affinity, entry)
    except CommitConflict:
        return False
    log.info("empty block reclaimed", extra={"block": entry.value.cidr, "owner": key})
    return gone
