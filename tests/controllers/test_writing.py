"""Who may write, and what of a node goes with it: LEAD-4, LEAK-5, and what is others' stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from ipaddress import ip_network

import pytest

from controllers.leadership.fence import FencedClient, FencedStore
from controllers.leadership.leader import Elector, LostLease
from ipam.admin import node_removal
from ipam.records import blocks, handles
from libcalico.datastore.interface import ABSENT, Put, Selection
from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.model import (
    BGPPeer,
    BGPPeerSpec,
    BlockAffinity,
    ClusterInformation,
    ClusterInformationSpec,
    HostEndpoint,
    HostEndpointSpec,
    Metadata,
    Node,
    Profile,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, Key, ResourceKey
from tests.controllers.test_last_question import GONE, World
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool

KEY = ResourceKey("Profile", "mine")
NOWHERE = Client(lambda: Access("http://127.0.0.1:1"))


def refused() -> None:
    raise LostLease("it is not held")


def test_without_the_lease_the_store_is_read_and_not_written() -> None:
    async def story() -> None:
        below = MemoryStore()
        store = FencedStore(below, refused)
        with pytest.raises(LostLease):
            await store.commit([Put(KEY, Profile(metadata=Metadata(name="mine")), ABSENT)])
        assert not below.commits
        assert await store.get(KEY) is None
        assert not (await store.list(Selection("Profile"))).entries

    asyncio.run(story())


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("held", [False, True])
def test_without_the_lease_the_api_is_asked_and_not_told(
    method: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, str, Mapping[str, str] | None, bytes, str, str]] = []

    async def request(
        _self: Client, method: str, path: str, query: Mapping[str, str] | None = None,
        body: bytes = b"", content: str = "", accept: str = "",
    ) -> bytes:  # fmt: skip
        sent.append((method, path, query, body, content, accept))
        return b"answer"

    monkeypatch.setattr(Client, "request", request)
    client = FencedClient(NOWHERE, (lambda: None) if held else refused)
    asked = (method, "/path", {"a": "b"}, b"body", "kind", "forms")
    if held or method == "GET":
        assert asyncio.run(client.request(*asked)) == b"answer"
        assert sent == [asked]
    else:
        with pytest.raises(LostLease):
            asyncio.run(client.request(*asked))
        assert not sent


@pytest.mark.parametrize(
    ("leading", "left", "may"), [(True, 60, True), (True, -1, False), (False, 60, False)]
)
def test_a_lease_is_held_by_who_leads_and_only_until_it_ends(
    leading: bool, left: float, may: bool
) -> None:
    elector = Elector(NOWHERE, "leases", "me")
    elector.leading, elector._until = leading, time.monotonic() + left
    if may:
        elector.check()
    else:
        with pytest.raises(LostLease):
            elector.check()


def test_the_claims_of_a_node_that_is_gone_stay_while_a_block_holds_an_address() -> None:
    """An ADD may have come since the addresses were judged."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        world.api.node = GONE
        held, before = world.held, world.store.blocks()
        await world.part._claims._give_up("n1")
        assert world.claims == 1
        assert world.store.blocks() == before
        assert world.held == held
        assert len(held) == 1

    asyncio.run(story())


@pytest.mark.parametrize("ready", [False, True])
def test_while_the_datastore_is_locked_nothing_is_judged(ready: bool) -> None:
    """LEAK-4."""

    async def story() -> None:
        world = World()
        await world.begin(num4=1)
        held = world.held
        spec = ClusterInformationSpec(datastoreReady=ready)
        value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        await world.store.commit([Put(ResourceKey("ClusterInformation", "default"), value)])
        await world.look_twice()
        assert world.held == (set() if ready else held)
        assert world.part.looks == (2 if ready else 0)

    asyncio.run(story())


def endpoint(node: str, address: str) -> tuple[Key, WorkloadEndpoint]:
    name = f"{node}-k8s-web-eth0"
    spec = WorkloadEndpointSpec(node=node, containerID=node, ipNetworks=[f"{address}/32"])
    value = WorkloadEndpoint(metadata=Metadata(name=name, namespace="default"), spec=spec)
    return ResourceKey("WorkloadEndpoint", name, "default"), value


def test_with_a_node_goes_its_own_and_nothing_of_another() -> None:
    """An endpoint that nobody removed may name an address that another node's pod has by now."""

    async def story() -> None:
        store = MemoryStore()
        await put_pool(store, "p", "10.0.0.0/24", 29)
        things: dict[Key, object] = {}
        for node, network in (("n1", "10.0.0.0/29"), ("n10", "10.0.0.8/29")):
            cidr = ip_network(network)
            block = blocks.create(cidr, f"host:{node}", None, 5)
            block, _ = blocks.assign(block, 1, f"net.{node}", {"node": node})
            tunnel = {"node": node, "type": "vxlanTunnelAddress"}
            block, _ = blocks.assign(block, 1, f"vxlan-tunnel-addr-{node}", tunnel)
            things |= dict([endpoint(node, str(cidr[0]))])
            things |= {
                ResourceKey("Node", node): Node(metadata=Metadata(name=node)),
                BlockKey(cidr): block,
                AffinityKey(node, cidr): BlockAffinity(state="confirmed"),
                HandleKey(f"net.{node}"): handles.add(None, network, 1),
                HandleKey(f"vxlan-tunnel-addr-{node}"): handles.add(None, network, 1),
                ResourceKey("BGPPeer", f"peer-{node}"): BGPPeer(
                    metadata=Metadata(name=f"peer-{node}"), spec=BGPPeerSpec(node=node)
                ),
                ResourceKey("HostEndpoint", f"host-{node}"): HostEndpoint(
                    metadata=Metadata(name=f"host-{node}"), spec=HostEndpointSpec(node=node)
                ),
            }
        # Of what the oldest releases wrote, nobody can say which node it is for.
        old = ip_network("10.0.0.16/29")
        block, _ = blocks.assign(blocks.create(old, "host:n10", None, 5), 1, "net.n10-old", {})
        things |= {BlockKey(old): block, HandleKey("net.n10-old"): handles.add(None, str(old), 1)}
        things |= dict([endpoint("n100", "10.0.0.16")])
        # What n1's pod left behind names the address of n10's.
        left, value = endpoint("n1", "10.0.0.8")
        things[ResourceKey("WorkloadEndpoint", "n1-k8s-left-eth0", "default")] = value
        for key, each in things.items():
            await store.commit([Put(key, each)])
        others = {k: e.value for k, e in store.entries.items() if "n10" in str(k)}
        others |= {k: e.value for k, e in store.entries.items() if "10.0.0.8" in str(k)}
        others |= {k: e.value for k, e in store.entries.items() if "10.0.0.16" in str(k)}
        entry = await store.get(ResourceKey("Node", "n1"))
        assert entry is not None
        await node_removal.remove(store, entry)
        there = {key: each.value for key, each in store.entries.items()}
        assert others.items() <= there.items()
        assert there.keys() - others.keys() == {ResourceKey("IPPool", "p")}
        assert left not in there

    asyncio.run(story())
