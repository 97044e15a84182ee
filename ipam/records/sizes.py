"""Blocks of another size in the way of a new one.

A pool may be removed and made again with another block size while its old blocks still hold
addresses: our `calicoctl` refuses that, but other writers of pools do not. A block that
lay over such a block would give its addresses out a second time.

Invariant IPAM-16: a block is created only where no block of another size lies. A writer that
makes blocks of the old size meanwhile is stopped by IPAM-14: the pool is not as it was.
Tested in tests/ipam/test_sizes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from ipam.records.errors import BlockOverlaps
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue
from libcalico.model.keys import BlockKey, IPNetwork

WIDEST = {4: 20, 6: 116}
MOST_KEYS = 128
"""Up to so many places are looked at by name; a larger block compares the list of all."""


async def require_room(store: Datastore, cidr: IPNetwork) -> None:
    """Raise `BlockOverlaps` if `cidr` is not stored and a block of another size lies there."""
    other = await in_the_way(store, cidr)
    if other is not None and await store.get(BlockKey(cidr)) is None:
        raise BlockOverlaps(
            f"{cidr} cannot be a block: block {other} of another size lies there since before its "
            "pool was made anew; run `calicoctl ipam check`",
            other,
        )


async def in_the_way(store: Datastore, cidr: IPNetwork) -> IPNetwork | None:
    """A stored block that overlaps `cidr` and is not `cidr` itself, or None."""
    inside = (2 << (cidr.max_prefixlen - cidr.prefixlen)) - 2
    if inside <= MOST_KEYS:
        keys = [BlockKey(network) for network in _relatives(cidr)]
        try:
            stored_blocks = await store.get_many(keys)
        except InvalidValue:
            pass  # one cannot be read: the listing names it
        else:
            return next((key.cidr for key in keys if stored_blocks[key] is not None), None)
    listing = await store.list(Selection("Block"))
    stored = {entry.key.cidr for entry in listing.entries if isinstance(entry.key, BlockKey)}
    stored |= {network for key, _ in listing.broken if (network := _named(key))}
    for other in stored:
        if other != cidr and other.version == cidr.version and other.overlaps(cidr):
            return other
    return None


def _relatives(cidr: IPNetwork) -> Iterator[IPNetwork]:
    for length in range(WIDEST[cidr.version], cidr.prefixlen):
        yield ip_network(cidr.supernet(new_prefix=length))
    for length in range(cidr.prefixlen + 1, cidr.max_prefixlen + 1):
        for part in cidr.subnets(new_prefix=length):
            yield ip_network(part)


def _named(key: str) -> IPNetwork | None:
    """The network in the text of a block's key, such as `.../10.0.0.0-26`."""
    address, _, length = key.rpartition("/")[2].rpartition("-")
    try:
        return ip_network(f"{address}/{length}")
    except ValueError:
        return None
