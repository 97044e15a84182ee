"""This node's address blocks: what it owns, what it lent, what must not loop.

A block is announced as a whole, so packets for its free addresses arrive here; without a
route of their own they would follow the default route back and loop. Hence a blackhole for
each own block (docs/reference/dataplane.md#beside-calicos-nodes). A block of one address
gets none: it would stand in the way of that address's own route.

Invariants:
  BLK-1  Every own block larger than one address has exactly one blackhole; nothing else has.
  BLK-2  A block that another node owns is never blackholed; a claim that is not confirmed does
         not count.
Tested in tests/felix/calc/test_blocks.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


_UNCLAIMED = (
    "was deleted while pods of this node have addresses of the block: other nodes reach them one by"
    " one until calico-cni writes the claim again"
)


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What felix keeps of a block: its owner, and the addresses that other nodes use.

    `owner` is `host:` and a node, or empty; `users` are (address, node).
    """

    owner: str
    users: frozenset[tuple[IPAddress, str]]


def own_blocks(node: str, blocks: Mapping[IPNetwork, BlockFacts]) -> frozenset[IPNetwork]:
    """The blocks of a node."""
    me = f"host:{node}"
    return frozenset(cidr for cidr, facts in blocks.items() if facts.owner == me)


def unsettled(
    node: str,
    blocks: Mapping[IPNetwork, BlockFacts],
    left: Collection[IPNetwork],
    pools: Collection[IPNetwork],
) -> dict[str, str]:
    """Claims that are gone while this node uses their blocks, by object, and what that means.

    `left`: the blocks without a claim. One in no pool was given up with it.
    """
    return {
        f"BlockAffinity({cidr})": _UNCLAIMED
        for cidr in left
        if any(user == node for _, user in blocks[cidr].users)
        and any(cidr[0] in pool for pool in pools)
    }


def lent_addresses(
    node: str, own: frozenset[IPNetwork], blocks: Mapping[IPNetwork, BlockFacts]
) -> frozenset[IPAddress]:
    """Addresses of own blocks that another node uses: only these may be routed away."""
    return frozenset(
        address for cidr in own for address, user in blocks[cidr].users if user != node
    )


def blackholes(own: frozenset[IPNetwork]) -> frozenset[IPNetwork]:
    """The networks to blackhole (BLK-1)."""
    return frozenset(block for block in own if block.prefixlen < block.max_prefixlen)
