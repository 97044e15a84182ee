"""How many addresses and blocks each pool and node has: what the metrics tell. Pure.

Source: docs/reference/data-model.md#collection-of-leaked-addresses. Tested in
tests/controllers/test_leaks.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_network

from controllers.addresses.leaks import Candidate
from ipam.admin.usage import reserved_of
from ipam.records import blocks
from ipam.records.pools import Pool, containing
from libcalico.model import Block
from libcalico.model.keys import IPNetwork

NO_POOL, NO_NODE, NO_AFFINITY = "no_ippool", "unknown_node", "no_affinity"
IPAddress = IPv4Address | IPv6Address
Pair = tuple[str, str]


@dataclass(slots=True)
class Counts:
    """By pool and node: `blocks` by owner, the others by who holds the address."""

    in_use: Counter[Pair] = field(default_factory=Counter)
    borrowed: Counter[Pair] = field(default_factory=Counter)
    blocks: Counter[Pair] = field(default_factory=Counter)
    candidates: Counter[Pair] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)


def count(
    stored: Iterable[Block],
    pools: list[Pool],
    unused: Iterable[Candidate],
    reserved: Sequence[IPNetwork] = (),
) -> Counts:
    """Count blocks and addresses; `reserved` are the networks of all IPReservations."""
    counts = Counts(
        sizes={pool.name: pool.cidr.num_addresses for pool in pools},
        reserved={pool.name: reserved_of(pool.cidr, reserved) for pool in pools},
    )
    for block in stored:
        if blocks.problem(block):
            continue
        pool = containing(pools, blocks.network(block))
        name, owner = pool.name if pool else NO_POOL, blocks.owner_host(block)
        counts.blocks[name, owner or NO_AFFINITY] += 1
        for one in blocks.allocations(block):
            node = one.attributes.get("node") or NO_NODE
            counts.in_use[name, node] += 1
            if owner and node != owner:
                counts.borrowed[name, node] += 1
    for candidate in unused:
        for allocation in candidate.allocations:
            counts.candidates[pool_of(allocation.address, pools), candidate.node] += 1
    return counts


def pool_of(address: IPAddress, pools: list[Pool]) -> str:
    """The name of the pool that has this address, `NO_POOL` where none has."""
    pool = containing(pools, ip_network(address))
    return pool.name if pool else NO_POOL
