"""A block is made anew from what the datastore has of it, though some of it cannot be read."""

from __future__ import annotations

import msgspec
import pytest

from ipam.admin import library
from ipam.admin.tunnels import VXLAN
from ipam.allocator import affinities, claim_loading
from ipam.allocator.view import OwnNode, View, at_home
from ipam.records.errors import BlockInDoubt
from libcalico.datastore.interface import Delete
from libcalico.model.keys import HandleKey
from tests.ipam.test_restoration import BLOCK, CIDR, CLAIM, delete, held, run, world
from tests.ipam.world import put_pool, serving
from tests.support.etcd import Etcd


@pytest.mark.asyncio
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_cannot_be_read_has_the_addresses_in_its_text(
    etcd: Etcd, restarted: bool
) -> None:
    """An endpoint with a wrong type, a torn one, and a Node with a tunnel's address."""
    path = "/calico/resources/v3/projectcalico.org/"
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await put_pool(store, "p", "10.0.0.0/28", 28, vxlanMode="Always", ipipMode="Never")
        mine = await run(allocator, "a", "b")
        tunnel = await library.ensure_tunnel_address(store, "n1", VXLAN)
        assert tunnel is not None
        before = await held(store)
        wrong = {"spec": {"node": 7, "containerID": "a", "ipNetworks": [f"{mine[0]}/32"]}}
        keys = [f"{path}workloadendpoints/default/n1-k8s-{pod}-eth0" for pod in "ab"]
        etcd.put(keys[0], msgspec.json.encode(wrong))
        etcd.put(keys[1], (etcd.get(keys[1]) or b"").rstrip()[:-1])
        node = f"{path}nodes/n1"
        etcd.put(node, (etcd.get(node) or b"").replace(b'"spec":{', b'"spec":{"bgp":7,'))
        await delete(store, *([CLAIM, BLOCK] if restarted else [BLOCK]))
    view = View(OwnNode(foreign=at_home))
    async with etcd.connect() as store:
        if restarted:
            assert await affinities.claim(store, view, "n1", CIDR)
        else:
            await claim_loading.load(store, view, "n1", [])
        after = await held(store)
        assert after.keys() == {*mine, tunnel}
        assert [after[one] for one in mine] == [before[one] for one in mine]


@pytest.mark.asyncio
async def test_a_block_that_nobody_can_say_of_who_has_it_is_not_made(etcd: Etcd) -> None:
    async with etcd.connect() as store, serving(store, "n1") as allocator:
        await world(store)
        await run(allocator, "a")
        key = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/n1-k8s-a-eth0"
        etcd.put(key, "lost")
        await delete(store, CLAIM, BLOCK)
    async with etcd.connect() as store:
        with pytest.raises(BlockInDoubt, match=r"net\.a .* cannot be read: .*n1-k8s-a-eth0"):
            await affinities.claim(store, View(), "n1", CIDR)
        assert (await store.get(CLAIM), await store.get(BLOCK)) == (None, None)
        await store.commit([Delete(HandleKey("net.a"))])
        assert await affinities.claim(store, View(), "n1", CIDR), "nothing says that it is in use"
