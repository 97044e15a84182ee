"""Who may not write does not, and reads on (LEAD-4)."""

from __future__ import annotations

import asyncio
import time

import pytest

from controllers.leadership.fence import FencedClient, FencedStore
from controllers.leadership.leader import LostLease
from controllers.process import Options, Process
from libcalico.datastore.capabilities import Paged, Refusing
from libcalico.datastore.interface import ABSENT, Put, Selection
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.objects import CONFIG_MAPS
from libcalico.model import Metadata, Profile, ResourceKey
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import HANG

KEY = ResourceKey("Profile", "mine")


class Lease:
    """Held, or not."""

    held = True

    def check(self) -> None:
        if not self.held:
            raise LostLease("it is not held")


@pytest.mark.asyncio
async def test_the_process_itself_writes_nothing_without_the_lease(stored: Etcd) -> None:
    """Its report of the configuration that runs, and the compaction."""
    async with stored.connect() as below:
        process = Process(below, Client(lambda: Access("http://127.0.0.1:1")), {}, Options(None))
        await process.configuration.load()

        # Kubernetes' own objects are in the same etcd, and written all the time.
        def ours() -> dict[str, bytes | None]:
            return {key: stored.get(key) for key in stored.keys()}  # noqa: SIM118

        before = ours()
        with pytest.raises(LostLease):
            await process.configuration.report(process._fenced)
        with pytest.raises(LostLease):
            await asyncio.wait_for(process._compact(below, 0.01), HANG)
        assert ours() == before
        process.elector.leading, process.elector._until = True, time.monotonic() + 600
        await process.configuration.report(process._fenced)
        assert len(ours().items() - before.items()) == 1
    await process.close()


@pytest.mark.asyncio
async def test_without_the_lease_nothing_is_written(cluster: ApiServer, stored: Etcd) -> None:
    lease = Lease()
    cluster.namespace("fence")
    client = FencedClient(cluster.client(), lease.check)
    async with stored.connect() as below:
        store = FencedStore(below, lease.check)
        assert isinstance(store, Paged)
        assert isinstance(store, Refusing)
        put = Put(KEY, Profile(metadata=Metadata(name="mine")), ABSENT)
        revision = await store.commit([put])
        body = {"metadata": {"name": "one"}}
        await client.create(CONFIG_MAPS, body, "fence")
        lease.held = False
        for change in (Put(KEY, put.value, revision), put):
            with pytest.raises(LostLease):
                await store.commit([change])
        for write in (
            client.create(CONFIG_MAPS, {"metadata": {"name": "two"}}, "fence"),
            client.patch(CONFIG_MAPS, "one", {"data": {"a": "b"}}, "fence"),
            client.replace(CONFIG_MAPS, "one", body, "fence"),
            client.delete(CONFIG_MAPS, "one", "fence"),
        ):
            with pytest.raises(LostLease):
                await write
        assert [
            one.key for one in (await store.list(Selection("Profile", name_prefix="mine"))).entries
        ]
        entry = await store.get(KEY)
        assert entry is not None
        assert entry.revision == revision
        assert not (await client.get(CONFIG_MAPS, "one", "fence")).data
    await client.close()
