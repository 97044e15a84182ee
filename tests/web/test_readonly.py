"""The page's datastore refuses to write, and reads as the one behind it."""

from __future__ import annotations

import asyncio

import pytest

from libcalico.datastore.interface import Delete, Put, Selection
from libcalico.errors import DatastoreError
from libcalico.model.kinds import key_of
from tests.support.etcd import Etcd
from tests.web import world
from web.facts.readonly import ReadOnly


def test_reads_and_never_writes(etcd: Etcd) -> None:
    world.store(etcd)
    pool = next(one for one in world.resources() if one.kind == "IPPool")

    async def story() -> None:
        async with etcd.connect() as behind:
            store = ReadOnly(behind)
            before = await store.get(key_of(pool))
            assert before is not None
            assert before.value.spec.cidr == pool.spec.cidr
            for change in (Put(key_of(pool), pool), Delete(key_of(pool))):
                with pytest.raises(DatastoreError, match=r"only reads: .*pods"):
                    await store.commit([change])
            assert await behind.get(key_of(pool)) == before
            assert len((await store.list(Selection("Node"))).entries) == 3
            assert (await store.get_many([key_of(pool)]))[key_of(pool)] == before

    asyncio.run(story())
