"""This node's address blocks: what it owns, what it lent, what must not loop.

A block is announced as a whole, so packets for its free addresses arrive here; without a
route of their own they would follow the default route back and loop. Hence a blackhole for
each own block (docs/reference/dataplane.md#beside-calicos-nodes). A block of one address
gets none: it would stand in the way of that address's own route.

Invariants:
  BLK-1  Every own block larger than one address has exactly one blackhole; nothing else has.
  BLK-2  A block that another node owns is never blackholed; a stale claim does not count.
Tested in tests/felix/calc/test_blocks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from libcalico.model.resources.ipam import Block, BlockAffinity

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


_UNCLAIMED = (
    "was deleted while its block names this node: other nodes do not believe the block's route"
    " until calico-cni writes the claim again"
)
_EMPTY = (
    "is confirmed, and its block was deleted: which of its addresses are in use stands nowhere"
    " until calico-cni makes it again, when it next needs an address"
)


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What felix keeps of a block: its owner and the addresses that other nodes use."""

    owner: str
    users: frozenset[tuple[IPAddress, str]]


def facts_of(block: Block) -> BlockFacts:
    """The facts of a stored block; `users` are (address, node) of allocations that name a node."""
    owner = block.owner or ""
    nodes = [attribute.secondary.get("node", "") for attribute in block.attributes]
    others = {i for i, node in enumerate(nodes) if node and f"host:{node}" != owner}
    users: set[tuple[IPAddress, str]] = set()
    if others:
        base = ip_network(block.cidr).network_address
        for ordinal, index in enumerate(block.allocations):
            if index in others:
                users.add((base + ordinal, nodes[index]))
    return BlockFacts("" if block.deleted else owner, frozenset(users))


def own_blocks(
    node: str, blocks: Mapping[IPNetwork, BlockFacts], claims: Mapping[IPNetwork, BlockAffinity]
) -> frozenset[IPNetwork]:
    """The blocks of a node: those that name it, and confirmed claims that no block contradicts."""
    me = f"host:{node}"
    owned = {cidr for cidr, facts in blocks.items() if facts.owner == me}
    claimed = {
        cidr
        for cidr, claim in claims.items()
        if claim.confirmed and not claim.deleted and cidr not in blocks
    }
    return frozenset(owned | claimed)


def unsettled(
    node: str, blocks: Mapping[IPNetwork, BlockFacts], claims: Mapping[IPNetwork, BlockAffinity]
) -> dict[str, str]:
    """Own blocks and claims of which one was deleted, by object, and what that means."""
    me = f"host:{node}"
    confirmed = {cidr for cidr, claim in claims.items() if claim.confirmed and not claim.deleted}
    unclaimed = {cidr for cidr, facts in blocks.items() if facts.owner == me and cidr not in claims}
    return {f"BlockAffinity({cidr})": _UNCLAIMED for cidr in unclaimed} | {
        f"BlockAffinity({cidr})": _EMPTY for cidr in confirmed if cidr not in blocks
    }


def lent_addresses(
    own: frozenset[IPNetwork], blocks: Mapping[IPNetwork, BlockFacts]
) -> frozenset[IPAddress]:
    """Addresses of own blocks that another node uses: only these may be routed away."""
    return frozenset(address for cidr in own if cidr in blocks for address, _ in blocks[cidr].users)


def blackholes(own: frozenset[IPNetwork]) -> frozenset[IPNetwork]:
    """The networks to blackhole (BLK-1)."""
    return frozenset(block for block in own if block.prefixlen < block.max_prefixlen)
