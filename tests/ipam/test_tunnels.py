"""Tunnel addresses: the decision for every state, and the node's record in one transaction."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.admin import library, tunnels
from ipam.admin.check import Report, check
from ipam.admin.library import AssignRequest, Release
from ipam.admin.tunnels import IPIP, TUNNELS, VXLAN, WIREGUARD, Action, Asking, decide
from ipam.records import snapshot
from ipam.records.blocks import Allocation
from ipam.records.pools import Pool
from libcalico.datastore.interface import Datastore, Put
from libcalico.model import Node
from libcalico.model.keys import ResourceKey
from libcalico.model.node import NodeStatus
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


def test_wireguard_needs_its_key_and_no_host_encryption() -> None:
    from libcalico.model import Metadata

    pool = Pool("p", ip_network("10.0.0.0/26"), 28)
    plain = Node(metadata=Metadata(name="n1"))
    keyed = msgspec.structs.replace(plain, status=NodeStatus(wireguardPublicKey="k"))
    assert tunnels.asking(WIREGUARD, [pool], plain).all == ()
    assert [p.name for p in tunnels.asking(WIREGUARD, [pool], keyed).open] == ["p"]
    assert tunnels.asking(WIREGUARD, [pool], keyed, host_encryption=True).all == ()
    for tunnel in TUNNELS:
        written = tunnel.written(plain, "10.0.0.1")
        assert tunnel.recorded(written) == "10.0.0.1"
        assert tunnel.recorded(tunnel.written(written, "")) == ""
