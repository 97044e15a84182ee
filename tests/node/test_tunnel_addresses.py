"""Tunnel addresses follow the pools while the node runs; trouble is tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from msgspec.structs import replace

from ipam.admin import library
from ipam.admin.check import check
from ipam.admin.library import AssignRequest
from ipam.admin.tunnels import IPIP, VXLAN, Tunnel
from ipam.records import snapshot
from libcalico.datastore.interface import Datastore, Entry
from libcalico.datastore.syncer import Update
from libcalico.model import Metadata, Node
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import NodeAddress, NodeBGPSpec, NodeSpec
from linux.netlink import open_in_netns
from node.start import tunnel_addresses
from node.start.tunnel_addresses import Keeper
from tests.ipam.world import put_node, put_pool
from tests.support.etcd import Etcd
from tests.support.netns import network_namespace
from tests.support.patience import until, until_asked

NAME = "n1"


@asynccontextmanager
async def keeping(store: Datastore, *, devices: bool = False) -> AsyncIterator[Keeper]:
    """`devices`: somebody is to make them; most of these tests have no felix."""
    keeper = Keeper(store, NAME, devices=devices)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def has(store: Datastore, *tunnels: Tunnel) -> bool:
    """Whether the Node names the addresses of these tunnels, and of no other."""
    entry = await store.get(ResourceKey("Node", NAME))
    assert entry is not None
    return {each for each in (IPIP, VXLAN) if each.recorded(entry.value)} == set(tunnels)


@pytest.mark.asyncio
@pytest.mark.promise("M-144", "M-149", "F-60")
async def test_a_pools_mode_gives_and_takes_addresses(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, NAME)
        await put_pool(store, "p", "10.0.0.0/26", 28)
        async with keeping(store):
            await put_pool(store, "p", "10.0.0.0/26", 28, ipipMode="CrossSubnet")
            await until_asked(lambda: has(store, IPIP))
            await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
            await until_asked(lambda: has(store, VXLAN))
            await put_pool(store, "p", "10.0.0.0/26", 28)
            await until_asked(lambda: has(store))
            report = check(await snapshot.read(store))
            assert not report.records, "what is not asked for is given back"


@pytest.mark.asyncio
@pytest.mark.promise("M-144")
async def test_an_address_is_told_when_its_device_unwraps_and_never_without(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other tunnel does not wait for a device that this kernel may never have (TAD-1)."""
    monkeypatch.setattr(tunnel_addresses, "PATIENCE", 0.2)
    monkeypatch.setattr(tunnel_addresses, "LATER_LOOK", 0.05)
    with network_namespace("node") as space:
        monkeypatch.setattr(tunnel_addresses, "Socket", lambda: open_in_netns(space.fd))
        async with etcd.connect() as store:
            await put_node(store, NAME)
            await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
            await put_pool(store, "q", "10.0.1.0/26", 28, ipipMode="Always")
            async with keeping(store, devices=True):
                space.run("ip", "link", "add", "vxlan.calico", "type", "bridge")
                told = "no address is told before its device is up: tunl0, vxlan.calico"
                await until(lambda: told in caplog.text)
                assert await has(store), "it is not up"
                space.run("ip", "link", "set", "vxlan.calico", "up")
                await until_asked(lambda: has(store, VXLAN))
                await until(lambda: "device is up: tunl0; told so far: vxlan" in caplog.text)
                await asyncio.sleep(0.5)
                assert await has(store, VXLAN), "still no tunl0"
                space.run("ip", "link", "add", "tunl0", "type", "bridge")
                space.run("ip", "link", "set", "tunl0", "up")
                await until_asked(lambda: has(store, IPIP, VXLAN))


@pytest.mark.asyncio
@pytest.mark.promise("M-144")
async def test_an_address_is_withdrawn_when_its_device_stays_away(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TAD-2: not for a moment's absence; told again when it is back; the other one stays."""
    monkeypatch.setattr(tunnel_addresses, "PATIENCE", 0.2)
    monkeypatch.setattr(tunnel_addresses, "LATER_LOOK", 0.05)
    monkeypatch.setattr(tunnel_addresses, "MISSING", 1.0)
    with network_namespace("node") as space:
        monkeypatch.setattr(tunnel_addresses, "Socket", lambda: open_in_netns(space.fd))
        async with etcd.connect() as store:
            await put_node(store, NAME)
            await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
            await put_pool(store, "q", "10.0.1.0/26", 28, ipipMode="Always")
            for device in ("vxlan.calico", "tunl0"):
                space.run("ip", "link", "add", device, "up", "type", "bridge")
            async with keeping(store, devices=True):
                await until_asked(lambda: has(store, IPIP, VXLAN))
                begun = time.monotonic()
                space.run("ip", "link", "del", "vxlan.calico")
                await until_asked(lambda: has(store, IPIP))
                assert time.monotonic() - begun >= 1.0, "it may be made anew"
                assert "vxlan.calico has been missing" in caplog.text
                report = check(await snapshot.read(store))
                assert [each.handle_id for each in report.records] == ["ipip-tunnel-addr-n1"]
                space.run("ip", "link", "add", "vxlan.calico", "up", "type", "bridge")
                await until_asked(lambda: has(store, IPIP, VXLAN))


@pytest.mark.asyncio
async def test_a_pool_that_asks_while_another_is_looked_at_waits_for_the_device_too(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TAD-1: what is asked for is read once more when the address is taken."""
    monkeypatch.setattr(tunnel_addresses, "PATIENCE", 0.2)
    monkeypatch.setattr(tunnel_addresses, "LATER_LOOK", 0.05)

    class Overtaken(Keeper):
        async def _asked(self) -> dict[Tunnel, str]:
            found = await super()._asked()
            if not found:
                await put_pool(self._store, "p", "10.0.0.0/26", 28, ipipMode="Always")
            return found

    with network_namespace("node") as space:
        monkeypatch.setattr(tunnel_addresses, "Socket", lambda: open_in_netns(space.fd))
        monkeypatch.setattr(f"{__name__}.Keeper", Overtaken)
        async with etcd.connect() as store:
            await put_node(store, NAME)
            async with keeping(store, devices=True):
                await until(lambda: "before its device is up: tunl0" in caplog.text)
                assert await has(store)
                space.run("ip", "link", "add", "tunl0", "up", "type", "bridge")
                await until_asked(lambda: has(store, IPIP))


@pytest.mark.asyncio
async def test_a_device_is_missed_only_while_its_address_is_told(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TAD-2: an address that is new is not withdrawn for the time before it."""
    looks: list[str] = []

    def is_up(name: str) -> bool:
        looks.append(name)
        return name in up

    up: set[str] = set()
    monkeypatch.setattr(tunnel_addresses, "LATER_LOOK", 0.02)
    monkeypatch.setattr(tunnel_addresses, "PATIENCE", 0.1)
    monkeypatch.setattr(tunnel_addresses, "_is_up", is_up)
    async with etcd.connect() as store:
        await put_node(store, NAME)
        await put_pool(store, "p", "10.0.0.0/26", 28, ipipMode="Always")
        async with keeping(store, devices=True) as keeper:
            await until(lambda: len(looks) > 30)
            assert keeper._lost == {}
            up.add("tunl0")
            await until_asked(lambda: has(store, IPIP))
            up.clear()
            await until(lambda: keeper._lost.keys() == {"tunl0"})
            up.add("tunl0")
            await until(lambda: keeper._lost == {})


@pytest.mark.asyncio
async def test_nothing_is_written_while_nothing_changes(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_node(store, NAME)
        await put_pool(store, "p", "10.0.0.0/26", 28, vxlanMode="Always")
        async with keeping(store) as keeper:
            await until_asked(lambda: has(store, VXLAN))
            await until(lambda: keeper.settled >= 2)
            before = etcd.revision()
            await put_node(store, "n10")
            await asyncio.sleep(0.3)
            assert etcd.revision() == before + 1, "n10's own"


@pytest.mark.asyncio
async def test_a_full_pool_is_tried_again(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tunnel_addresses, "FIRST_RETRY", 0.05)
    monkeypatch.setattr(tunnel_addresses, "LAST_RETRY", 0.1)
    async with etcd.connect() as store:
        await put_node(store, NAME)
        await put_node(store, "n2")
        await put_pool(store, "p", "10.0.0.0/30", 30, vxlanMode="Always")
        await library.auto_assign(store, AssignRequest("n2", "pods", {"pod": "a"}, num4=4))
        async with keeping(store):
            await until(lambda: "tunnel addresses: " in caplog.text)
            await library.release_by_handle(store, "pods")
            await until_asked(lambda: has(store, VXLAN))


def test_a_heartbeat_of_the_own_node_asks_nothing_of_the_allocator() -> None:
    keeper = Keeper(cast("Datastore", None), NAME, devices=False)
    node = Node(
        metadata=Metadata(name=NAME), spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address="10.0.0.1"))
    )

    def told(value: Node | None, name: str = NAME, revision: int = 1) -> bool:
        key = ResourceKey("Node", name)
        entry = Entry(key, value, revision, b"") if value is not None else None
        return keeper._matters(Update(key, entry))

    assert told(node)
    spec = replace(node.spec, addresses=[NodeAddress(address="10.0.0.1", type="InternalIP")])
    beat = replace(node, spec=spec, metadata=Metadata(name=NAME, annotations={"kubelet": "1"}))
    assert not told(beat, revision=2)
    assert not told(node, "n12")
    assert told(replace(node, metadata=Metadata(name=NAME, labels={"rack": "1"})), revision=3)
    assert told(replace(node, spec=replace(node.spec, ipv4VXLANTunnelAddr="10.65.0.1")))
    assert told(None)
    assert told(node, revision=5)
