"""A pool, an endpoint or a reservation that cannot be used stops nothing beside it."""

from __future__ import annotations

import pytest

from ipam.admin import library, overlap
from ipam.admin.check import check
from ipam.admin.maintenance import release_host
from ipam.admin.node_removal import clean_up
from ipam.admin.tunnels import VXLAN
from ipam.admin.usage import reservations, utilisation
from ipam.allocator import requests
from ipam.allocator.library_assign import AssignRequest, auto_assign
from ipam.allocator.release import Release, release_ips
from ipam.collector.collector import Collector
from ipam.collector.leak_evidence import LeakEvidence
from ipam.records import pools, snapshot
from libcalico.datastore.interface import Put, Selection
from libcalico.errors import InvalidValue
from libcalico.model import (
    Handle,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
    Metadata,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import HandleKey, ResourceKey
from libcalico.pools import network_of
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool, serving
from tests.support.etcd import Etcd

POD = {"node": "n1", "namespace": "default", "pod": "web"}
WEP = ResourceKey("WorkloadEndpoint", "n1-k8s-web-eth0", "default")


async def world() -> MemoryStore:
    """A sound pool, and beside it what others wrote: two pools, an endpoint, a reservation."""
    store = MemoryStore()
    await put_node(store, "n1")
    await put_pool(store, "good", "10.65.0.0/16", 28, vxlanMode="Always")
    await put_pool(store, "no-cidr", "10.66.0.0/99", 28, vxlanMode="Always")
    await put_pool(store, "no-size", "10.67.0.0/16", 99, vxlanMode="Always")
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="n1",
        pod="web",
        endpoint="eth0",
        containerID="c",
        interfaceName="cali1",
        ipNetworks=["10.65.0.300/32", "10.65.9.9/32"],
    )
    reserved = IPReservationSpec(reservedCIDRs=["10.65.0.0/99", "10.65.1.0/24"])
    await store.commit(
        [
            Put(WEP, WorkloadEndpoint(metadata=Metadata(WEP.name, namespace="default"), spec=spec)),
            Put(
                ResourceKey("IPReservation", "r"),
                IPReservation(metadata=Metadata(name="r"), spec=reserved),
            ),
        ]
    )
    return store


@pytest.mark.parametrize("cidr", ["10.0.0.0/99", "banana", "", "10.0.0.300/24", "fd00::/129"])
def test_a_cidr_that_is_none_is_named_with_its_field(cidr: str) -> None:
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr=cidr))
    with pytest.raises(InvalidValue) as caught:
        pools.from_resource(pool)
    assert (caught.value.field, caught.value.value) == ("spec.cidr", cidr)
    assert network_of(pool) is None


@pytest.mark.parametrize(("cidr", "size"), [("10.0.0.0/16", 33), ("fd00::/64", 129), ("::/0", -1)])
def test_a_block_size_that_no_block_can_have_is_named_with_its_field(cidr: str, size: int) -> None:
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr=cidr, blockSize=size))
    with pytest.raises(InvalidValue) as caught:
        pools.from_resource(pool)
    assert (caught.value.field, caught.value.value) == ("spec.blockSize", size)


@pytest.mark.asyncio
async def test_stored_pools_that_cannot_be_used_are_named_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await world()
    found = pools.usable((await store.list(Selection("IPPool"))).entries)
    assert [pool.name for pool in found] == ["good"]
    assert "IPPool(no-cidr) is not usable: spec.cidr: '10.66.0.0/99'" in caplog.text
    assert "IPPool(no-size) is not usable: spec.blockSize: 99" in caplog.text


@pytest.mark.asyncio
async def test_the_collector_sweeps_beside_them(caplog: pytest.LogCaptureFixture) -> None:
    store = await world()

    async def observe() -> LeakEvidence:
        return LeakEvidence(frozenset())

    sweep = await Collector(store, "n1", observe, gap=0).sweep()
    assert [str(address) for _, address in sweep.widowed] == ["10.65.9.9"]
    assert "WorkloadEndpoint(default/n1-k8s-web-eth0): spec.ipNetworks: '10.65.0.300/32'" in (
        caplog.text
    )


@pytest.mark.asyncio
async def test_addresses_are_given_and_taken_back_beside_them() -> None:
    store = await world()
    got = await auto_assign(store, AssignRequest("n1", "net.c0", POD, num4=1))
    assert str(got.ipv4[0].ip).startswith("10.65.")
    assert (await release_ips(store, [Release(got.ipv4[0].ip)])).released
    assert await library.ensure_tunnel_address(store, "n1", VXLAN) is not None


@pytest.mark.asyncio
async def test_a_node_is_removed_beside_them() -> None:
    store = await world()
    got = await auto_assign(store, AssignRequest("n1", "net.c0", POD, num4=1))
    value = store.entries[WEP].value
    value.spec.ipNetworks.append(f"{got.ipv4[0].ip}/32")
    await store.commit([Put(WEP, value)])
    await clean_up(store, "n1")
    assert WEP not in store.entries
    assert not [key for key in store.entries if type(key).__name__ == "HandleKey"]


@pytest.mark.asyncio
@pytest.mark.parametrize("other", ["readable", "unreadable", "none"])
async def test_a_node_is_removed_and_another_keeps_its_address(etcd: Etcd, other: str) -> None:
    """An endpoint that was left behind names the address that a pod of another node has by now."""
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_node(store, "n2")
        await put_pool(store, "good", "10.65.0.0/16", 28)
        got = await auto_assign(store, AssignRequest("n2", "net.c0", {**POD, "node": "n2"}, num4=1))
        spec = WorkloadEndpointSpec(node="n1", ipNetworks=[f"{got.ipv4[0].ip}/32"])
        meta = Metadata(WEP.name, namespace="default")
        await store.commit([Put(WEP, WorkloadEndpoint(metadata=meta, spec=spec))])
        path = "/calico/resources/v3/projectcalico.org/nodes/n2"
        if other == "unreadable":
            etcd.put(path, "{")
        elif other == "none":
            etcd.delete(path)
        released = await release_host(store, "n1")
        assert released == ([got.ipv4[0].ip] if other == "none" else [])


@pytest.mark.asyncio
async def test_reports_and_checks_go_on_and_name_them() -> None:
    store = await world()
    assert [one.name for one in await utilisation(store)] == ["good"]
    assert [str(one) for one in await reservations(store)] == ["10.65.1.0/24"]
    assert [pool.name for pool in (await overlap.read_facts(store)).pools] == ["good"]
    report = check(await snapshot.read(store))
    assert {one.subject for one in report.problems if "cannot be read" in one.text} == {
        "IPPool(no-cidr)",
        "IPPool(no-size)",
        "WorkloadEndpoint(default/n1-k8s-web-eth0)",
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("by_allocator", [False, True])
async def test_a_handle_that_names_no_network_gives_back_what_it_holds(
    caplog: pytest.LogCaptureFixture, by_allocator: bool
) -> None:
    store, handle = await world(), HandleKey("net.c0")
    got = await auto_assign(store, AssignRequest("n1", "net.c0", POD, num4=1))
    held = store.entries[handle].value.block | {"10.65.300.0/26": 1}
    await store.commit([Put(handle, Handle(block=held))])
    if by_allocator:
        async with serving(store, "n1") as allocator:
            released = (await allocator.perform(requests.Release("net.c0"))).addresses
    else:
        released = tuple(await library.release_by_handle(store, "net.c0"))
    assert released == (got.ipv4[0].ip,)
    assert "a handle names the block '10.65.300.0/26', which is no network" in caplog.text
