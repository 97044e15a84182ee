"""The library's calls against a real etcd, one after another as a reader would use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_interface, ip_network

import msgspec
import pytest
import pytest_asyncio

from ipam.admin import library
from ipam.admin.check import check
from ipam.admin.library import AssignRequest, Release
from ipam.records import blocks, snapshot
from ipam.records.errors import (
    AddressInUse,
    BadSettings,
    NoNode,
    NoPool,
    NotAllocated,
    NotInPool,
    NotOwner,
    SequenceMismatch,
)
from libcalico.datastore.interface import Datastore, Entry, Put, Selection
from libcalico.model import (
    Handle,
    IPAMConfig,
    IPReservation,
    IPReservationSpec,
    Metadata,
    Profile,
    ProfileSpec,
)
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd


@pytest_asyncio.fixture
async def store(etcd: Etcd) -> AsyncIterator[Datastore]:
    async with etcd.connect() as connected:
        await put_node(connected, "n1", zone="a")
        await put_node(connected, "n2", zone="b")
        await put_node(connected, "n3", zone="c")
        yield connected


async def agree(store: Datastore) -> None:
    """Blocks, handles and claims agree; who uses the addresses is not this test's matter."""
    report = check(await snapshot.read(store))
    told = [one for one in report.problems if "no endpoint" not in one.text]
    assert [
        one for one in told if one.subject not in {str(r.address) for r in report.records}
    ] == []


@pytest.mark.asyncio
@pytest.mark.promise("F-20")
async def test_many_addresses_of_both_families_and_what_is_short(store: Datastore) -> None:
    await put_pool(store, "four", "10.0.0.0/27", 29)
    await put_pool(store, "six", "fd00::/120", 122)
    request = AssignRequest("n1", "h", {"note": "x"}, num4=20, num6=100)
    result = await library.auto_assign(store, request)
    assert (len(set(result.ipv4)), len(set(result.ipv6)), result.shortfall) == (20, 100, {})
    assert {i.network.prefixlen for i in result.ipv4} == {29}
    handle = await store.get(HandleKey("h"))
    assert handle is not None
    assert sum(handle.value.block.values()) == 120
    second = await library.auto_assign(store, AssignRequest("n2", "g", num4=20))
    assert len(second.ipv4) == 12
    assert second.shortfall[4].startswith("12 of 20: no free address in pools four")
    assert not set(result.ipv4) & set(second.ipv4)
    await agree(store)
    assert len(await library.release_by_handle(store, "h")) == 120
    with pytest.raises(NotAllocated):
        await library.release_by_handle(store, "h")
    await library.release_by_handle(store, "g")
    assert (await store.list(Selection("Handle"))).entries == []
    with pytest.raises(NoNode, match="'n9' does not exist"):
        await library.auto_assign(store, AssignRequest("n9", "h", num4=1))


@pytest.mark.asyncio
@pytest.mark.promise("F-22")
@pytest.mark.promise("F-24")
async def test_pools_by_node_namespace_and_name(store: Datastore) -> None:
    await put_pool(store, "a", "10.1.0.0/24", 26, nodeSelector='zone == "a"')
    await put_pool(store, "b", "10.2.0.0/24", 26, nodeSelector='zone == "b"')
    await put_pool(store, "red", "10.3.0.0/24", 26, namespaceSelector='color == "red"')
    await put_pool(store, "manual", "10.4.0.0/24", 26, assignmentMode="Manual")
    profile = Profile(
        metadata=Metadata(name="kns.reds"),
        spec=ProfileSpec(labelsToApply={"pcns.color": "red", "color": "blue"}),
    )
    await store.commit([Put(ResourceKey("Profile", "kns.reds"), profile)])

    async def pool_of(host: str, **options: object) -> str:
        request = AssignRequest(host, "h", num4=1, **options)  # type: ignore[arg-type]
        result = await library.auto_assign(store, request)
        return str(result.ipv4[0].ip).rpartition(".")[0]

    assert await pool_of("n1") == "10.1.0"
    assert await pool_of("n2", namespace="blues") == "10.2.0"
    with pytest.raises(NoPool, match=r'namespaceSelector color == "red"'):
        await pool_of("n3", namespace="blues")
    assert await pool_of("n3", namespace="reds") == "10.3.0", "pcns. labels count, others do not"
    assert await pool_of("n1", pools4=["manual"]) == "10.4.0"
    assert await pool_of("n1", pools4=["10.2.0.0/24"]) == "10.2.0", "a request overrides selectors"
    with pytest.raises(NoPool, match="does not exist"):
        await pool_of("n1", pools4=["10.9.0.0/24"])


@pytest.mark.asyncio
@pytest.mark.promise("F-26")
async def test_reserved_addresses_are_given_only_by_name(store: Datastore) -> None:
    await put_pool(store, "p", "10.0.0.0/28", 29)
    reserved = IPReservation(
        metadata=Metadata(name="r"),
        spec=IPReservationSpec(reservedCIDRs=["10.0.0.0/30", "10.0.0.8/29", "10.0.0.5"]),
    )
    await store.commit([Put(ResourceKey("IPReservation", "r"), reserved)])
    result = await library.auto_assign(store, AssignRequest("n1", "h", num4=9))
    assert sorted(str(i.ip) for i in result.ipv4) == ["10.0.0.4", "10.0.0.6", "10.0.0.7"]
    assert 4 in result.shortfall
    assert await store.get(BlockKey(ip_network("10.0.0.8/29"))) is None, "nothing to claim it for"
    await library.assign_ip(store, ip_address("10.0.0.9"), "n1", handle_id="f")
    await agree(store)


@pytest.mark.asyncio
async def test_a_fixed_address(store: Datastore) -> None:
    await put_pool(store, "p", "10.0.0.0/26", 28)
    await put_pool(store, "t", "10.5.0.0/26", 28, allowedUses=["Tunnel"])
    address = ip_address("10.0.0.20")
    await library.assign_ip(store, address, "n1", handle_id="h", use="Workload")
    block = await store.get(BlockKey(ip_network("10.0.0.16/28")))
    assert block is not None
    assert block.value.affinity == "host:n1"
    with pytest.raises(AddressInUse, match=r"10\.0\.0\.20 is already in use by handle h"):
        await library.assign_ip(store, address, "n2", handle_id="g")
    with pytest.raises(NotInPool, match="not in a configured pool"):
        await library.assign_ip(store, ip_address("10.9.0.1"), "n1")
    with pytest.raises(NotInPool, match="does not allow the use Workload"):
        await library.assign_ip(store, ip_address("10.5.0.1"), "n1", use="Workload")
    await library.set_config(store, IPAMConfig(strict_affinity=True, auto_allocate_blocks=True))
    with pytest.raises(NotOwner, match="strict affinity"):
        await library.assign_ip(store, ip_address("10.0.0.21"), "n2", handle_id="g")
    await agree(store)


@pytest.mark.asyncio
@pytest.mark.promise("F-29")
async def test_a_release_needs_the_handle_and_the_sequence(store: Datastore) -> None:
    """ABA: an address that was given out anew is not taken from its new owner."""
    await put_pool(store, "p", "10.0.0.0/30", 30)
    await library.auto_assign(store, AssignRequest("n1", "old", num4=4))
    stored = await store.get(BlockKey(ip_network("10.0.0.0/30")))
    assert stored is not None
    before = {a.address: a.sequence for a in blocks.allocations(stored.value)}
    address, other = ip_address("10.0.0.2"), ip_address("10.0.0.3")
    await library.release_ips(store, [Release(address)])
    await library.assign_ip(store, address, "n1", handle_id="new")
    late = [
        Release(address, "old"), Release(other, "old", before[other]),
        Release(ip_address("10.7.0.1")),
    ]  # fmt: skip
    result = await library.release_ips(store, late)
    assert isinstance(result.refused[address], NotOwner)
    assert (result.released, result.unallocated) == ([other], [ip_address("10.7.0.1")])
    result = await library.release_ips(store, [Release(address, "new", before[address])])
    assert isinstance(result.refused[address], SequenceMismatch)
    assert (await library.release_ips(store, [Release(other)])).unallocated == [other]
    await agree(store)


@pytest.mark.asyncio
@pytest.mark.parametrize("counted", [1, 2, 3, 9])
async def test_a_handle_that_counts_wrong_keeps_the_addresses_that_stay(
    store: Datastore, counted: int
) -> None:
    """IPAM-5: by its handle all of them are found, however many of them went by name."""
    await put_pool(store, "p", "10.0.0.0/30", 30)
    given = await library.auto_assign(store, AssignRequest("n1", "h", num4=3))
    entry = await store.get(HandleKey("h"))
    assert entry is not None
    await store.commit([Put(entry.key, Handle(block={"10.0.0.0/30": counted}), entry.revision)])
    first, *rest = [one.ip for one in given.ipv4]
    await library.release_ips(store, [Release(first)])
    assert set(await library.release_by_handle(store, "h")) == set(rest)
    assert await store.get(entry.key) is None


@pytest.mark.asyncio
@pytest.mark.promise("F-27")
async def test_freed_addresses_are_given_out_last(store: Datastore, etcd: Etcd) -> None:
    await put_pool(store, "p", "10.0.0.0/29", 29)
    first = (await library.auto_assign(store, AssignRequest("n1", "a", num4=1))).ipv4[0]
    await library.release_by_handle(store, "a")
    rest = [
        (await library.auto_assign(store, AssignRequest("n1", f"b{i}", num4=1))).ipv4[0]
        for i in range(8)
    ]
    assert rest.index(first) == 7
    assert (
        "releasedAt"
        not in (etcd.get("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29") or b"").decode()
    )


@pytest.mark.asyncio
@pytest.mark.promise("F-27")
async def test_with_a_cool_down_they_rest_first(store: Datastore, etcd: Etcd) -> None:
    await put_pool(store, "p", "10.0.0.0/31", 31)
    config = IPAMConfig(strict_affinity=False, auto_allocate_blocks=True, ipCooldownSeconds=1200)
    await library.set_config(store, config)
    await library.auto_assign(store, AssignRequest("n1", "a", num4=2))
    await library.release_by_handle(store, "a")
    raw = etcd.get("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31") or b""
    assert b'"attributes":[{"releasedAt":"' in raw
    assert b'"allocations":[0,0],"unallocated":[]' in raw
    early = await library.auto_assign(store, AssignRequest("n1", "b", num4=1))
    assert early.ipv4 == []
    await library.assign_ip(store, ip_address("10.0.0.1"), "n1", handle_id="named")
    assert await library.sweep_cooled(store) == 0
    # Twenty minutes later: here a second, and the rest by the configuration.
    await library.set_config(store, msgspec.structs.replace(config, ipCooldownSeconds=1))
    await asyncio.sleep(1.05)
    assert await library.sweep_cooled(store) == 1
    assert await library.sweep_cooled(store) == 0
    late = await library.auto_assign(store, AssignRequest("n1", "b", num4=1))
    assert late.ipv4 == [ip_interface("10.0.0.0/31")]
    await agree(store)


@pytest.mark.asyncio
@pytest.mark.promise("F-30")
@pytest.mark.promise("F-31")
async def test_borrowing_strictness_and_the_cap(store: Datastore) -> None:
    await put_pool(store, "p", "10.0.0.0/25", 30)
    result = await library.auto_assign(store, AssignRequest("n1", "h", num4=100))
    assert len(result.ipv4) == 80, "20 blocks of 4"
    assert "maxBlocksPerHost" in result.shortfall[4]
    rest = await library.auto_assign(store, AssignRequest("n2", "g", num4=40, max_blocks=5))
    assert len(rest.ipv4) == 20
    await library.auto_assign(store, AssignRequest("n2", "g", num4=28))
    await library.release_ips(store, [Release(result.ipv4[0].ip)])
    lent = await library.auto_assign(store, AssignRequest("n2", "g", num4=1))
    assert lent.ipv4 == [result.ipv4[0]], "from a block of n1"
    await library.release_ips(store, [Release(lent.ipv4[0].ip)])
    await library.set_config(store, IPAMConfig(strict_affinity=True, auto_allocate_blocks=True))
    strict = await library.auto_assign(store, AssignRequest("n2", "g", num4=1))
    assert "strict affinity forbids borrowing" in strict.shortfall[4]
    with pytest.raises(BadSettings):
        await library.set_config(store, IPAMConfig(False, False))
    with pytest.raises(BadSettings, match="MaxBlocksPerHost requires StrictAffinity"):
        await library.set_config(store, IPAMConfig(False, True, 3))
    await agree(store)


@pytest.mark.asyncio
@pytest.mark.promise("F-35")
async def test_service_addresses_come_from_blocks_of_no_node(store: Datastore) -> None:
    await put_pool(store, "lb", "10.9.0.0/26", 28, allowedUses=["LoadBalancer"])
    request = AssignRequest("ignored", "lb-x", {"service": "web"}, num4=17, use="LoadBalancer")
    result = await library.auto_assign(store, request)
    assert len(result.ipv4) == 17
    claims = [e.key for e in (await store.list(Selection("BlockAffinity"))).entries]
    assert {(k.host, k.kind) for k in claims if isinstance(k, AffinityKey)} == {
        ("load-balancer", "virtual")
    }
    with pytest.raises(NoPool):
        await library.auto_assign(store, AssignRequest("n1", "pod", num4=1))
    await library.release_by_handle(store, "lb-x")
    assert await library.release_pool_affinities(store, ip_network("10.9.0.0/26")) == 2
    assert (await store.list(Selection("Block"))).entries == []


@pytest.mark.asyncio
async def test_a_setting_that_somebody_else_changes_meanwhile_is_not_lost() -> None:
    memory, key = MemoryStore(), IPAMConfigKey()
    replace = msgspec.structs.replace

    def rival(_: object) -> None:
        memory.before_commit = lambda _: None
        other = IPAMConfig(strict_affinity=True, auto_allocate_blocks=True)
        memory.revision += 1
        memory.entries[key] = Entry(key, other, memory.revision, b"")

    memory.before_commit = rival
    changed = await library.change_config(memory, lambda old: replace(old, ipCooldownSeconds=9))
    assert changed
    assert await library.get_config(memory) == IPAMConfig(
        strict_affinity=True, auto_allocate_blocks=True, ipCooldownSeconds=9
    )
    assert not await library.change_config(memory, lambda old: replace(old, ipCooldownSeconds=9))
    with pytest.raises(BadSettings):
        await library.change_config(memory, lambda old: replace(old, ipCooldownSeconds=1201))
