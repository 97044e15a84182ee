"""A pool made anew with another block size while its old blocks hold addresses (IPAM-16)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from ipam.admin import library
from ipam.records import blocks, sizes
from ipam.records.errors import BlockOverlaps
from libcalico.datastore.interface import Datastore, Delete, Put, Selection
from libcalico.model.keys import BlockKey, IPNetwork, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd


async def held(store: Datastore) -> list[blocks.IPAddress]:
    listing = await store.list(Selection("Block"))
    return [a.address for entry in listing.entries for a in blocks.allocations(entry.value)]


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-3", "PAIN-5")
@pytest.mark.parametrize(("before", "after"), [(26, 28), (28, 26), (24, 26), (26, 24)])
async def test_no_address_twice_after_a_pool_was_made_anew(
    etcd: Etcd, before: int, after: int
) -> None:
    async with etcd.connect() as store:
        for node in ("n1", "n2"):
            await put_node(store, node)
        await put_pool(store, "p", "10.0.0.0/23", before)
        first = library.AssignRequest("n1", "h1", num4=3)
        assert len((await library.auto_assign(store, first)).ipv4) == 3
        # Not through calicoctl, which refuses it.
        await store.commit([Delete(ResourceKey("IPPool", "p"))])
        await put_pool(store, "p", "10.0.0.0/23", after)
        second = library.AssignRequest("n2", "h2", num4=300)
        assert (await library.auto_assign(store, second)).ipv4
        addresses = await held(store)
        assert len(addresses) == len(set(addresses))
        networks = [e.key.cidr for e in (await store.list(Selection("Block"))).entries]  # type: ignore[union-attr]
        assert not [(a, b) for a in networks for b in networks if a != b and a.overlaps(b)]


@pytest.mark.asyncio
async def test_a_named_address_under_an_old_block_is_refused_alone() -> None:
    store = MemoryStore()
    await put_node(store, "n2")
    await put_pool(store, "p", "10.0.0.0/26", 28)
    old = blocks.create(ip_network("10.0.0.0/27"), "host:n1", None, 1)
    await store.commit([Put(BlockKey(ip_network("10.0.0.0/27")), old)])
    with pytest.raises(BlockOverlaps, match=r"10\.0\.0\.0/27"):
        await library.assign_ip(store, ip_address("10.0.0.5"), "n2", handle_id="h")
    await library.assign_ip(store, ip_address("10.0.0.45"), "n2", handle_id="h")
    claimed, lost = await library.claim_affinity(store, ip_network("10.0.0.0/26"), "n2")
    assert [str(one) for one in claimed] == ["10.0.0.32/28", "10.0.0.48/28"]
    assert [str(one) for one in lost] == ["10.0.0.0/28", "10.0.0.16/28"]
    assert await library.release_affinity(store, ip_network("10.0.0.0/27"), "n2") == []


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["10.0.0.0/26", "10.0.0.4/32", "fd00::/117", "fd00::40/122"])
async def test_what_lies_there_is_found_up_and_down(text: str) -> None:
    cidr = ip_network(text)
    near: list[IPNetwork] = [cidr, ip_network(cidr.supernet())]
    near += [ip_network(str(one)) for one in list(cidr.subnets())[:1]]
    for other in near:
        store = MemoryStore()
        await store.commit([Put(BlockKey(other), blocks.create(other, None, None, 1))])
        known = other.prefixlen >= sizes.WIDEST[other.version] and other != cidr
        assert await sizes.in_the_way(store, cidr) == (other if known else None)
