"""Claims by name: of a network, of a host, of a pool that no longer selects."""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address, ip_network

import pytest

from ipam.admin import library
from ipam.admin.library import AssignRequest, Release
from ipam.records.errors import BlockInUse, NotInPool
from tests.ipam.world import allocate, put_node, put_pool, release, serving
from tests.support.etcd import Etcd
from tests.support.patience import HANG


@pytest.mark.asyncio
async def test_claims_are_taken_and_given_up(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 28)
        whole, half = ip_network("10.0.0.0/26"), ip_network("10.0.0.0/27")
        claimed, lost = await library.claim_affinity(store, half, "n1")
        assert (len(claimed), lost) == (2, [])
        assert await library.claim_affinity(store, half, "n1") == (claimed, []), (
            "again is no change"
        )
        claimed, lost = await library.claim_affinity(store, whole, "n2")
        assert (len(claimed), lost) == (2, list(half.subnets(new_prefix=28)))
        with pytest.raises(NotInPool):
            await library.claim_affinity(store, ip_network("10.0.0.0/30"), "n1")
        await library.assign_ip(store, ip_address("10.0.0.1"), "n1", handle_id="h")
        with pytest.raises(BlockInUse, match=r"10\.0\.0\.0/28 of host:n1 still holds 1"):
            await library.release_affinity(store, half, "n1", must_be_empty=True)
        assert len(etcd.keys("/calico/ipam/v2/host/n1/")) == 1, "the empty one is gone"
        assert await library.release_host_affinities(store, "n1") == []
        assert etcd.keys("/calico/ipam/v2/host/n1/") == []
        block = etcd.get("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-28") or b""
        assert b'"affinity":null' in block
        etcd.put("/calico/ipam/v2/host/n2", "{}")
        await library.remove_host(store, "n2")
        assert etcd.keys("/calico/ipam/v2/host/") == []
        await library.release_ips(store, [Release(ip_address("10.0.0.1"))])
        assert etcd.keys("/calico/ipam/v2/assignment/") == [], "without owner and empty: gone"


@pytest.mark.asyncio
async def test_an_empty_block_whose_pool_turns_away_is_given_up(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, "n1", zone="a")
        await put_pool(store, "p", "10.0.0.0/26", 28)
        async with serving(store, "n1") as allocator:
            await allocator.perform(allocate("web"))
            await library.auto_assign(store, AssignRequest("n1", "x", num4=1))
            await put_pool(store, "p", "10.0.0.0/26", 28, nodeSelector="zone == 'b'")
            await library.release_by_handle(store, "x")
            assert len(etcd.keys("/calico/ipam/v2/assignment/")) == 1, "still in use"
            await allocator.perform(release("web"))
            # The pod does not wait for what the allocator tidies behind it.
            deadline = time.monotonic() + HANG
            while etcd.keys("/calico/ipam/v2/") and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert etcd.keys("/calico/ipam/v2/") == []
