"""What an operator deletes under a living node is put back by it; no address is given twice.

Each test deletes with another client of the real etcd, as `etcdctl del` would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Network, ip_network
from typing import Any, cast

import msgspec
import pytest

from ipam.admin import library
from ipam.admin.check import check
from ipam.admin.tunnels import VXLAN
from ipam.allocator import affinities, claim_repair, hosts, stored_claims
from ipam.allocator.facts import read_facts
from ipam.allocator.requests import Allocate, Companion, Release
from ipam.allocator.restoration import Use
from ipam.allocator.service import NodeAllocator
from ipam.allocator.view import OwnNode, View, at_home
from ipam.records import blocks, snapshot
from ipam.records.blocks import IPAddress
from ipam.records.errors import BlockExpected, BlockInDoubt, Contention, PoolEdited, PoolsExhausted
from libcalico.datastore.interface import ABSENT, Change, Datastore, Delete, Entry, Put
from libcalico.errors import DatastoreFull, DatastoreUnavailable
from libcalico.model import (
    BlockAffinity,
    ClusterInformation,
    ClusterInformationSpec,
    Metadata,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPNetwork, Key, ResourceKey
from libcalico.model.resources.ipam import CONFIRMED
from libcalico.process.backoff import Backoff
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool, serving
from tests.support.etcd import Etcd
from tests.support.patience import HANG

CIDR = ip_network("10.0.0.0/28")
CLAIM, BLOCK = AffinityKey("n1", CIDR), BlockKey(CIDR)


def endpoint(node: str, pod: str) -> ResourceKey:
    return ResourceKey("WorkloadEndpoint", f"{node}-k8s-{pod}-eth0", "default")


def start(pod: str, node: str = "n1") -> Allocate:
    """A pod's ADD, with an endpoint as the daemon writes it."""
    key = endpoint(node, pod)

    def change(current: Entry | None, addresses: Sequence[IPAddress]) -> Put:
        spec = WorkloadEndpointSpec(
            node=node, pod=pod, containerID=pod, ipNetworks=[f"{a}/32" for a in addresses]
        )
        value = WorkloadEndpoint(metadata=Metadata(key.name, namespace="default"), spec=spec)
        return Put(key, value, current.revision if current else ABSENT, current)

    return Allocate(
        f"net.{pod}",
        {"node": node, "pod": pod, "namespace": "default"},
        companion=Companion(key, change, lambda _: []),
    )


def stop(pod: str, node: str = "n1") -> Release:
    key = endpoint(node, pod)

    def change(current: Entry | None, _: Sequence[IPAddress]) -> Delete | None:
        return Delete(key, current.revision) if current else None

    return Release(f"net.{pod}", companion=Companion(key, change))


async def world(store: Datastore, size: int = 28) -> None:
    await put_pool(store, "p", "10.0.0.0/28" if size == 28 else "10.0.0.0/27", size)
    for name in ("n1", "n2"):
        await put_node(store, name)


async def run(allocator: NodeAllocator, *pods: str, node: str = "n1") -> list[IPAddress]:
    granted = await asyncio.gather(*(allocator.perform(start(pod, node)) for pod in pods))
    return [one.addresses[0] for one in granted]


async def delete(store: Datastore, *keys: Key) -> None:
    for key in keys:
        assert await store.get(key) is not None, key
        await store.commit([Delete(key)])


async def held(store: Datastore) -> dict[IPAddress, str]:
    entry = await store.get(BLOCK)
    assert entry is not None
    assert blocks.problem(entry.value) == ""
    return {one.address: one.handle_id for one in blocks.allocations(entry.value)}


async def put_right(store: Datastore) -> None:
    """Claim and block name each other, and no address has two users or none that is told."""
    claim = await store.get(CLAIM)
    assert claim is not None
    assert claim.value.state in (CONFIRMED, "")
    assert check(await snapshot.read(store)).problems == ()


async def until_restored(allocator: NodeAllocator, count: int) -> None:
    async with asyncio.timeout(HANG):
        while allocator.restored < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_deleted_claim_is_written_again_before_an_address_is_given(
    etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await run(allocator, "a", "b")
        await delete(store, CLAIM)
        allocator.claim_lost(CIDR)
        await run(allocator, "c")
        assert allocator.restored == 1
        await put_right(store)
        assert "the claim was deleted" in caplog.text
        # Said again, and of a block that is no more: nothing to do.
        before = etcd.revision()
        allocator.claim_lost(CIDR)
        allocator.claim_lost(cast(IPv4Network, ip_network("10.9.0.0/28")))
        await allocator.find_lost_claims()
        await run(allocator, "d")
        assert (allocator.restored, etcd.revision()) == (1, before + 1)


@pytest.mark.asyncio
async def test_a_claim_that_goes_again_while_it_is_written_is_written_again(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second deletion is told before the first one's commit is answered."""
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await run(allocator, "a")
        restore, again = allocator._worker.restore, False

        async def slow(cidr: IPNetwork) -> bool:
            nonlocal again
            done = await restore(cidr)
            if not again:
                again = True
                await delete(store, CLAIM)
                allocator.claim_lost(CIDR)
            return done

        monkeypatch.setattr(allocator._worker, "restore", slow)
        await delete(store, CLAIM)
        allocator.claim_lost(CIDR)
        await until_restored(allocator, 2)
        await put_right(store)


@pytest.mark.asyncio
async def test_a_claim_that_went_while_the_daemon_did_not_run_is_found(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await world(store)
        async with serving(store, "n1") as allocator:
            await run(allocator, "a")
        await delete(store, CLAIM)
        async with serving(store, "n1") as allocator:
            await allocator.warm()
            await allocator.find_lost_claims()
            await until_restored(allocator, 1)
            await put_right(store)
            assert len({*await run(allocator, "b"), *await held(store)}) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("claim_too", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_deleted_block_gives_no_living_pods_address_away(
    etcd: Etcd, claim_too: bool, restarted: bool
) -> None:
    """Neither the owner's pods', nor borrowed ones, nor tunnels'; and each can be given back."""
    async with etcd.connect() as store, etcd.connect() as other:
        await world(store)
        async with serving(store, "n1") as allocator, serving(other, "n2") as borrower:
            await put_pool(store, "p", "10.0.0.0/28", 28, vxlanMode="Always", ipipMode="Never")
            mine = await run(allocator, "a", "b", "c")
            (lent,) = await run(borrower, "d", node="n2")
            tunnel = await library.ensure_tunnel_address(other, "n1", VXLAN)
            assert tunnel is not None
            before = await held(store)
            assert before.keys() == {*mine, lent, tunnel}
            keys = (CLAIM, BLOCK) if claim_too else (BLOCK,)
            if not restarted:
                await delete(store, *keys)
                if claim_too:
                    allocator.claim_lost(CIDR)
                fresh = await run(allocator, "e")
                await end(store, allocator, borrower, before, fresh)
        if restarted:
            await delete(store, *keys)
            async with serving(store, "n1") as allocator, serving(other, "n2") as borrower:
                await allocator.warm()
                fresh = await run(allocator, "e")
                if claim_too:
                    # Of its own node alone the allocator knows: the claim was not known any more.
                    before.pop(lent)
                    fresh.append(lent)
                await end(store, allocator, borrower, before, fresh)


async def end(
    store: Datastore,
    allocator: NodeAllocator,
    borrower: NodeAllocator,
    before: dict[IPAddress, str],
    fresh: list[IPAddress],
) -> None:
    assert not {*before} & {*fresh}, "an address of a living pod was given out again"
    assert before.items() <= (await held(store)).items(), "with their handles"
    if len(fresh) == 1:
        await put_right(store)
    for pod in ("a", "b", "c", "e"):
        await allocator.perform(stop(pod))
    await borrower.perform(stop("d", "n2"))
    left = await held(store)
    assert set(left.values()) <= {VXLAN.handle_id("n1")}


@pytest.mark.asyncio
async def test_a_tunnels_address_makes_no_block_without_the_nodes_pods(etcd: Etcd) -> None:
    """Who asks for one, beside the daemon, does not know a pod whose endpoint was deleted too."""
    async with etcd.connect() as store:
        await world(store)
        async with serving(store, "n1") as allocator:
            (mine,) = await run(allocator, "a")
        await delete(store, BLOCK, endpoint("n1", "a"))
        await put_pool(store, "p", "10.0.0.0/28", 28, vxlanMode="Always", ipipMode="Never")
        with pytest.raises(PoolsExhausted):
            await library.ensure_tunnel_address(store, "n1", VXLAN)
        assert await store.get(BLOCK) is None
        async with serving(store, "n1") as allocator:
            allocator.own.remembered = lambda _: [Use(mine, "net.a", {})]
            (other,) = await run(allocator, "b")
            tunnel = await library.ensure_tunnel_address(store, "n1", VXLAN)
            assert len({mine, other, tunnel}) == 3
            assert (await held(store))[mine] == "net.a"


@pytest.mark.asyncio
async def test_nobody_else_claims_a_block_that_was_deleted_under_its_owner(etcd: Etcd) -> None:
    """The pool has this one block, so another node's next pod would get it, and its addresses."""
    async with etcd.connect() as store, etcd.connect() as other:
        await world(store)
        async with serving(store, "n1") as allocator, serving(other, "n2") as neighbour:
            mine = await run(allocator, "a", "b")
            await delete(store, BLOCK)
            with pytest.raises(PoolsExhausted):
                await run(neighbour, "d", node="n2")
            with pytest.raises(BlockExpected, match="deleted under host:n1, whose claim stands"):
                await neighbour.perform(replace(start("d", "n2"), fixed=(mine[0],)))
            fresh = await run(allocator, "c")
            theirs = await run(neighbour, "d", node="n2")
            assert len({*mine, *fresh, *theirs}) == 4
            await put_right(store)


@pytest.mark.asyncio
@pytest.mark.parametrize("crash", [0, 1])
async def test_a_claim_stays_confirmed_while_its_block_is_made_again(crash: int) -> None:
    """A pending one says nothing of an owner: another node would claim the block, and a tunnel's
    allocator would make it without the pods that are only remembered.
    """
    store = MemoryStore()
    await affinities.claim(store, View(), "n1", CIDR)
    await store.commit([Delete(BLOCK)])
    states = []

    def look(_: Sequence[Change]) -> None:
        states.append(store.entries[CLAIM].value.state)
        if crash:
            raise DatastoreUnavailable("a crash")

    store.before_commit = store.after_commit = look
    with suppress(DatastoreUnavailable):
        await affinities.claim(store, View(OwnNode(foreign=at_home)), "n1", CIDR)
    store.before_commit = store.after_commit = lambda _: None
    assert set(states) == {CONFIRMED}
    if crash:
        with pytest.raises(BlockExpected):
            await affinities.claim(store, View(), "n2", CIDR)
        with pytest.raises(BlockInDoubt, match="calico-cni alone"):
            await affinities.claim(store, View(), "n1", CIDR)
        assert BLOCK not in store.entries


@pytest.mark.asyncio
async def test_an_edit_of_the_pool_takes_no_claim_away_that_stood() -> None:
    store = MemoryStore()
    await world(store)
    (pool,) = (await read_facts(store, "n1")).pools
    await affinities.claim(store, View(), "n1", CIDR, pool=pool)
    await store.commit([Delete(BLOCK)])
    await put_pool(store, "p", "10.0.0.0/28", 28, natOutgoing=True)
    with pytest.raises(PoolEdited):
        await affinities.claim(store, View(OwnNode(foreign=at_home)), "n1", CIDR, pool=pool)
    assert store.entries[CLAIM].value.state == CONFIRMED


@pytest.mark.asyncio
async def test_one_claim_that_cannot_be_written_keeps_no_other_from_it(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipam.allocator.service.RETRY_SECONDS", 0.05)
    """But where the datastore takes nothing at all, one try is enough: requests wait for it."""
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await put_pool(store, "p", "10.0.0.0/27", 28)
        await put_node(store, "n1")
        await run(allocator, *(f"p{number}" for number in range(20)))
        claimed = [one.key for one in await stored_claims.claims_of(store, "n1")]
        assert len(claimed) == 2
        refused = min((one.cidr for one in claimed if isinstance(one, AffinityKey)), key=str)
        restore = claim_repair.restore

        async def doubtful(store: Any, view: Any, host: str, cidr: Any, clock: Any) -> Any:
            if cidr == refused:
                raise BlockInDoubt(f"{cidr} is in doubt", cidr)
            return await restore(store, view, host, cidr, clock)

        monkeypatch.setattr(claim_repair, "restore", doubtful)
        await delete(store, *claimed)
        for one in claimed:
            assert isinstance(one, AffinityKey)
            allocator.claim_lost(one.cidr)
        await until_restored(allocator, 1)
        monkeypatch.setattr(claim_repair, "restore", restore)
        await until_restored(allocator, 2)
        tried = []

        async def full(store: Any, view: Any, host: str, cidr: Any, clock: Any) -> Any:
            tried.append(cidr)
            raise DatastoreFull("no space")

        monkeypatch.setattr(claim_repair, "restore", full)
        monkeypatch.setattr(allocator, "_again", Backoff(HANG, HANG))
        for one in claimed:
            assert isinstance(one, AffinityKey)
            allocator.claim_lost(one.cidr)
        await run(allocator, "after")
        assert len(tried) == 1


@pytest.mark.asyncio
async def test_a_block_that_may_have_been_made_anew_is_told_of() -> None:
    """Handles of its pods may be gone, and no other program looks for one on Kubernetes."""
    told = []

    def away(_: Sequence[Change]) -> None:
        if BLOCK in store.entries:
            raise DatastoreUnavailable("no answer")

    for keys in ([BLOCK], [CLAIM, BLOCK]):
        store = MemoryStore()
        await world(store)
        async with serving(store, "n1") as allocator:
            await run(allocator, "a")
        await delete(store, *keys)
        store.after_commit = away
        view = View(OwnNode(foreign=at_home, made_again=lambda: told.append(1)))
        makes: Any = affinities.claim if len(keys) == 1 else claim_repair.restore
        with pytest.raises(DatastoreUnavailable):
            await makes(store, view, "n1", CIDR)
    assert told == [1, 1]


@pytest.mark.asyncio
@pytest.mark.parametrize("claim", ["gone", "back"])
@pytest.mark.parametrize(
    ("owner", "runs", "expected"), [("n2", True, 1), ("n2", False, 0), ("none", True, 0)]
)
async def test_a_block_that_another_node_made_anew_is_told_of_where_pods_here_have_addresses(
    claim: str, owner: str, runs: bool, expected: int
) -> None:
    """It lacks what runs here. One without an owner was given up, and has it still."""
    told = []
    store = MemoryStore()
    await world(store)
    async with serving(store, "n1") as allocator:
        (address,) = await run(allocator, "a")
    if owner == "none":
        await hosts.release_affinity(store, CIDR, "n1")
    else:
        await delete(store, CLAIM, BLOCK)
        async with serving(store, "n2") as other:
            await run(other, "b", node="n2")
    if claim == "back":
        await store.commit([Put(CLAIM, BlockAffinity(state=CONFIRMED))])
    uses = [Use(address, "net.a", {"node": "n1"})] if runs else []
    own = OwnNode(lambda _: uses, at_home, lambda: told.append(1))
    state = await claim_repair.restore(store, View(own), "n1", CIDR)
    assert (state, len(told)) == (claim_repair.State.NOT_OURS, expected)


@pytest.mark.asyncio
@pytest.mark.parametrize("runs", [False, True])
async def test_a_block_that_went_with_claim_and_endpoints_is_told_of_and_not_written(
    runs: bool,
) -> None:
    """The node may be about to be removed, and its Node goes last."""
    told: list[str] = []
    store = MemoryStore()
    await world(store)
    async with serving(store, "n1") as allocator:
        (address,) = await run(allocator, "a")
    await delete(store, CLAIM, BLOCK, endpoint("n1", "a"))
    uses = [Use(address, "net.a", {"node": "n1"})] if runs else []
    view = View(
        OwnNode(lambda _: uses, at_home, lambda: told.append("made"), lambda: told.append("gone"))
    )
    assert await claim_repair.restore(store, view, "n1", CIDR) is claim_repair.State.NOT_OURS
    assert told == ["gone"] * runs
    assert await store.get(BLOCK) is None


@pytest.mark.asyncio
async def test_an_empty_block_given_up_with_its_claim_stays_given_up(etcd: Etcd) -> None:
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await run(allocator, "a")
        await allocator.perform(stop("a"))
        await delete(store, BLOCK, CLAIM)
        before = etcd.revision()
        allocator.claim_lost(CIDR)
        await allocator.perform(Release("net.nothing"))
        assert (allocator.restored, etcd.revision()) == (0, before)


@pytest.mark.asyncio
async def test_a_block_that_was_orphaned_or_has_another_owner_is_left_to_it(etcd: Etcd) -> None:
    """`calicoctl ipam` and the deletion of a pool take the owner first, then the claim."""
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store, 29)
        await run(allocator, "a")
        (cidr,) = [k.cidr for k in (BlockKey(ip_network(f"10.0.0.{n}/29")) for n in (0, 8, 16, 24))
                   if await store.get(k)]  # fmt: skip
        await hosts.release_affinity(store, cidr, "n1")
        allocator.claim_lost(cidr)
        await allocator.perform(Release("net.nothing"))
        assert allocator.restored == 0
        assert await store.get(AffinityKey("n1", cidr)) is None


@pytest.mark.asyncio
async def test_while_the_datastore_is_locked_nothing_is_written(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipam.allocator.service.RETRY_SECONDS", 0.05)
    key = ResourceKey("ClusterInformation", "default")

    async def lock(store: Datastore, ready: bool) -> None:
        spec = ClusterInformationSpec(datastoreReady=ready)
        value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        await store.commit([Put(key, value)])

    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await run(allocator, "a")
        await lock(store, False)
        await delete(store, CLAIM)
        before = etcd.revision()
        allocator.claim_lost(CIDR)
        await allocator.perform(Release("net.nothing"))
        assert etcd.revision() == before
        await lock(store, True)
        await until_restored(allocator, 1)
        await put_right(store)


@pytest.mark.asyncio
async def test_a_claim_on_a_block_that_others_keep_writing_is_tried_again() -> None:
    """It is as gone as before: not another's."""
    store = MemoryStore()
    await world(store)
    async with serving(store, "n1") as allocator:
        await run(allocator, "a")

    def rival(_: Sequence[Change]) -> None:
        store.revision += 1
        store.entries[BLOCK] = msgspec.structs.replace(
            store.entries[BLOCK], revision=store.revision
        )

    await delete(store, CLAIM)
    store.before_commit = rival
    with pytest.raises(Contention):
        await claim_repair.restore(store, View(), "n1", CIDR)
    store.before_commit = lambda _: None
    assert await claim_repair.restore(store, View(), "n1", CIDR) is claim_repair.State.RESTORED


@pytest.mark.asyncio
@pytest.mark.parametrize("released", [False, True])
async def test_a_release_of_the_claim_that_is_faster_wins(released: bool) -> None:
    """The block has its owner and the claim stands, or neither."""
    store = MemoryStore()
    await affinities.claim(store, View(), "n1", CIDR)
    used, _ = blocks.assign(store.entries[BLOCK].value, 1, "h", {"node": "n1"})
    await store.commit([Put(BLOCK, used), Delete(CLAIM)])
    stored = store.entries[BLOCK]

    def release(_: object) -> None:
        store.before_commit = lambda _: None
        orphan = msgspec.structs.replace(blocks.written(used, used), affinity=None)
        store.entries[BLOCK] = Entry(BLOCK, orphan, stored.revision + 100, b"")

    if released:
        store.before_commit = release
    state = await claim_repair.restore(store, View(), "n1", CIDR)
    assert state is (claim_repair.State.NOT_OURS if released else claim_repair.State.RESTORED)
    assert store.entries[BLOCK].value.owner == (None if released else "host:n1")
    assert (CLAIM in store.entries) != released


@pytest.mark.asyncio
@pytest.mark.parametrize("owner", ["host:n1", "host:n2", None, "no block"])
async def test_a_claim_that_is_there_after_all_is_left_as_it_is(owner: str | None) -> None:
    """It counts as the node's own unless the block has another owner by now."""
    store = MemoryStore()
    await affinities.claim(store, View(), "n1", CIDR)
    if owner == "no block":
        await store.commit([Delete(BLOCK)])
    else:
        block = msgspec.structs.replace(store.entries[BLOCK].value, affinity=owner)
        await store.commit([Put(BLOCK, block)])
    before = dict(store.entries)
    state = await claim_repair.restore(store, View(), "n1", CIDR)
    ours = owner in ("host:n1", "no block")
    assert state is (claim_repair.State.STANDS if ours else claim_repair.State.NOT_OURS)
    assert store.entries == before


@pytest.mark.asyncio
async def test_a_deleted_handle_or_endpoint_frees_no_address(etcd: Etcd) -> None:
    """The address of a running pod stays its own; DEL of a pod whose handle went leaks it."""
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        mine = await run(allocator, "a", "b")
        await delete(store, HandleKey("net.a"), endpoint("n1", "b"))
        fresh = await run(allocator, *(f"p{number}" for number in range(14)))
        assert not {*mine} & {*fresh}
        with pytest.raises(Exception, match="all are in use"):
            await run(allocator, "one-too-many")
        assert (await allocator.perform(stop("a"))).addresses == ()
        assert mine[0] in await held(store), "the collector's"
        assert (await allocator.perform(stop("b"))).addresses == (mine[1],)
