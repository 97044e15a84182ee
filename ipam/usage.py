"""How full the pools are, and who holds an address: what `calicoctl ipam show` prints.

Source: data model 4.10 (utilisation), 6.4. Tested in tests/ipam/test_service.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from ipam import blocks
from ipam.blocks import Allocation, IPAddress
from ipam.pools import Pool, containing, from_resource
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model import Block
from libcalico.model.keys import IPNetwork

ORPHANS = "orphaned allocation blocks"


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """One block: owner is a node's name, `virtual:...`, or empty."""

    cidr: IPNetwork
    owner: str
    capacity: int
    in_use: int
    free: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool. `capacity` is every address of the CIDR; `free` = capacity - in_use - reserved."""

    name: str
    cidr: IPNetwork
    capacity: int
    in_use: int
    reserved: int
    free: int
    blocks: tuple[BlockUsage, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """What is known of one address: its pool and block where they exist, and who holds it."""

    address: IPAddress
    pool: str
    block: IPNetwork | None
    allocation: Allocation | None


async def utilisation(store: Datastore) -> list[PoolUsage]:
    """Every pool by name; blocks outside all pools stand under `ORPHANS`."""
    pools, stored = await _read(store)
    return summarize(pools, stored)


def summarize(pools: Iterable[Pool], stored: Iterable[Block]) -> list[PoolUsage]:
    """The pure part of `utilisation`."""
    ordered = sorted(pools, key=lambda pool: pool.name)
    grouped: dict[str, list[BlockUsage]] = {pool.name: [] for pool in ordered}
    orphans: list[BlockUsage] = []
    for block in sorted(stored, key=lambda b: (ip_network(b.cidr).version, ip_network(b.cidr))):
        home = containing(ordered, ip_network(block.cidr))
        (grouped[home.name] if home else orphans).append(_block_usage(block))
    result = [_pool_usage(pool.name, pool.cidr, grouped[pool.name]) for pool in ordered]
    if orphans:
        used = sum(block.in_use for block in orphans)
        capacity = sum(block.capacity for block in orphans)
        everywhere = ip_network("0.0.0.0/0")
        result.append(
            PoolUsage(ORPHANS, everywhere, capacity, used, 0, capacity - used, tuple(orphans))
        )
    return result


async def who_has(store: Datastore, address: IPAddress) -> Holding:
    """Who holds an address; `allocation` is None when it is free."""
    pools, stored = await _read(store)
    own = ip_network(address)
    pool = containing(pools, own)
    for block in stored:
        cidr = ip_network(block.cidr)
        if cidr.version == address.version and address in cidr:
            found = next((a for a in blocks.allocations(block) if a.address == address), None)
            return Holding(address, pool.name if pool else "", cidr, found)
    return Holding(address, pool.name if pool else "", None, None)


async def _read(store: Datastore) -> tuple[list[Pool], list[Block]]:
    pools = await store.list(Selection("IPPool"))
    stored = await store.list(Selection("Block"))
    return (
        [from_resource(entry.value) for entry in pools.entries],
        [entry.value for entry in stored.entries],
    )


def _block_usage(block: Block) -> BlockUsage:
    cidr = ip_network(block.cidr)
    held = tuple(blocks.allocations(block))
    owner = blocks.owner_host(block) or block.owner or ""
    capacity = blocks.size(cidr)
    return BlockUsage(cidr, owner, capacity, len(held), capacity - len(held), held)


def _pool_usage(name: str, cidr: IPNetwork, held: list[BlockUsage]) -> PoolUsage:
    used = sum(block.in_use for block in held)
    capacity = blocks.size(cidr)
    return PoolUsage(name, cidr, capacity, used, 0, capacity - used, tuple(held))
