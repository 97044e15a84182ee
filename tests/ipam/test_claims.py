"""Claiming blocks: every half-made state is settled, races have one winner, empties are reused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from ipam.allocator import affinities, claim_loading, claims
from ipam.allocator.service import NodeAllocator, read_facts
from ipam.allocator.view import OwnNode, View, at_home
from ipam.records import blocks
from ipam.records.errors import PoolEdited, PoolsExhausted
from ipam.records.naming import rfc3339
from ipam.records.pools import Pool
from libcalico.datastore.interface import Change, CommitConflict, Entry, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model import (
    BlockAffinity,
    ClusterInformation,
    ClusterInformationSpec,
    IPAMConfig,
    Metadata,
)
from libcalico.model.keys import AffinityKey, BlockKey, IPNetwork, ResourceKey
from libcalico.model.resources.ipam import CONFIRMED, DEFAULT_IPAM_CONFIG, PENDING, PENDING_DELETION
from tests.ipam.memory import MemoryStore
from tests.ipam.world import allocate, put_node, put_pool
from tests.support.etcd import Etcd

CIDR = ip_network("10.0.0.0/30")
POOL = Pool("p", ip_network("10.0.0.0/29"), 30)
NOW = 1795273157 * 10**9


def clock() -> int:
    return NOW


async def put_block(
    store: MemoryStore, owner: str | None, cidr: IPNetwork = CIDR, used: bool = False
) -> None:
    claimed = rfc3339(NOW - 120 * 10**9)
    block = blocks.create(cidr, owner, claimed, 1)
    if used:
        block, _ = blocks.assign(block, 1, "x", {})
    await store.commit([Put(BlockKey(cidr), block)])


async def put_affinity(store: MemoryStore, host: str, state: str) -> None:
    await store.commit([Put(AffinityKey(host, CIDR), BlockAffinity(state=state))])


@pytest.mark.asyncio
@pytest.mark.parametrize("state", [CONFIRMED, "", PENDING, PENDING_DELETION])
@pytest.mark.parametrize("block", ["ours", "other's", "missing"])
@pytest.mark.parametrize("enabled", [True, False])
async def test_every_half_made_claim_is_settled(state: str, block: str, enabled: bool) -> None:
    store, view = MemoryStore(), View(OwnNode(foreign=at_home))
    await put_affinity(store, "n1", state)
    if block != "missing":
        await put_block(store, "host:n1" if block == "ours" else "host:n2")
    pool = Pool("p", POOL.cidr, 30, disabled=not enabled)
    loaded = await claim_loading.load(store, view, "n1", [pool], clock)
    affinity = store.entries.get(AffinityKey("n1", CIDR))
    stored = store.entries.get(BlockKey(CIDR))
    if block == "other's":
        assert (loaded, affinity) == ([], None)
        assert stored
        assert stored.value.affinity == "host:n2"
    elif not enabled and (block == "missing" or state == PENDING_DELETION):
        assert (loaded, affinity, stored) == ([], None, None)
    else:
        assert loaded == [CIDR]
        assert affinity
        assert affinity.value.state in (CONFIRMED, "")
        assert stored
        assert stored.value.affinity == "host:n1"
        assert view.value(BlockKey(CIDR)) == stored.value


@pytest.mark.asyncio
async def test_a_crash_at_any_commit_of_a_claim_is_recovered_from() -> None:
    """IPAM-10, IPAM-11."""
    for crash in (1, 2):
        for applied in (False, True):
            store = MemoryStore()
            count = 0

            def die(_: Sequence[Change], at: int = crash) -> None:
                nonlocal count
                count += 1
                if count == at:
                    raise DatastoreUnavailable("a crash")

            if applied:
                store.after_commit = die
            else:
                store.before_commit = die
            with pytest.raises(DatastoreUnavailable):
                await affinities.claim(store, View(), "n1", CIDR, clock)
            store.before_commit = store.after_commit = lambda _: None
            view = View()
            loaded = await claim_loading.load(store, view, "n1", [POOL], clock)
            if loaded:
                assert store.entries[AffinityKey("n1", CIDR)].value.state == CONFIRMED
                assert blocks.owner_host(store.entries[BlockKey(CIDR)].value) == "n1"
            else:
                assert not store.entries
            # Another node is not kept from the rest of the pool.
            other = await claims.claim_one(
                store, View(), "n2", [POOL], 0, DEFAULT_IPAM_CONFIG, clock
            )
            assert not loaded or other != CIDR


@pytest.mark.asyncio
async def test_a_race_for_one_block_has_one_winner() -> None:
    store = MemoryStore()
    outcomes = await asyncio.gather(
        *(affinities.claim(store, View(), f"n{i}", CIDR, clock) for i in range(5)),
        return_exceptions=True,
    )
    assert [o for o in outcomes if o is True] == [True]
    assert all(isinstance(o, bool | CommitConflict) for o in outcomes)
    owners = [key for key in store.entries if isinstance(key, AffinityKey)]
    assert len(owners) == 1


@pytest.mark.asyncio
async def test_an_empty_block_that_somebody_left_is_taken_over() -> None:
    store = MemoryStore()
    pool = Pool("p", CIDR, 30)
    await put_affinity(store, "n2", CONFIRMED)
    await put_block(store, "host:n2", used=True)
    with pytest.raises(PoolsExhausted):
        await claims.claim_one(store, View(), "n1", [pool], 0, DEFAULT_IPAM_CONFIG, clock)
    await put_block(store, "host:n2")
    early = lambda: NOW - 100 * 10**9  # noqa: E731
    with pytest.raises(PoolsExhausted):
        await claims.claim_one(store, View(), "n1", [pool], 0, DEFAULT_IPAM_CONFIG, early)
    taken = await claims.claim_one(store, View(), "n1", [pool], 0, DEFAULT_IPAM_CONFIG, clock)
    assert taken == CIDR
    assert blocks.owner_host(store.entries[BlockKey(CIDR)].value) == "n1"
    assert AffinityKey("n2", CIDR) not in store.entries


@pytest.mark.asyncio
async def test_claiming_can_be_switched_off() -> None:
    config = IPAMConfig(strict_affinity=True, auto_allocate_blocks=False)
    with pytest.raises(PoolsExhausted, match="auto_allocate_blocks is false"):
        await claims.claim_one(MemoryStore(), View(), "n1", [POOL], 0, config, clock)


@pytest.mark.asyncio
async def test_an_owner_who_was_faster_keeps_its_claim() -> None:
    """IPAM-11: whoever wanted the empty block loses against an address given out meanwhile."""
    store = MemoryStore()
    await put_affinity(store, "n2", CONFIRMED)
    await put_block(store, "host:n2")
    marked = 0

    def rival(changes: Sequence[Change]) -> None:
        nonlocal marked
        state = store.entries[AffinityKey("n2", CIDR)].value.state
        if state == PENDING_DELETION and not marked:
            marked += 1
            entry = store.entries[BlockKey(CIDR)]
            used, _ = blocks.assign(entry.value, 1, "x", {})
            store.entries[BlockKey(CIDR)] = Entry(entry.key, used, entry.revision + 1, entry.raw)

    store.before_commit = rival
    pool = Pool("p", CIDR, 30)
    with pytest.raises(PoolsExhausted):
        await claims.claim_one(store, View(), "n1", [pool], 0, DEFAULT_IPAM_CONFIG, clock)
    assert marked == 1
    assert store.entries[AffinityKey("n2", CIDR)].value.state == CONFIRMED


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-5")
async def test_a_pool_that_was_remade_is_not_claimed_from_as_it_was(etcd: Etcd) -> None:
    """IPAM-14: an allocator with old facts makes no block of the old size among the new ones."""
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 28)
        await put_node(store, "n1")
        old = await read_facts(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 29)
        with pytest.raises(PoolEdited):
            await affinities.claim(
                store, View(), "n1", ip_network("10.0.0.0/28"), pool=old.pools[0]
            )
        assert etcd.keys("/calico/ipam/") == [], "the claim is taken back"
        allocator = NodeAllocator(store, "n1", lambda: old)
        worker = asyncio.create_task(allocator.run())
        granted = await allocator.perform(allocate("web"))
        assert len(granted.addresses) == 1
        (block,) = etcd.keys("/calico/ipam/v2/assignment/")
        assert block.endswith("-29")
        worker.cancel()


class Terse(MemoryStore):
    """Says of a refused commit as much as the Kubernetes datastore does: what was not as asked."""

    async def commit(self, changes: Sequence[Change]) -> int:
        try:
            return await super().commit(changes)
        except CommitConflict as conflict:
            guards = {change.key: change.guard for change in changes}
            revisions = {key: one.revision if one else 0 for key, one in conflict.current.items()}
            told = {k: v for k, v in conflict.current.items() if revisions[k] != guards[k]}
            raise CommitConflict(told) from None


@pytest.mark.asyncio
async def test_a_block_that_came_meanwhile_is_no_edit_of_its_pool() -> None:
    store = Terse()
    await put_pool(store, "p", "10.0.0.0/29", 30)
    await put_node(store, "n1")
    facts = await read_facts(store, "n1")

    def rival(changes: Sequence[Change]) -> None:
        if any(change.key == BlockKey(CIDR) for change in changes) and not store.blocks():
            block = blocks.create(CIDR, "host:n1", rfc3339(NOW), 1)
            store.entries[BlockKey(CIDR)] = Entry(BlockKey(CIDR), block, store.revision, b"")

    store.before_commit = rival
    assert await affinities.claim(store, View(), "n1", CIDR, clock, facts.pools[0])
    assert store.entries[AffinityKey("n1", CIDR)].value.state == CONFIRMED


@pytest.mark.asyncio
async def test_one_node_completes_its_claims_once_at_a_time() -> None:
    """What is put back and what a pod asks for meet the same claim without its block."""
    inside = 0

    class Slow(Terse):
        async def commit(self, changes: Sequence[Change]) -> int:
            nonlocal inside
            assert not inside, "two write at a time"
            inside += 1
            for _ in range(20):
                await asyncio.sleep(0)
            inside -= 1
            return await super().commit(changes)

    store = Slow()
    await put_pool(store, "p", "10.0.0.0/29", 30)
    await put_node(store, "n1")
    await put_affinity(store, "n1", CONFIRMED)
    allocator = NodeAllocator(store, "n1")
    worker = asyncio.create_task(allocator.run())
    back = replace(allocate("back"), fixed=(ip_address("10.0.0.1"),), restores=True)
    given, _ = await asyncio.gather(
        allocator.perform(allocate("new")), allocator.allocate_apart(back, None)
    )
    assert {str(one.address) for one in blocks.allocations(store.blocks()[BlockKey(CIDR)])} == {
        "10.0.0.1",
        *map(str, given.addresses),
    }
    worker.cancel()


@pytest.mark.asyncio
async def test_a_locked_datastore_is_not_written_at_start() -> None:
    store = MemoryStore()
    await put_node(store, "n1")
    await put_pool(store, "p", "10.0.0.0/29", 30)
    await put_affinity(store, "n1", PENDING)
    key = ResourceKey("ClusterInformation", "default")
    for ready in (False, True):
        spec = ClusterInformationSpec(datastoreReady=ready)
        info = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        await store.commit([Put(key, info)])
        before = store.commits
        await NodeAllocator(store, "n1").warm()
        assert (store.commits > before) is ready


@pytest.mark.asyncio
@pytest.mark.parametrize("borrows", [True, False])
async def test_a_look_at_all_blocks_of_a_cluster_lets_others_have_their_turn(borrows: bool) -> None:
    """The daemon answers other pods meanwhile; nothing in memory waits by itself."""
    store, turns = MemoryStore(), 0
    pool = Pool("p", ip_network("10.0.0.0/20"), 30)
    for cidr in pool.cidr.subnets(new_prefix=30):
        await put_block(store, "host:n2", cidr, used=True)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    if borrows:
        assert len(await claims.borrowable(store, View(), "n1", [pool])) == 1024
    else:
        with pytest.raises(PoolsExhausted):
            await claims.claim_one(store, View(), "n1", [pool], 0, DEFAULT_IPAM_CONFIG, clock)
    beside.cancel()
    assert turns >= 4
