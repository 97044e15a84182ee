"""Each look of the collector counts, and a doubt about one address keeps all of its handle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.allocator import claim_release
from ipam.allocator.view import View
from ipam.collector.collector import Collector
from ipam.collector.leak_evidence import Held, LeakEvidence, Suspect, judge
from ipam.collector.release_plan import plan_release
from ipam.records import blocks
from libcalico.datastore.interface import Entry, Put
from libcalico.model import BlockAffinity
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.test_collector import (
    CIDR,
    GONE,
    HANDLE,
    POD,
    WEP,
    block_with,
    endpoint,
    stored,
)

LOOKS = 3


async def swept(evidence: Sequence[LeakEvidence], foreign: Sequence[str]) -> MemoryStore:
    """What is stored after a sweep that sees these, one after the other."""
    store = await stored()
    seen, asked = iter(evidence), iter(foreign)

    async def observe() -> LeakEvidence:
        return next(seen)

    async def who() -> str:
        return next(asked)

    await Collector(store, "n1", observe, foreign=who, gap=0).sweep()
    return store


@pytest.mark.parametrize("look", range(LOOKS))
def test_who_is_seen_alive_at_one_of_the_looks_keeps_its_address(look: int) -> None:
    """IPAM-23, and the look with the container's lock: an ADD may have come since the second."""
    evidence = [GONE] * LOOKS
    evidence[look] = replace(GONE, interfaces=frozenset({"cali1"}))
    store = asyncio.run(swept(evidence, [""] * LOOKS))
    assert {HandleKey(HANDLE), WEP} <= store.entries.keys()
    assert HANDLE not in asyncio.run(swept([GONE] * LOOKS, [""] * LOOKS)).handles()


@pytest.mark.parametrize("look", range(LOOKS))
def test_a_machine_that_is_not_the_node_collects_nothing_at_any_look(look: int) -> None:
    """IPAM-26."""
    foreign = [""] * LOOKS
    foreign[look] = "another machine has this name"
    store = asyncio.run(swept([GONE] * LOOKS, foreign))
    assert {HandleKey(HANDLE), WEP} <= store.entries.keys()


@pytest.mark.parametrize("doubtful_first", [False, True])
@pytest.mark.parametrize(
    "doubt",
    [{"node": "n2"}, {"type": "vxlanTunnelAddress"}, {"vmi-name": "vm"}, {"sequence": ""}],
    ids=lambda doubt: next(iter(doubt)),
)
def test_a_doubt_about_one_address_keeps_all_of_the_handle(
    doubt: dict[str, str], doubtful_first: bool
) -> None:
    """IPAM-20, IPAM-21: its addresses go together or stay together."""
    both = [POD, {**POD, **doubt}]
    block = blocks.create(CIDR, "host:n1", None, 100)
    for attributes in reversed(both) if doubtful_first else both:
        block, _ = blocks.assign(block, 1, HANDLE, attributes)
    if "sequence" in doubt:
        block.sequenceNumberForAllocation.pop("0" if doubtful_first else "1")
    found = judge("n1", [Entry(BlockKey(CIDR), block, 7, b"")], [endpoint()], GONE)
    assert not found.dead
    assert HANDLE in found.kept


@pytest.mark.parametrize("kind", [{}, {"pod": "web"}, {"namespace": "default"}])
def test_without_an_endpoint_each_address_must_be_a_pods(kind: dict[str, str]) -> None:
    """The list of sandboxes knows nothing of another tool's container."""
    block = block_with().value
    block, _ = blocks.assign(block, 1, HANDLE, {"node": "n1", **kind})
    assert not judge("n1", [Entry(BlockKey(CIDR), block, 7, b"")], [], GONE).dead


@pytest.mark.parametrize("other", ["cali2", ""])
def test_one_cable_that_stands_or_has_no_name_keeps_a_container(other: str) -> None:
    """IPAM-22."""
    second = endpoint(interface=other, address="10.0.0.1")
    second = msgspec.structs.replace(
        second, key=ResourceKey("WorkloadEndpoint", "n1-k8s-web-net1", "default")
    )
    seen = replace(GONE, interfaces=frozenset({"cali2"}))
    for pair in ([endpoint(), second], [second, endpoint()]):
        assert not judge("n1", [block_with()], pair, seen).dead
    assert judge("n1", [block_with()], [endpoint()], seen).dead, "else this shows nothing"


def test_a_torn_block_is_not_judged() -> None:
    torn = msgspec.structs.replace(block_with().value, unallocated=[0, 1])
    assert not judge("n1", [Entry(BlockKey(CIDR), torn, 7, b"")], [endpoint()], GONE).dead


@pytest.mark.parametrize("second", ["another handle", "free", "no block"])
def test_a_suspect_of_whom_one_address_changed_keeps_the_others(second: str) -> None:
    """IPAM-24, IPAM-25: all of it goes, or nothing."""
    far = ip_network("10.0.0.8/29")
    held = frozenset(
        {Held(ip_address("10.0.0.0"), 100, CIDR), Held(ip_address("10.0.0.8"), 100, far)}
    )
    there = blocks.create(far, "host:n1", None, 100)
    if second == "another handle":
        there, _ = blocks.assign(there, 1, "net.other", POD)
    view = View()
    view.learn({BlockKey(CIDR): block_with(), HandleKey(HANDLE): None})
    view.learn({BlockKey(far): Entry(BlockKey(far), there, 8, b"")})
    if second == "no block":
        view.learn({BlockKey(far): None})
    suspect = Suspect(HANDLE, "c", held, {}, "dead")
    made = plan_release(view, suspect)
    assert not made.missing
    assert not made.changes


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("owner", ["host:n2", None])
def test_a_claim_on_anothers_block_goes_alone(owner: str | None, used: bool) -> None:
    """IPAM-11: neither deleted nor orphaned, the block is its owner's."""

    async def story() -> None:
        store, claim, key = MemoryStore(), AffinityKey("n1", CIDR), BlockKey(CIDR)
        block = blocks.create(CIDR, owner, None, 5)
        if used:
            block, _ = blocks.assign(block, 1, "net.web", {})
        await store.commit([Put(key, block), Put(claim, BlockAffinity(state="confirmed"))])
        before = store.entries[key]
        entry = await store.get(claim)
        assert entry is not None
        assert not await claim_release.release(store, entry, await store.get(key))
        assert store.entries == {key: before}

    asyncio.run(story())
