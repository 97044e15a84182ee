"""Leases against a real etcd: what keeps a key, and what says that it is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.interface import Datastore, LeaseEnded, Put
from libcalico.errors import DatastoreUnavailable
from libcalico.model.keys import LifeSignKey
from libcalico.model.resources.status import LifeSign
from tests.support.etcd import Etcd, make_cluster
from tests.support.patience import HANG, until

pytestmark = pytest.mark.asyncio

KEY = LifeSignKey("n1")
GONE = 4711
"""A lease that was never granted."""


def leasing(store: Datastore) -> Leasing:
    assert isinstance(store, Leasing)
    return store


async def put(store: Datastore, lease: int) -> None:
    await store.commit([Put(KEY, LifeSign(host="a"), lease=lease)])


async def test_a_lease_that_is_kept_alive_keeps_its_keys_and_costs_no_revision(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        lease = await leasing(store).grant(600)
        await put(store, lease)
        revision = etcd.revision()
        full = await leasing(store).seconds_left(KEY)
        assert 0 < full <= 600
        async with asyncio.timeout(HANG):
            left = full
            # Some seconds, so that two slow calls fit into what keeping it alive gives back.
            while left > full - 4:
                left = await leasing(store).seconds_left(KEY)
                await asyncio.sleep(0.05)
            before = left
            while left <= before:
                assert await leasing(store).keep_alive(lease)
                left = await leasing(store).seconds_left(KEY)
        assert etcd.revision() == revision


async def test_a_lease_that_ends_takes_its_keys_along(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        lease = await leasing(store).grant(600)
        await put(store, lease)
        etcd.ctl("lease", "revoke", f"{lease:x}")
        assert await store.get(KEY) is None
        assert not await leasing(store).keep_alive(lease)
        with pytest.raises(LeaseEnded):
            await put(store, lease)
        assert await leasing(store).seconds_left(KEY) == 0


async def test_a_lease_that_nobody_keeps_ends(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        lease = await leasing(store).grant(1)
        await until(lambda: f"{lease:x}" not in etcd.ctl("lease", "list").decode())
        assert not await leasing(store).keep_alive(lease)


async def test_every_member_of_a_cluster_keeps_a_lease(tmp_path: Path) -> None:
    """A member that does not lead asks the one that does."""
    members = make_cluster(tmp_path)
    try:
        async with members[0].connect() as store:
            lease = await leasing(store).grant(600)
        for member in members:
            async with member.connect() as store:
                assert await leasing(store).keep_alive(lease)
                assert not await leasing(store).keep_alive(GONE)
    finally:
        for member in members:
            member.stop()


async def test_a_lease_that_there_never_was(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        assert not await leasing(store).keep_alive(GONE)
        with pytest.raises(LeaseEnded):
            await put(store, GONE)
        assert await store.get(KEY) is None


async def test_a_key_without_a_lease_does_not_end(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put(store, 0)
        assert await leasing(store).seconds_left(KEY) == 0


async def test_leases_survive_a_restart_of_etcd_and_say_when_it_is_away(
    private_etcd: Etcd,
) -> None:
    async with private_etcd.connect() as store:
        lease = await leasing(store).grant(600)
        await put(store, lease)
        private_etcd.restart()
        assert await leasing(store).keep_alive(lease)
        private_etcd.stop()
        async with private_etcd.connect(timeout=0.5) as hasty:
            with pytest.raises(DatastoreUnavailable):
                await leasing(hasty).keep_alive(lease)
