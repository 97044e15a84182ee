"""How full the pools are: every address is counted once as used, reserved, both or free."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipam.admin import usage
from ipam.records import blocks
from ipam.records.pools import Pool
from libcalico.datastore.interface import Put
from libcalico.model import Attribute, Block
from libcalico.model.keys import BlockKey, IPNetwork
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool

POOL = Pool("p", ip_network("10.0.0.0/28"), 30)
CIDRS: list[IPNetwork] = list(ip_network("10.0.0.0/28").subnets(new_prefix=30))


def block(cidr: IPNetwork, count: int) -> Block:
    return blocks.assign(blocks.create(cidr, "host:n1", None, 1), count, "h", {})[0]


networks = st.tuples(st.integers(27, 32), st.integers(0, 31)).map(
    lambda pair: ip_network(
        (int(ip_address("10.0.0.0")) + pair[1] >> 32 - pair[0] << 32 - pair[0], pair[0])
    )
)


@given(st.lists(st.integers(0, 4), max_size=4), st.lists(networks, max_size=4))
def test_the_counts_are_those_of_the_sets(counts: list[int], reserved: list[IPNetwork]) -> None:
    made = [block(cidr, count) for cidr, count in zip(CIDRS, counts, strict=False)]
    (told,) = usage.summarize([POOL], made, reserved)
    everything = set(POOL.cidr)
    used = {a.address for one in made for a in blocks.allocations(one)}
    kept = {address for net in reserved for address in net if address in POOL.cidr}
    assert (told.capacity, told.in_use, told.reserved) == (16, len(used), len(kept))
    assert told.free == len(everything - used - kept)
    for one, usage_of in zip(made, told.blocks, strict=True):
        inside = set(ip_network(one.cidr))
        assert usage_of.free == len(inside - used - kept)
        assert usage_of.reserved == len(inside & kept)


def test_blocks_outside_all_pools_are_orphans_and_what_cools_is_in_use() -> None:
    cooling = msgspec.structs.replace(
        block(ip_network("10.9.0.0/30"), 1),
        attributes=[Attribute(releasedAt="2026-01-01T00:00:00Z")],
    )
    (pool, orphans) = usage.summarize([POOL], [cooling])
    assert (pool.in_use, orphans.name, orphans.in_use, orphans.free) == (0, usage.ORPHANS, 1, 3)


@pytest.mark.asyncio
async def test_borrowed_addresses_name_borrower_owner_and_holder() -> None:
    store = MemoryStore()
    await put_pool(store, "p", "10.0.0.0/28", 30)
    held = blocks.create(CIDRS[0], "host:n1", None, 1)
    for handle, attributes in (
        ("own", {"node": "n1", "pod": "a", "namespace": "ns"}),
        ("lent", {"node": "n2", "pod": "b", "namespace": "ns"}),
        ("tunnel", {"node": "n3", "type": "ipipTunnelAddress"}),
        ("old", {}),
    ):
        held, _ = blocks.assign(held, 1, handle, attributes)

    await store.commit([Put(BlockKey(CIDRS[0]), held)])
    found, unknown = await usage.borrowed(store)
    assert [(b.node, b.owner, b.kind, b.allocated_to) for b in found] == [
        ("n2", "n1", "pod", "ns/b"),
        ("n3", "n1", "ipipTunnelAddress", ""),
    ]
    assert unknown == 1
