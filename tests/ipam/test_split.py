"""A split pool: equal children that hold every block, or no change at all."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network

import pytest

from ipam.admin.split import plan, split
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import IPPool, IPPoolSpec, Metadata
from libcalico.model.keys import ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool

POOL = IPPool(
    metadata=Metadata(name="p", labels={"a": "b"}),
    spec=IPPoolSpec(cidr="10.0.0.0/24", blockSize=28, natOutgoing=True, disabled=True),
)


def test_the_children_are_the_pool() -> None:
    children = plan(POOL, 4)
    assert [child.metadata.name for child in children] == [f"split-p-{i}" for i in range(4)]
    assert [child.spec.cidr for child in children] == [
        "10.0.0.0/26",
        "10.0.0.64/26",
        "10.0.0.128/26",
        "10.0.0.192/26",
    ]
    for child in children:
        assert child.metadata.labels == {"a": "b"}
        assert (child.spec.natOutgoing, child.spec.blockSize, child.spec.disabled) == (
            True,
            28,
            True,
        )


@pytest.mark.parametrize("number", [0, 1, 3, 6, 32, 1 << 40])
def test_a_number_that_cannot_be_is_refused(number: int) -> None:
    with pytest.raises(InvalidValue, match="NUMBER"):
        plan(POOL, number)


def test_a_long_name_keeps_its_limit_and_stays_unique() -> None:
    long = IPPool(metadata=Metadata(name="n" * 253), spec=IPPoolSpec(cidr="10.0.0.0/16"))
    names = [child.metadata.name for child in plan(long, 128)]
    assert len(set(names)) == 128
    assert max(map(len, names)) == 253


def test_a_split_of_many_is_resumed_and_foreign_pools_are_left_alone() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await put_pool(store, "p", "10.0.0.0/16", 26)
        await put_pool(store, "split-p-1", "10.9.0.0/24", 26)
        entry = await store.get(ResourceKey("IPPool", "p"))
        assert entry is not None
        with pytest.raises(MuslinError, match="another pool"):
            await split(store, entry, 256)
        assert len(store.entries) == 2
        del store.entries[ResourceKey("IPPool", "split-p-1")]
        calls = 0

        def interrupt(_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise MuslinError("killed")

        store.before_commit = interrupt
        with pytest.raises(MuslinError, match="killed"):
            await split(store, entry, 256)
        assert ResourceKey("IPPool", "p") in store.entries
        await split(store, entry, 256)
        assert ResourceKey("IPPool", "p") not in store.entries
        stored = {store.entries[key].value.spec.network for key in store.entries}
        assert stored == set(ip_network("10.0.0.0/16").subnets(new_prefix=24))

    asyncio.run(scenario())
