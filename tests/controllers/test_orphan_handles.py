"""Handles without addresses are deleted after two looks, unchanged, and no other one."""

from __future__ import annotations

import asyncio

from controllers.addresses.orphan_handles import OrphanHandles
from libcalico.datastore.interface import ABSENT, Put
from libcalico.model import Block, Handle
from libcalico.model.keys import HandleKey
from libcalico.model.resources.ipam import Attribute
from tests.ipam.memory import MemoryStore

PERIOD = 900.0


def handle(store: MemoryStore, name: str, guard: int = ABSENT) -> int:
    """Write a handle; its revision."""
    change = Put(HandleKey(name), Handle(block={"10.0.0.0/26": 1}), guard)
    return asyncio.run(store.commit([change]))


def names(store: MemoryStore) -> set[str]:
    return set(store.handles())


def test_an_orphan_goes_after_two_looks_and_others_stay() -> None:
    store, part = MemoryStore(), OrphanHandles(PERIOD)
    block = Block(
        cidr="10.0.0.0/26",
        allocations=[],
        unallocated=[],
        attributes=[Attribute(handle_id="K8S-Used")],
    )
    for name in ("k8s-used", "orphan"):
        handle(store, name)
    taken_up = handle(store, "taken-up")
    assert part.is_due(0.0)
    asyncio.run(part.look(store, [block], 0.0))
    assert names(store) == {"k8s-used", "orphan", "taken-up"}, "once is not twice"
    assert not part.is_due(PERIOD - 1)
    assert part.is_due(PERIOD)
    # An ADD began meanwhile: its handle is written, its block is not yet.
    handle(store, "taken-up", taken_up)
    handle(store, "new")
    asyncio.run(part.look(store, [block], PERIOD))
    assert names(store) == {"k8s-used", "taken-up", "new"}
    assert part.deleted == 1


def test_the_handle_of_an_address_is_its_text_up_to_a_carriage_return() -> None:
    """Blocks of Windows nodes have it so, and the handle object has not."""
    store, part = MemoryStore(), OrphanHandles(PERIOD)
    used = [Attribute(handle_id="net.c1\r\n"), Attribute(handle_id=None)]
    block = Block(cidr="10.0.0.0/26", allocations=[], unallocated=[], attributes=used)
    handle(store, "net.c1")
    for now in (0.0, PERIOD):
        asyncio.run(part.look(store, [block], now))
    assert names(store) == {"net.c1"}


def test_a_handle_that_changes_at_the_last_moment_stays() -> None:
    store, part = MemoryStore(), OrphanHandles(PERIOD)
    at = handle(store, "h")
    found = {HandleKey("h"): at}
    assert part.observe(found, set(), 0.0) == []
    assert part.observe(found, set(), PERIOD) == [(HandleKey("h"), at)]
    assert part.observe({HandleKey("h"): at + 1}, set(), 2 * PERIOD) == []
    assert part.observe({HandleKey("h"): at + 1}, {"h"}, 3 * PERIOD) == []
