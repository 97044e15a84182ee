"""A plan compares whatever it writes or deletes: a rival that was faster loses no address (IPAM-6).

An address that somebody was given between the look and the commit would vanish with a block or a
handle that is deleted, or written over, without being compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from ipaddress import ip_network

import msgspec
import pytest

from ipam.allocator import claim_release
from ipam.allocator.cooling import sweep_cooled
from ipam.allocator.planner import Sources, plan
from ipam.allocator.release import release_by_handle
from ipam.allocator.view import View
from ipam.collector.leak_evidence import Held, Suspect
from ipam.collector.release_plan import plan_release
from ipam.records import blocks, handles
from ipam.records.block_editor import release_stamp
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import Change, CommitConflict, Delete, Entry, Put
from libcalico.model import Block, BlockAffinity, IPAMConfig, Metadata, Node, WorkloadEndpoint
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, Key, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool, release

CIDR = ip_network("10.0.0.0/30")
BLOCK, HANDLE = BlockKey(CIDR), HandleKey("net.web")
ENDPOINT = ResourceKey("WorkloadEndpoint", "n1-k8s-web-eth0", "default")
CLAIM = AffinityKey("n1", CIDR)


def block_of(owner: str | None, *holders: str, cooled: bool = False) -> Block:
    """Each holder has one address; with `cooled` the first one gave it back long ago."""
    block = blocks.create(CIDR, owner, None, 5)
    for holder in holders:
        block, _ = blocks.assign(block, 1, holder, {"node": "n1"})
    if cooled:
        stamp = release_stamp(time.time_ns() - 10**12, 1)
        block, _ = blocks.release(block, [CIDR[0]], released_at=stamp)
    return block


def revisions(changes: Iterable[Change]) -> dict[Key, tuple[type, int | None]]:
    return {change.key: (type(change), change.guard) for change in changes}


@pytest.mark.parametrize(
    ("owner", "holders", "block", "handle"),
    [
        (None, ["net.web"], Delete, Delete),
        (None, ["net.web", "other"], Put, Delete),
        ("host:n1", ["net.web"], Put, Delete),
    ],
)
@pytest.mark.parametrize("more", [0, 2])
def test_releases_compare_block_handle_and_endpoint(
    owner: str | None, holders: Sequence[str], block: type, handle: type, more: int
) -> None:
    """`more`: addresses that the handle holds in another block, and keeps."""
    there = handles.add(None, str(CIDR), 1)
    if more:
        there, handle = handles.add(there, "10.0.9.0/30", more), Put
    view = View()
    found: dict[Key, object] = {
        BLOCK: block_of(owner, *holders),
        HANDLE: there,
        ENDPOINT: WorkloadEndpoint(metadata=Metadata(name=ENDPOINT.name)),
    }
    for number, (key, value) in enumerate(found.items(), 7):
        view.learn({key: Entry(key, value, number, b"{}" if key == ENDPOINT else b"")})
    other = BlockKey(ip_network("10.0.9.0/30"))
    suspect = Suspect("net.web", "web", frozenset({Held(CIDR[0], 5, CIDR)}), {ENDPOINT: 9}, "dead")
    wanted = {BLOCK: (block, 7), HANDLE: (handle, 8)}
    assert revisions(plan_release(view, suspect).changes) == wanted | {ENDPOINT: (Delete, 9)}
    if not more:
        view.learn({other: None})
        made = plan(view, [release("web")], [[]], Sources("n1"))
        view.learn(dict.fromkeys(made.missing))
        found_here = revisions(plan(view, [release("web")], [[]], Sources("n1")).changes)
        assert found_here.items() >= wanted.items()


def test_a_suspect_gives_back_only_what_its_own_handle_holds() -> None:
    view = View()
    for key, value in ((BLOCK, block_of("host:n1", "other")), (HANDLE, None)):
        view.learn({key: Entry(key, value, 7, b"") if value else None})
    suspect = Suspect("net.web", "web", frozenset({Held(CIDR[0], 5, CIDR)}), {}, "dead")
    assert not plan_release(view, suspect).changes


class Rival(MemoryStore):
    """Writes the block anew right before the commit that deletes or writes it first."""

    def __init__(self) -> None:
        super().__init__()
        self.new: Block | None = None
        self.before_commit = self._act

    def _act(self, changes: Sequence[Change]) -> None:
        if self.new is not None and any(change.key == BLOCK for change in changes):
            self.revision += 1
            self.entries[BLOCK] = Entry(BLOCK, self.new, self.revision, b"")
            self.new = None

    async def begin(self, block: Block) -> None:
        await self.commit([Put(BLOCK, block)])

    @property
    def held(self) -> dict[IPAddress, str]:
        found = blocks.allocations(self.blocks()[BLOCK])
        return {one.address: one.handle_id for one in found}


@pytest.mark.parametrize("owner", [None, "host:n1"])
def test_the_sweep_of_what_cooled_keeps_what_a_rival_gave_out(owner: str | None) -> None:
    async def story() -> None:
        store = Rival()
        await store.commit([Put(IPAMConfigKey(), IPAMConfig(ipCooldownSeconds=1))])
        await store.begin(block_of(owner, "net.old", cooled=True))
        store.new = block_of(owner, "net.new")
        assert await sweep_cooled(store) == 0
        assert list(store.held.values()) == ["net.new"]

    asyncio.run(story())


@pytest.mark.parametrize("before", [[], ["net.a"]])
def test_a_claim_given_up_keeps_what_a_rival_gave_out(before: Sequence[str]) -> None:
    async def story() -> None:
        store = Rival()
        await store.begin(block_of("host:n1", *before))
        await store.commit([Put(CLAIM, BlockAffinity(state="confirmed"))])
        claim, block = await store.get(CLAIM), await store.get(BLOCK)
        assert claim is not None
        store.new = block_of("host:n1", *before, "net.new")
        with pytest.raises(CommitConflict):
            await claim_release.release(store, claim, block)
        assert list(store.held.values()) == [*before, "net.new"]

    asyncio.run(story())


def test_only_an_empty_block_of_a_pool_that_left_its_node_is_given_up() -> None:
    async def story() -> None:
        store = MemoryStore()
        await put_pool(store, "p", "10.0.0.0/24", 30, nodeSelector="has(nothing)")
        await store.commit([Put(ResourceKey("Node", "n1"), Node(metadata=Metadata(name="n1")))])
        await store.commit([Put(CLAIM, BlockAffinity(state="confirmed"))])
        await store.commit([Put(BLOCK, block_of("host:n1", "net.web", "net.other"))])
        for name in ("net.web", "net.other"):
            await store.commit([Put(HandleKey(name), handles.add(None, str(CIDR), 1))])
        await release_by_handle(store, "net.web")
        assert store.blocks()[BLOCK].affinity == "host:n1", "its owner works in it"
        await release_by_handle(store, "net.other")
        assert BLOCK not in store.blocks()

    asyncio.run(story())


@pytest.mark.parametrize("cidr", ["10.0.0.8/29", "fd00::8/125"])
def test_every_reserved_address_of_a_block_is_passed_and_no_other(cidr: str) -> None:
    network = ip_network(cidr)
    for ordinal, address in enumerate(network):
        reserved = ip_network(str(address))
        assert set(blocks.reserved_ordinals(network, [reserved])) == {ordinal}
        others = [ip_network(network[0]), ip_network(network[-1]), reserved]
        assert set(blocks.reserved_ordinals(network, others)) == {0, 7, ordinal}
    for outside in (network[0] - 1, network[-1] + 1):
        assert not blocks.reserved_ordinals(network, [ip_network(str(outside))])
    whole = range(blocks.size(network))
    assert set(blocks.reserved_ordinals(network, [network.supernet()])) == set(whole)


def test_an_address_named_twice_is_queued_once() -> None:
    block = block_of("host:n1", "net.web")
    freed, addresses = blocks.release(block, [CIDR[0], CIDR[0]])
    assert addresses == [CIDR[0]]
    assert freed.unallocated == [1, 2, 3, 0]
    assert blocks.problem(freed) == ""


def test_an_address_that_is_queued_while_it_is_held_is_queued_once_after_its_release() -> None:
    """A block that others tore; two pods would get the address."""
    torn = msgspec.structs.replace(block_of("host:n1", "net.web"), unallocated=[1, 0, 2, 3])
    freed, _ = blocks.release(torn, [CIDR[0]])
    assert freed.unallocated == [1, 0, 2, 3]
    assert blocks.problem(freed) == ""
