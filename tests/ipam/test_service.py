"""The allocator of a node against a real etcd, and its rivals."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.admin import maintenance, usage
from ipam.allocator.requests import Release
from ipam.records import blocks
from ipam.records.errors import BlockLimit, NoPool, PoolsExhausted
from libcalico.datastore.interface import Datastore, Put, Selection
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.model import IPAMConfig
from libcalico.model.keys import BlockKey, IPAMConfigKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import allocate, put_node, put_pool, release, serving
from tests.support.etcd import Etcd


async def in_use(store: Datastore) -> int:
    return sum(pool.in_use for pool in await usage.utilisation(store))


async def count_writes(etcd: Etcd, prefix: str) -> int:
    return len(etcd.keys(prefix))


@pytest.mark.asyncio
async def test_a_pod_is_one_transaction_and_leaves_nothing(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/24", 28)
        await put_node(store, "n1")
        async with serving(store, "n1") as allocator:
            await allocator.perform(allocate("warm"))
            before = etcd.revision()
            granted = await allocator.perform(allocate("web"))
            assert etcd.revision() == before + 1, "one transaction"
            (address,) = granted.addresses
            handle = etcd.get("/calico/ipam/v2/handle/net.web")
            cidr = ip_network(f"{address}/28", strict=False)
            assert handle == f'{{"block":{{"{cidr}":1}},"deleted":false}}'.encode()
            affinity = etcd.get(f"/calico/ipam/v2/host/n1/ipv4/block/{str(cidr).replace('/', '-')}")
            assert affinity == b'{"state":"confirmed","deleted":false}'
            holding = await usage.who_has(store, address)
            assert holding.pool == "p"
            assert holding.allocation
            assert holding.allocation.handle_id == "net.web"
            again = await allocator.perform(allocate("web"))
            assert (again.addresses, again.fresh) == (granted.addresses, False)
            before = etcd.revision()
            released = await allocator.perform(release("web"))
            assert etcd.revision() == before + 1
            assert released.addresses == granted.addresses
            assert (await allocator.perform(release("web"))).addresses == ()
            await allocator.perform(release("warm"))
            assert await in_use(store) == 0
            assert etcd.keys("/calico/ipam/v2/handle/") == []
            assert etcd.keys("/calico/resources/v3/projectcalico.org/workloadendpoints/") == []


@pytest.mark.asyncio
async def test_a_burst_shares_transactions(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/22", 26)
        async with serving(store, "n1") as allocator:
            await allocator.perform(allocate("warm"))
            before = etcd.revision()
            granted = await asyncio.gather(
                *(allocator.perform(allocate(f"web{i}")) for i in range(110))
            )
            assert len({g.addresses for g in granted}) == 110
            assert etcd.revision() - before <= 12
            await asyncio.gather(*(allocator.perform(release(f"web{i}")) for i in range(110)))
            await allocator.perform(release("warm"))
            assert await in_use(store) == 0


@pytest.mark.asyncio
async def test_dual_stack_is_all_or_nothing(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "four", "10.0.0.0/24", 28)
        async with serving(store, "n1") as allocator:
            with pytest.raises(NoPool, match="IPv6"):
                await allocator.perform(allocate("web", families=(4, 6)))
            assert await in_use(store) == 0
            await put_pool(store, "six", "fd00::/127", 127)
            for name in ("a", "b"):
                granted = await allocator.perform(allocate(name, families=(4, 6)))
                assert [a.version for a in granted.addresses] == [4, 6]
            with pytest.raises(PoolsExhausted, match="six"):
                await allocator.perform(allocate("c", families=(4, 6)))
            assert await in_use(store) == 4


@pytest.mark.asyncio
async def test_borrowing_strictness_and_limits(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/29", 30)
        async with serving(store, "n1") as one, serving(store, "n2") as two:
            await one.perform(allocate("a"))
            for i in range(4):
                await two.perform(allocate(f"b{i}"))
            borrowed = [await two.perform(allocate(f"c{i}")) for i in range(3)]
            stored = {e.value.cidr: e.value for e in (await store.list(Selection("Block"))).entries}
            for granted in borrowed:
                cidr = str(ip_network(f"{granted.addresses[0]}/30", strict=False))
                assert stored[cidr].affinity == "host:n1"
            with pytest.raises(PoolsExhausted, match=r"p \(10.0.0.0/29\): all are in use"):
                await two.perform(allocate("d"))
            await two.perform(release("c0"))
            await two.perform(release("b0"))
            strict = IPAMConfig(strict_affinity=True, auto_allocate_blocks=True, maxBlocksPerHost=1)
            await store.commit([Put(IPAMConfigKey(), strict)])
            await two.perform(allocate("e"))
            with pytest.raises(BlockLimit, match="maxBlocksPerHost"):
                await two.perform(allocate("f"))


@pytest.mark.asyncio
async def test_two_allocators_of_one_node_and_an_outside_hand(etcd: Etcd) -> None:
    """A stale view costs a retry and never an address (IPAM-7)."""
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 27)
        async with serving(store, "n1") as one, serving(store, "n1") as two:
            names = [f"web{i}" for i in range(30)]
            granted = await asyncio.gather(
                *((one, two)[i % 2].perform(allocate(name)) for i, name in enumerate(names))
            )
            assert len({g.addresses for g in granted}) == 30
            for entry in (await store.list(Selection("Block"))).entries:
                assert blocks.problem(entry.value) == ""
            freed = await maintenance.release_addresses(store, granted[0].addresses)
            assert freed == list(granted[0].addresses)
            await asyncio.gather(
                *((two, one)[i % 2].perform(release(name)) for i, name in enumerate(names))
            )
            assert await in_use(store) == 0


@pytest.mark.asyncio
async def test_a_block_that_leaks_is_not_used(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/28", 29)
        async with serving(store, "n1") as allocator:
            (first,) = (await allocator.perform(allocate("a"))).addresses
        cidr = ip_network(f"{first}/29", strict=False)
        entry = await store.get(BlockKey(cidr))
        assert entry
        torn = msgspec.structs.replace(entry.value, unallocated=entry.value.unallocated[1:])
        await store.commit([Put(entry.key, torn)])
        async with serving(store, "n1") as allocator:
            (second,) = (await allocator.perform(allocate("b"))).addresses
            assert second not in cidr


@pytest.mark.asyncio
async def test_free_addresses_of_a_torn_block_of_another_node_are_none() -> None:
    """They cannot be borrowed: that is said at once, not after every attempt."""
    store = MemoryStore()
    await put_pool(store, "p", "10.0.0.0/29", 29)
    async with serving(store, "n2") as allocator:
        await allocator.perform(allocate("a"))
    ((key, block),) = store.blocks().items()
    torn = msgspec.structs.replace(block, unallocated=block.unallocated[1:])
    await store.commit([Put(key, torn)])
    store.reads = 0
    async with serving(store, "n1") as allocator:
        with pytest.raises(PoolsExhausted, match="all are in use"):
            await allocator.perform(allocate("b"))
    assert store.reads < 40


@pytest.mark.asyncio
async def test_what_nobody_can_read_fails_only_who_needs_it(etcd: Etcd) -> None:
    """IPAM-13: a torn handle, a torn block, and requests of the same instant beside them."""
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/24", 28)
        async with serving(store, "n1") as allocator:
            for name in "abc":
                await allocator.perform(allocate(name))
            etcd.put("/calico/ipam/v2/handle/net.b", '{"block":7')
            outcomes = await asyncio.gather(
                *(allocator.perform(release(name)) for name in "abc"),
                allocator.perform(allocate("d")),
                return_exceptions=True,
            )
            assert [isinstance(one, InvalidValue) for one in outcomes] == [
                False, True, False, False,
            ]  # fmt: skip
            assert await in_use(store) == 2
            assert len((await allocator.perform(release("d"))).addresses) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("claimed", [True, False])
async def test_a_block_that_cannot_be_read_is_passed_over(etcd: Etcd, claimed: bool) -> None:
    """IPAM-13, with this node's claim on the torn block and without: the other block serves."""
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/28", 29)
        torn = '{"cidr":7'
        for cidr in ["10.0.0.0-29", "10.0.0.8-29"]:
            etcd.put(f"/calico/ipam/v2/assignment/ipv4/block/{cidr}", torn)
            affinity = f"/calico/ipam/v2/host/n1/ipv4/block/{cidr}"
            if claimed:
                etcd.put(affinity, '{"state":"confirmed","deleted":false}')
            async with serving(store, "n1") as allocator:
                name = f"a{cidr}"
                granted = await allocator.perform(allocate(name))
                assert len(granted.addresses) == 1
                assert granted.addresses[0] not in ip_network(cidr.replace("-", "/"))
                await allocator.perform(release(name))
            assert (etcd.get(affinity) is not None) == claimed
            etcd.delete("/calico/ipam/")


@pytest.mark.asyncio
async def test_a_node_and_a_pool_are_given_back(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 28)
        async with serving(store, "n1") as one, serving(store, "n2") as two:
            await one.perform(Release("nothing"))
            await one.perform(allocate("a"))
            await two.perform(allocate("b"))
            await maintenance.release_pool_affinities(store, ip_network("10.0.0.0/26"))
            assert etcd.keys("/calico/ipam/v2/host/") == []
            assert len(etcd.keys("/calico/ipam/v2/assignment/")) == 2, "in use: they stay"
            await one.perform(release("a"))
            assert len(etcd.keys("/calico/ipam/v2/assignment/")) == 1, "without owner and empty"
            await two.perform(allocate("c"))
        key = ResourceKey("WorkloadEndpoint", "c", "default")
        entry = await store.get(key)
        assert entry
        on_two = msgspec.structs.replace(
            entry.value, spec=msgspec.structs.replace(entry.value.spec, node="n2")
        )
        await store.commit([Put(key, on_two, entry.revision, entry)])
        released = await maintenance.release_host(store, "n2")
        assert released == [ip_address(entry.value.spec.ipNetworks[0].partition("/")[0])]
        assert etcd.keys("/calico/ipam/v2/host/n2") == []


@pytest.mark.asyncio
async def test_a_store_that_is_away_fails_its_callers_and_nothing_else(
    private_etcd: Etcd,
) -> None:
    async with private_etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 28)
        async with serving(store, "n1") as allocator:
            await allocator.perform(allocate("a"))
            private_etcd.kill()
            with pytest.raises(DatastoreUnavailable):
                await allocator.perform(allocate("b"))
            private_etcd.start()
            await allocator.perform(allocate("b"))
            assert await in_use(store) == 2
        with pytest.raises(DatastoreUnavailable, match="stopping"):
            await allocator.perform(allocate("c"))
