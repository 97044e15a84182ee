"""Claims taken and given up by name: of a network, of a host, of a host that is gone.

Each step is guarded and may be repeated after an interruption.
Source: docs/reference/data-model.md#block-affinities, #release. Tested in tests/ipam/test_hosts.py.
"""

from __future__ import annotations

from ipaddress import ip_network

from ipam.allocator import affinities, claim_release, stored_claims
from ipam.allocator.committer import ATTEMPTS
from ipam.allocator.facts import read_facts
from ipam.allocator.stored_claims import claimed_network
from ipam.allocator.view import View
from ipam.records import blocks
from ipam.records.errors import BlockInUse, BlockOverlaps, Contention, NotInPool, PoolEdited
from ipam.records.pools import containing, within
from libcalico.datastore.interface import CommitConflict, Datastore, Delete, Entry, Selection
from libcalico.model.keys import BlockKey, HostKey, IPNetwork


async def claim_affinity(
    store: Datastore, cidr: IPNetwork, host: str
) -> tuple[list[IPNetwork], list[IPNetwork]]:
    """Claim every block of a network for a host; returns (claimed, those of others).

    Raises `NotInPool` unless the network lies in an enabled pool and is no smaller than one of
    its blocks.
    """
    known = await read_facts(store, host)
    pool = containing(known.pools, cidr)
    if pool is None or pool.disabled or cidr.prefixlen > pool.block_size:
        blocks_of = f" with blocks of /{pool.block_size}" if pool else ""
        raise NotInPool(f"{cidr} is no part of an enabled pool{blocks_of} that can be claimed")
    claimed: list[IPNetwork] = []
    lost: list[IPNetwork] = []
    for block in cidr.subnets(new_prefix=pool.block_size):
        network = ip_network(block)
        for _ in range(ATTEMPTS):
            try:
                mine = await affinities.claim(store, View(), host, network, pool=pool)
            except CommitConflict:
                continue
            except BlockOverlaps:
                mine = False
            except PoolEdited:
                raise NotInPool(f"{cidr}: pool {pool.name} was changed meanwhile") from None
            (claimed if mine else lost).append(network)
            break
        else:
            raise Contention(f"gave up claiming {network}: others keep changing its claim")
    return claimed, lost


async def release_affinity(
    store: Datastore, cidr: IPNetwork, host: str, *, must_be_empty: bool = False
) -> list[IPNetwork]:
    """Give up the host's claims on the blocks of a network; returns the blocks that are gone.

    A block with addresses stays, without owner. With `must_be_empty` it stays as it is, and
    `BlockInUse` names it after the others are done.
    """
    chosen = [
        a for a in await stored_claims.claims_of(store, host) if within(claimed_network(a), cidr)
    ]
    return await _give_up_all(store, chosen, must_be_empty)


async def release_host_affinities(
    store: Datastore, host: str, *, must_be_empty: bool = False
) -> list[IPNetwork]:
    """Give up all claims of a host, as `release_affinity` does."""
    return await _give_up_all(store, await stored_claims.claims_of(store, host), must_be_empty)


async def _give_up_all(
    store: Datastore, chosen: list[Entry], must_be_empty: bool
) -> list[IPNetwork]:
    gone: list[IPNetwork] = []
    busy: list[BlockInUse] = []
    for affinity in chosen:
        try:
            if await _give_up(store, affinity, must_be_empty):
                gone.append(claimed_network(affinity))
        except BlockInUse as error:
            busy.append(error)
    if busy:
        raise busy[0]
    return gone


async def _give_up(store: Datastore, affinity: Entry, must_be_empty: bool) -> bool:
    current: Entry | None = affinity
    for _ in range(ATTEMPTS):
        if current is None:
            return False
        block = await store.get(BlockKey(claimed_network(current)))
        if must_be_empty and block is not None and not blocks.is_empty(block.value):
            raise BlockInUse(
                f"block {block.value.cidr} of {block.value.owner} still holds "
                f"{blocks.used_count(block.value)} addresses"
            )
        try:
            return await claim_release.release(store, current, block)
        except CommitConflict:
            current = await store.get(affinity.key)
    raise Contention(f"gave up releasing {affinity.key}: others keep changing it")


async def release_pool_affinities(store: Datastore, pool: IPNetwork) -> int:
    """Give up all claims on a pool's blocks, hosts' and virtual owners'; counts what is gone.

    The pool must be disabled before. Blocks in use stay, without owner, until their last
    address is released.
    """
    listing = await store.list(Selection("BlockAffinity"))
    chosen = [one for one in listing.entries if within(claimed_network(one), pool)]
    return len(await _give_up_all(store, chosen, must_be_empty=False))


async def in_use(store: Datastore, pool: IPNetwork) -> int:
    """How many addresses of a pool are in use."""
    listing = await store.list(Selection("Block"))
    return sum(
        blocks.used_count(one.value)
        for one in listing.entries
        if isinstance(one.key, BlockKey) and within(one.key.cidr, pool)
    )


async def remove_host(store: Datastore, host: str) -> None:
    """Give up all claims of a host that is gone and remove its record of old times."""
    await release_host_affinities(store, host)
    await store.commit([Delete(HostKey(host))])
