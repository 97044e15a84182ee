"""How full the pools are, and who holds an address: what `calicoctl ipam show` prints.

An address that cools down is in use: it cannot be had. A reserved address that was given out
before counts in both columns, so the shares need not sum up to the whole.

Source: docs/reference/data-model.md#utilisation (utilisation), 6.4. Tested in
tests/ipam/test_usage.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import collapse_addresses, ip_network

from ipam.records import blocks
from ipam.records.blocks import Allocation, IPAddress
from ipam.records.pools import Pool, containing, reserved_networks, usable
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model import Block
from libcalico.model.keys import IPNetwork

ORPHANS = "orphaned allocation blocks"


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """One block: owner is a node's name, `virtual:...`, or empty. Counts as in `PoolUsage`."""

    cidr: IPNetwork
    owner: str
    capacity: int
    in_use: int
    reserved: int
    free: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool. `capacity` is every address of the CIDR; `free` is neither used nor reserved."""

    name: str
    cidr: IPNetwork
    capacity: int
    in_use: int
    reserved: int
    free: int
    blocks: tuple[BlockUsage, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """One address: its pool and block where they exist, and its holder."""

    address: IPAddress
    pool: str
    block: IPNetwork | None
    allocation: Allocation | None
    alternate: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Borrowed:
    """An address in use on another node than its block's; `owner` empty: the block has none."""

    address: IPAddress
    node: str
    block: IPNetwork
    owner: str
    kind: str
    allocated_to: str


async def utilisation(store: Datastore) -> list[PoolUsage]:
    """Every pool by name; blocks outside all pools stand under `ORPHANS`."""
    pools, stored = await _read(store)
    return summarize(pools, stored, await reservations(store))


async def reservations(store: Datastore) -> list[IPNetwork]:
    """The networks of all IPReservations."""
    listing = await store.list(Selection("IPReservation"))
    return reserved_networks(entry.value for entry in listing.entries)


def summarize(
    pools: Iterable[Pool], stored: Iterable[Block], reserved: Iterable[IPNetwork] = ()
) -> list[PoolUsage]:
    """The pure part of `utilisation`."""
    ordered = sorted(pools, key=lambda pool: pool.name)
    apart = _apart(reserved)
    grouped: dict[str, list[BlockUsage]] = {pool.name: [] for pool in ordered}
    orphans: list[BlockUsage] = []
    for block in sorted(stored, key=lambda b: (ip_network(b.cidr).version, ip_network(b.cidr))):
        home = containing(ordered, ip_network(block.cidr))
        (grouped[home.name] if home else orphans).append(_block_usage(block, apart))
    result = [_pool_usage(pool, grouped[pool.name], apart) for pool in ordered]
    if orphans:
        used, kept_back, free, capacity = (
            sum(getattr(block, name) for block in orphans)
            for name in ("in_use", "reserved", "free", "capacity")
        )
        everywhere = ip_network("0.0.0.0/0")
        result.append(
            PoolUsage(ORPHANS, everywhere, capacity, used, kept_back, free, tuple(orphans))
        )
    return result


async def who_has(store: Datastore, address: IPAddress) -> Holding:
    """The holder of an address; `allocation` is None when it is free."""
    pools, stored = await _read(store)
    own = ip_network(address)
    pool = containing(pools, own)
    name = pool.name if pool else ""
    for block in stored:
        cidr = ip_network(block.cidr)
        if cidr.version == address.version and address in cidr:
            allocation = next((a for a in blocks.allocations(block) if a.address == address), None)
            index = block.allocations[blocks.ordinal_of(block, address)]
            known = index is not None and 0 <= index < len(block.attributes)
            alternate = block.attributes[index or 0].alternateOwnerAttrs if known else {}
            return Holding(address, name, cidr, allocation, alternate or {})
    return Holding(address, name, None, None, {})


async def borrowed(store: Datastore) -> tuple[list[Borrowed], int]:
    """All borrowed addresses, and how many allocations do not say for which node they are."""
    _, stored = await _read(store)
    addresses: list[Borrowed] = []
    unknown = 0
    for block in sorted(stored, key=lambda b: (ip_network(b.cidr).version, ip_network(b.cidr))):
        owner = (block.owner or "").rpartition(":")[2]
        for allocation in blocks.allocations(block):
            node = allocation.attributes.get("node")
            if node is None:
                unknown += 1
            elif node != owner:
                kind, to = _holder(allocation.attributes)
                address, cidr = allocation.address, ip_network(block.cidr)
                addresses.append(Borrowed(address, node, cidr, owner, kind, to))
    return addresses, unknown


def _holder(attributes: Mapping[str, str]) -> tuple[str, str]:
    namespace = attributes.get("namespace", "")
    for kind, name in (("vmi", "vmi-name"), ("pod", "pod")):
        if name in attributes:
            return kind, f"{namespace}/{attributes[name]}"
    return attributes.get("type", ""), ""


async def _read(store: Datastore) -> tuple[list[Pool], list[Block]]:
    pools = await store.list(Selection("IPPool"))
    stored = await store.list(Selection("Block"))
    return usable(pools.entries), [entry.value for entry in stored.entries]


def _parts(cidr: IPNetwork, apart: Sequence[IPNetwork]) -> Iterator[IPNetwork]:
    """The reserved parts of a network; `apart` overlap nothing among themselves."""
    for net in apart:
        if net.version == cidr.version and net.overlaps(cidr):
            yield net if net.prefixlen >= cidr.prefixlen else cidr


def reserved_of(cidr: IPNetwork, reserved: Iterable[IPNetwork]) -> int:
    """How many addresses of a network are reserved, each counted once."""
    return sum(net.num_addresses for net in _parts(cidr, _apart(reserved)))


def _apart(reserved: Iterable[IPNetwork]) -> list[IPNetwork]:
    """The same addresses in networks that overlap nothing among themselves."""
    kept = list(reserved)
    return [
        *collapse_addresses([net for net in kept if net.version == 4]),
        *collapse_addresses([net for net in kept if net.version == 6]),
    ]


def _block_usage(block: Block, apart: Sequence[IPNetwork]) -> BlockUsage:
    cidr = ip_network(block.cidr)
    allocations_there = tuple(blocks.allocations(block))
    owner = blocks.owner_host(block) or block.owner or ""
    capacity = blocks.size(cidr)
    base = int(cidr.network_address)
    used = {ordinal for ordinal, index in enumerate(block.allocations) if index is not None}
    reserved = {
        int(net.network_address) - base + offset
        for net in _parts(cidr, apart)
        for offset in range(net.num_addresses)
    }
    free = capacity - len(used | reserved)
    return BlockUsage(cidr, owner, capacity, len(used), len(reserved), free, allocations_there)


def _pool_usage(pool: Pool, usages: Sequence[BlockUsage], apart: Sequence[IPNetwork]) -> PoolUsage:
    used = sum(block.in_use for block in usages)
    reserved = sum(net.num_addresses for net in _parts(pool.cidr, apart))
    # Both at once: counted in the blocks, where alone addresses are in use.
    both = sum(block.in_use + block.reserved + block.free - block.capacity for block in usages)
    capacity = blocks.size(pool.cidr)
    free = capacity - used - reserved + both
    return PoolUsage(pool.name, pool.cidr, capacity, used, reserved, free, tuple(usages))
