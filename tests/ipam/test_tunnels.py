"""Tunnel addresses: the decision for every state, and the node's record in one transaction."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.admin import library, tunnel_decision
from ipam.admin.check import Report, check
from ipam.admin.library import AssignRequest, Release
from ipam.admin.tunnel_decision import Action, Asking, decide
from ipam.admin.tunnels import IPIP, TUNNELS, VXLAN, WIREGUARD
from ipam.records import blocks, snapshot
from ipam.records.blocks import Allocation
from ipam.records.errors import PoolsExhausted
from ipam.records.pools import Pool
from libcalico.datastore.interface import Datastore, Entry, Put
from libcalico.model import Handle, Node
from libcalico.model.keys import HandleKey, ResourceKey
from libcalico.model.resources.node import NodeStatus
from tests.ipam.blocks import assign_address
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd

POOL = Pool("p", ip_network("10.0.0.0/26"), 28)
NONE, OPEN, SHUT = Asking(), Asking((POOL,)), Asking((replace(POOL, disabled=True),))
BESIDE = Asking((replace(POOL, disabled=True), Pool("new", ip_network("10.1.0.0/26"), 28)))
OURS = IPIP.attributes("n1")
AT = ip_address("10.0.0.1")


@pytest.mark.parametrize(
    ("recorded", "holder", "asking", "action"),
    [
        ("", None, NONE, Action.NOTHING),
        ("10.0.0.1", None, NONE, Action.CLEAR),
        ("", None, OPEN, Action.RENEW),
        ("10.0.0.1", None, OPEN, Action.RENEW),
        ("10.0.0.1", Allocation(AT, IPIP.handle_id("n1"), OURS, 1), OPEN, Action.KEEP),
        ("10.9.0.1", Allocation(AT, IPIP.handle_id("n1"), OURS, 1), OPEN, Action.RENEW),
        ("10.0.0.1", Allocation(AT, "h", {"node": "n1", "pod": "web"}, 1), OPEN, Action.ASSIGN),
        ("10.0.0.1", Allocation(AT, "", {}, None), OPEN, Action.ADOPT),
        ("nonsense", None, OPEN, Action.RENEW),
        ("", None, SHUT, Action.NOTHING),
        ("10.0.0.1", Allocation(AT, IPIP.handle_id("n1"), OURS, 1), SHUT, Action.KEEP),
        ("10.0.0.1", Allocation(AT, "", {}, None), SHUT, Action.KEEP),
        ("10.0.0.1", Allocation(AT, "h", {"node": "n1", "pod": "web"}, 1), SHUT, Action.CLEAR),
        ("10.0.0.1", None, SHUT, Action.CLEAR),
        ("10.0.0.1", Allocation(AT, IPIP.handle_id("n1"), OURS, 1), NONE, Action.CLEAR),
        ("10.0.0.1", Allocation(AT, IPIP.handle_id("n1"), OURS, 1), BESIDE, Action.RENEW),
    ],
)
def test_the_decision(
    recorded: str, holder: Allocation | None, asking: Asking, action: Action
) -> None:
    assert decide(IPIP, "n1", recorded, holder, asking) is action


async def check_snapshot(store: Datastore) -> Report:
    return check(await snapshot.read(store))


async def node(store: Datastore, name: str = "n1") -> Node:
    entry = await store.get(ResourceKey("Node", name))
    assert entry is not None
    value: Node = entry.value
    return value


@pytest.mark.asyncio
@pytest.mark.promise("F-35", "PAIN-1")
async def test_an_old_node_applied_again_leaks_no_tunnel_address(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 28, ipipMode="Always")
        pod = await library.auto_assign(store, AssignRequest("n1", "pod", {"pod": "a"}, num4=1))
        theirs = pod.ipv4[0].ip
        mine = await library.ensure_tunnel_address(store, "n1", IPIP)
        entry = await store.get(ResourceKey("Node", "n1"))
        assert entry is not None
        await store.commit([Put(entry.key, IPIP.written(entry.value, str(theirs)), None, entry)])
        fresh = await library.ensure_tunnel_address(store, "n1", IPIP)
        assert fresh not in (None, theirs)
        used = (await check_snapshot(store)).records
        assert {record.address for record in used} == {theirs, fresh}
        assert IPIP.recorded(await node(store)) == str(fresh)
        assert mine is not None


@pytest.mark.asyncio
@pytest.mark.promise("F-35")
async def test_a_node_gets_keeps_moves_and_gives_up_its_addresses(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 28, ipipMode="Always")
        await put_pool(store, "w", "10.1.0.0/26", 28, allowedUses=["Workload"], vxlanMode="Always")
        before = etcd.revision()
        found = await library.ensure_tunnel_addresses(store, "n1")
        assert [t.attribute for t in found if found[t]] == ["ipipTunnelAddress"]
        address = found[IPIP]
        assert IPIP.recorded(await node(store)) == str(address)
        handle = etcd.get(f"/calico/ipam/v2/handle/{IPIP.handle_id('n1')}")
        assert handle is not None
        block = next(iter(etcd.keys("/calico/ipam/v2/assignment/")))
        assert b'"secondary":{"node":"n1","type":"ipipTunnelAddress"}' in (etcd.get(block) or b"")
        assert etcd.revision() == before + 3, "a claim in two steps, then block, handle and Node"
        assert await library.ensure_tunnel_address(store, "n1", IPIP) == address
        assert etcd.revision() == before + 3, "nothing to do"

        # Somebody frees it and gives it to a pod: the tunnel takes another, the pod keeps its own.
        assert address is not None
        await library.release_ips(store, [Release(address)])
        await library.assign_ip(store, address, "n1", handle_id="pod", attributes={"pod": "x"})
        second = await library.ensure_tunnel_address(store, "n1", IPIP)
        assert second not in (None, address)

        await put_pool(store, "p", "10.0.0.0/26", 28, ipipMode="Never")
        assert await library.ensure_tunnel_address(store, "n1", IPIP) is None
        assert IPIP.recorded(await node(store)) == ""
        assert etcd.keys("/calico/ipam/v2/handle/") == ["/calico/ipam/v2/handle/pod"]


@pytest.mark.asyncio
async def test_a_disabled_pool_keeps_its_tunnels_until_another_gives_addresses(etcd: Etcd) -> None:
    """Pods of a disabled pool are reached through the tunnel as before."""
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
        address = await library.ensure_tunnel_address(store, "n1", VXLAN)
        assert address is not None
        await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always", disabled=True)
        assert await library.ensure_tunnel_address(store, "n1", VXLAN) == address
        assert VXLAN.recorded(await node(store)) == str(address)
        await put_node(store, "n2")
        assert await library.ensure_tunnel_address(store, "n2", VXLAN) is None
        await put_pool(store, "q", "10.1.0.0/26", 28, vxlanMode="Always")
        moved = await library.ensure_tunnel_address(store, "n1", VXLAN)
        assert moved in ip_network("10.1.0.0/26")
        assert (await check_snapshot(store)).problems == ()


@pytest.mark.asyncio
async def test_an_address_of_old_times_gets_its_handle(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, "n1")
        await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
        old = (await library.auto_assign(store, AssignRequest("n1", num4=1))).ipv4[0].ip
        value = VXLAN.written(await node(store), str(old))
        await store.commit([Put(ResourceKey("Node", "n1"), value)])
        assert await library.ensure_tunnel_address(store, "n1", VXLAN) == old
        assert etcd.get(f"/calico/ipam/v2/handle/{VXLAN.handle_id('n1')}") is not None


async def moved_pools(store: MemoryStore) -> str:
    """A node with a VXLAN address of pool a, where pool b alone asks for the tunnel by now."""
    await put_node(store, "n1")
    await put_pool(store, "a", "10.1.0.0/28", 28, vxlanMode="Always")
    address = await library.ensure_tunnel_address(store, "n1", VXLAN)
    await put_pool(store, "a", "10.1.0.0/28", 28)
    await put_pool(store, "b", "10.2.0.0/28", 28, vxlanMode="Always")
    return str(address)


def holders(store: MemoryStore) -> dict[str, str]:
    return {
        str(one.address): one.handle_id
        for block in store.blocks().values()
        for one in blocks.allocations(block)
    }


@pytest.mark.asyncio
async def test_a_node_names_at_no_moment_a_tunnel_address_that_is_free() -> None:
    store = MemoryStore()
    before = await moved_pools(store)
    named: list[str] = []

    def looked(_: object) -> None:
        named.append(VXLAN.recorded(store.entries[ResourceKey("Node", "n1")].value))
        assert holders(store).get(named[-1]) == VXLAN.handle_id("n1")

    store.after_commit = looked
    moved = await library.ensure_tunnel_address(store, "n1", VXLAN)
    assert {before, str(moved)} == set(named)
    assert holders(store) == {str(moved): VXLAN.handle_id("n1")}
    assert set(store.handles()[VXLAN.handle_id("n1")].block) == {"10.2.0.0/28"}


@pytest.mark.asyncio
async def test_an_address_of_old_times_that_a_pod_gets_meanwhile_stays_the_pods() -> None:
    store = MemoryStore()
    await put_node(store, "n1")
    await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
    old = (await library.auto_assign(store, AssignRequest("n1", num4=1))).ipv4[0].ip
    record = VXLAN.written(await node(store), str(old))
    await store.commit([Put(ResourceKey("Node", "n1"), record)])
    (key,) = store.blocks()

    def a_pod_gets_it() -> bool:
        free, _ = blocks.release(store.blocks()[key], [old])
        given = assign_address(free, old, "net.web", {"node": "n1", "pod": "web"})
        given = msgspec.structs.replace(given, sequenceNumber=given.sequenceNumber + 2)
        store.entries[key] = Entry(key, given, 1000, b"")
        store.entries[HandleKey("net.web")] = Entry(
            HandleKey("net.web"), Handle(block={str(key.cidr): 1}), 1000, b""
        )
        return True

    got = await library.ensure_tunnel_address(store, "n1", VXLAN, ready=a_pod_gets_it)
    held = {one.address: one.handle_id for one in blocks.allocations(store.blocks()[key])}
    assert got != old
    assert held == {old: "net.web", got: VXLAN.handle_id("n1")}


@pytest.mark.asyncio
async def test_a_tunnel_for_which_there_is_no_other_address_keeps_its_own() -> None:
    store = MemoryStore()
    before = await moved_pools(store)
    await library.auto_assign(store, AssignRequest("n1", "full", num4=16, pools4=["b"]))
    with pytest.raises(PoolsExhausted):
        await library.ensure_tunnel_address(store, "n1", VXLAN)
    assert VXLAN.recorded(await node(store)) == before
    got = await library.auto_assign(store, AssignRequest("n1", "pods", num4=16, pools4=["a"]))
    assert len(got.ipv4) == 15
    assert before not in {str(one.ip) for one in got.ipv4}


@pytest.mark.asyncio
async def test_a_tunnel_without_an_address_does_not_name_that_of_a_pod() -> None:
    store = MemoryStore()
    address = await moved_pools(store)
    await library.auto_assign(store, AssignRequest("n1", "full", num4=16, pools4=["b"]))
    await library.release_ips(store, [Release(ip_address(address))])
    await library.assign_ip(store, ip_address(address), "n1", handle_id="pod")
    with pytest.raises(PoolsExhausted):
        await library.ensure_tunnel_address(store, "n1", VXLAN)
    assert VXLAN.recorded(await node(store)) == ""


@pytest.mark.asyncio
async def test_the_last_address_of_a_pool_may_be_one_that_the_tunnel_held_before() -> None:
    """The Node was applied again without it."""
    store = MemoryStore()
    await put_node(store, "n1")
    await put_pool(store, "a", "10.1.0.0/32", 32, vxlanMode="Always")
    address = await library.ensure_tunnel_address(store, "n1", VXLAN)
    await put_node(store, "n1")
    assert await library.ensure_tunnel_address(store, "n1", VXLAN) == address
    assert VXLAN.recorded(await node(store)) == str(address)


def test_wireguard_needs_its_key_and_no_host_encryption() -> None:
    from libcalico.model import Metadata

    pool = Pool("p", ip_network("10.0.0.0/26"), 28)
    plain = Node(metadata=Metadata(name="n1"))
    keyed = msgspec.structs.replace(plain, status=NodeStatus(wireguardPublicKey="k"))
    assert tunnel_decision.asking(WIREGUARD, [pool], plain).all == ()
    assert [p.name for p in tunnel_decision.asking(WIREGUARD, [pool], keyed).open] == ["p"]
    assert tunnel_decision.asking(WIREGUARD, [pool], keyed, host_encryption=True).all == ()
    for tunnel in TUNNELS:
        written = tunnel.written(plain, "10.0.0.1")
        assert tunnel.recorded(written) == "10.0.0.1"
        assert tunnel.recorded(tunnel.written(written, "")) == ""
