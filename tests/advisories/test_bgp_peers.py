"""Peers that stall, and addresses of services that nobody configured: a real node's BGP.

hub: BIRD 10.99.0.254; raw peers .101 to .104       n2: a node of the cluster that lies
                \\____________ n1: calico-bgp with its ExaBGP ____________/
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.bgp.session_lab import RawPeer
from tests.bgp.world import ROUTER, Node, World, cluster
from tests.k8s import binaries
from tests.lab_scenarios.relay import relayed_into
from tests.support import bgp_wire as wire
from tests.support.apiserver import ADMIN, ApiServer
from tests.support.patience import wait_for

MUTE, HALF, OPENED, LATE = (IPv4Address(f"10.99.0.{number}") for number in range(101, 105))
NODE = IPv4Address("10.99.0.1")
RANGE, BALANCERS = "10.96.0.0/16", "192.0.2.0/24"
IN_RANGE, OUTSIDE = "192.0.2.10", "198.51.100.10"
HELD = 150
"""Connections that one peer opens and leaves; ExaBGP's backlog is 200."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """The node and its router have their session; services have ranges."""
    with cluster(2) as world:
        for number in range(101, 105):
            world.hub.run("ip", "addr", "add", f"10.99.0.{number}/24", "dev", "br0")
        for node in world.nodes.values():
            world.register(node)
        world.apply("IPPool", "pods", {"cidr": "10.65.0.0/16", "blockSize": 26})
        services = {
            "serviceClusterIPs": [{"cidr": RANGE}],
            "serviceLoadBalancerIPs": [{"cidr": BALANCERS}],
        }
        world.apply("BGPConfiguration", "default", services)
        world.peer_with_router()
        for address in (MUTE, HALF, OPENED):
            peer_with(world, address)
        world.block("n1", "10.65.1.0/26")
        world.block("n2", "10.65.2.0/26")
        world.start_bird()
        world.nodes["n1"].start()
        wait_for(lambda: is_up(world, ROUTER), "the router's session")
        yield world


def peer_with(world: World, address: IPv4Address, **more: object) -> None:
    """One peer of the first node."""
    spec = {"node": "n1", "peerIP": str(address), "asNumber": 64512, **more}
    world.apply("BGPPeer", f"raw-{address.packed[3]}", spec)


def is_up(world: World, address: object) -> bool:
    """Whether the node's session with a peer is Established."""
    found = world.nodes["n1"].peers().get(str(address))
    return found is not None and found["info"] == "Established"


def half_open(sources: list[IPv4Address]) -> None:
    """A SYN from each of these addresses, which nobody has, to the node (RFC 9293 3.1)."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for number, source in enumerate(sources):
            tcp = struct.pack("!HHIIBBHHH", 20000 + number, 179, 1, 0, 5 << 4, 2, 65535, 0, 0)
            pseudo = source.packed + NODE.packed + struct.pack("!HH", 6, len(tcp))
            total = sum(struct.unpack(f"!{len(pseudo + tcp) // 2}H", pseudo + tcp))
            checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            tcp = tcp[:16] + struct.pack("!H", checksum) + tcp[18:]
            head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
            raw.sendto(head + source.packed + NODE.packed + tcp, (str(NODE), 0))


async def until(check: Callable[[], object], what: str) -> None:
    """Poll in a thread: the check reads files and starts programs."""
    await asyncio.to_thread(wait_for, check, what)


@pytest.mark.promise("ADV-5")
def test_stalled_handshakes_stop_neither_sessions_nor_the_agent_nor_new_peers(world: World) -> None:
    n1 = world.nodes["n1"]
    session = n1.peers()[ROUTER]["session"]

    async def stall() -> None:
        mute, half, opened, late = (RawPeer(each) for each in (MUTE, HALF, OPENED, LATE))
        crowd = [RawPeer(MUTE) for _ in range(HELD)]
        async with contextlib.AsyncExitStack() as stack:
            for each in (mute, half, opened, late, *crowd):
                stack.push_async_callback(each.close)
            for each in (mute, half, opened):
                await each.dial(to=NODE)
            await half.send_bytes(wire.message(wire.OPEN, bytes(10))[:25])
            can = wire.four_octet_as(64512)
            body = wire.open_body(64512, OPENED.packed, hold=90, capabilities=can)
            await opened.send(wire.OPEN, body)
            for each in crowd:
                await each.dial(to=NODE)
            half_open([IPv4Address("10.99.0.120") + number for number in range(100)] * 3)
            # What is new is told, and a new peer comes up beside all of them.
            world.block("n1", "10.65.3.0/26")
            await until(lambda: "10.65.3.0/26" in world.bird_routes(), "the router knows it")
            peer_with(world, LATE)
            await until(lambda: str(LATE) in n1.peers(), "a new peer is planned")
            late_up = asyncio.create_task(until(lambda: is_up(world, LATE), "a new peer is up"))
            await bring_up(late, late_up)
            assert await asyncio.to_thread(n1.get, "liveness")
            assert not is_up(world, OPENED)
            # Who stalled comes up by another connection.
            again = RawPeer(MUTE)
            stack.push_async_callback(again.close)
            await bring_up(again, asyncio.create_task(until(lambda: is_up(world, MUTE), "again")))

    with world.hub.entered():
        asyncio.run(stall())
    router = n1.peers()[ROUTER]
    assert (router["info"], router["session"]) == ("Established", session)


async def bring_up(raw: RawPeer, done: asyncio.Task[None]) -> None:
    """Dial and open until the session is up: a connection may cross one that the node dials."""
    while not done.done():
        await raw.dial(to=NODE)
        await raw.open()
        closed = asyncio.create_task(raw.closed.wait())
        await asyncio.wait({closed, done}, return_when=asyncio.FIRST_COMPLETED)
        if not closed.done():
            closed.cancel()
            break
        await raw.close()
    await done


@pytest.mark.promise("ADV-8")
def test_a_nodes_service_addresses_outside_the_ranges_are_not_believed(world: World) -> None:
    """What lies in them is, as long as they are configured."""
    n1, liar = world.nodes["n1"], IPv4Address("10.99.0.2")
    outside = [f"{OUTSIDE}/32", "10.97.0.0/16", "10.96.0.0/15", "192.0.3.0/24", "0.0.0.0/0"]
    inside = ["10.96.7.7/32", f"{IN_RANGE}/32", "10.65.2.0/26"]
    attributes = wire.ORIGIN + wire.AS_PATH + wire.attribute(0x40, 3, liar.packed)

    async def lie() -> None:
        raw = RawPeer(liar)
        try:
            await bring_up(raw, asyncio.create_task(until(lambda: is_up(world, liar), "n2's")))
            nets = b"".join(wire.nlri(each) for each in (*outside, *inside))
            await raw.update(attributes=attributes, reachable=nets)
            await until(lambda: set(inside) <= set(n1.ear.table), "what n2 may say is believed")
            assert not set(outside) & set(n1.ear.table)
            await until(lambda: n1.peers()[str(liar)]["refused"] == len(outside), "all are named")
            world.apply("BGPConfiguration", "default", {"serviceClusterIPs": [{"cidr": RANGE}]})
            await until(lambda: f"{IN_RANGE}/32" not in n1.ear.table, "its range is gone")
            assert {"10.96.7.7/32", "10.65.2.0/26"} <= set(n1.ear.table)
        finally:
            await raw.close()

    with world.nodes["n2"].space.entered():
        asyncio.run(lie())


def test_what_an_external_peer_seldom_means_is_named_and_taken_only_by_a_filter(
    world: World,
) -> None:
    """Said byte by byte: most speakers would not. No filter makes a loopback address a next hop."""
    n1 = world.nodes["n1"]
    doubted = {"255.255.255.255/32": "broadcast", "240.1.0.0/16": "reserved"}
    hops = {"10.66.2.0/24": "127.0.0.1", "10.66.3.0/24": str(NODE)}
    never = {"10.66.2.0/24": "no host address", "10.66.3.0/24": "its next hop is this node"}

    def named() -> dict[str, str]:
        found: dict[str, str] = n1.peers()[str(HALF)]["refused_paths"]
        return found

    async def update(raw: RawPeer, hop: str, *nets: str) -> None:
        attributes = wire.ORIGIN + wire.AS_PATH + wire.attribute(0x40, 3, IPv4Address(hop).packed)
        await raw.update(attributes=attributes, reachable=b"".join(map(wire.nlri, nets)))

    async def say() -> None:
        raw = RawPeer(HALF)
        try:
            await bring_up(raw, asyncio.create_task(until(lambda: is_up(world, HALF), "its")))
            await update(raw, str(HALF), *doubted, "10.66.1.0/24")
            for net, hop in hops.items():
                await update(raw, hop, net)
            await until(lambda: "10.66.1.0/24" in n1.ear.table, "what is taken")
            await until(lambda: named().keys() == (doubted | never).keys(), "what is not")
            for net, why in (doubted | never).items():
                assert why in named()[net]
            assert not (doubted | never).keys() & n1.ear.table.keys()
            world.apply("BGPFilter", "odd", {"importV4": [{"action": "Accept"}]})
            peer_with(world, HALF, filters=["odd"])
            await until(lambda: doubted.keys() <= n1.ear.table.keys(), "the filter lets them in")
            await until(lambda: named().keys() == never.keys(), "the others are never taken")
        finally:
            await raw.close()
            peer_with(world, HALF)

    with world.hub.entered():
        asyncio.run(say())


@pytest.mark.promise("ADV-8")
def test_ranges_alone_are_announced_and_only_while_they_are_configured(world: World) -> None:
    def configure(*ranges: str) -> None:
        services = [{"cidr": each} for each in ranges]
        world.apply("BGPConfiguration", "default", {"serviceExternalIPs": services})

    def told() -> set[str]:
        return {each for each in world.bird_routes() if not each.startswith(("10.65.", "10.200."))}

    configure(RANGE, BALANCERS)
    wait_for(lambda: told() == {RANGE, BALANCERS}, "both")
    configure(BALANCERS)
    wait_for(lambda: told() == {BALANCERS}, "one")
    configure()
    wait_for(lambda: told() == set(), "none")


@contextmanager
def kubernetes(node: Node, api: ApiServer, folder: Path) -> Iterator[None]:
    """The node's agent reads services from this API server."""
    file = folder / "kubeconfig"
    ca = folder / "ca.pem"
    ca.write_bytes(api.ca)
    file.touch(mode=0o600)
    cluster = {"server": api.url, "certificate-authority": str(ca)}
    tree = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": ADMIN}}],
        "clusters": [{"name": "c", "cluster": cluster}],
    }
    file.write_text(json.dumps(tree))
    node.environ["KUBECONFIG"] = str(file)
    with relayed_into([node.space.fd], api.port):
        yield


@pytest.mark.apiserver
@pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "built")
@pytest.mark.promise("ADV-8")
def test_a_services_address_outside_the_ranges_is_announced_by_nobody(
    world: World, tmp_path: Path
) -> None:
    """Two load balancers' addresses with an endpoint here, in a real API; one is in a range."""
    api = ApiServer(tmp_path / "api").start()
    node = world.nodes["n1"]
    ranges = {"serviceLoadBalancerIPs": [{"cidr": BALANCERS}]}
    world.apply("BGPConfiguration", "default", ranges)
    try:
        with kubernetes(node, api, tmp_path):
            node.kill()
            node.start()
            for name, address in (("outside", OUTSIDE), ("inside", IN_RANGE)):
                path = "/api/v1/namespaces/default/services"
                spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
                api.ensure(
                    path, {"metadata": {"name": name}, "spec": {**spec, "ports": [{"port": 80}]}}
                )
                status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
                kind = "application/merge-patch+json"
                api.call("PATCH", f"{path}/{name}/status", status, content=kind)
                api.slice(f"{name}-1", name, ["10.65.1.5"], [80], node="n1")
            wait_for(lambda: f"{IN_RANGE}/32" in world.bird_routes(), "the one inside")
            assert f"{OUTSIDE}/32" not in world.bird_routes()
    finally:
        api.stop()
