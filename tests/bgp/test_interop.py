"""`calico-bgp` with ExaBGP against BIRD 2 and its own kind, over real sessions.

Topology: see `world.py`. What is expected is said in each test; what BIRD has is asked of
BIRD and of the kernel it programs, never of our own process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libcalico.datastore.etcd.keys import path_of
from libcalico.model.keys import AffinityKey, ResourceKey
from libcalico.model.resources.ipam import BlockAffinity
from tests.bgp import bird_client
from tests.bgp.world import ROUTER, ROUTER6, Node, World, cluster
from tests.support import stopping
from tests.support.patience import wait_for

TOR = {"10.200.0.0/24": (ROUTER,)}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[World, Node, Node]]:
    """Two nodes in a mesh, and the router; one block each; all sessions up."""
    with cluster(2) as world:
        n1, n2 = world.nodes["n1"], world.nodes["n2"]
        for node in (n1, n2):
            world.register(node)
        world.apply("IPPool", "pods", {"cidr": "10.65.0.0/16", "blockSize": 26})
        world.peer_with_router()
        world.block("n1", "10.65.1.0/26")
        world.block("n2", "10.65.2.0/26")
        world.start_bird()
        for node in (n1, n2):
            node.start()
        settle(world, n1, n2)
        yield world, n1, n2


def settle(world: World, n1: Node, n2: Node) -> None:
    """The state every test starts from and ends in."""
    wait_for(lambda: n1.up(ROUTER, n2.address), "n1's sessions")
    wait_for(lambda: n2.up(ROUTER, n1.address), "n2's sessions")
    wait_for(lambda: n1.ear.table == {**TOR, "10.65.2.0/26": (n2.address,)}, "n1's table")
    wait_for(lambda: n2.ear.table == {**TOR, "10.65.1.0/26": (n1.address,)}, "n2's table")
    wait_for(
        lambda: world.kernel_routes() == {"10.65.1.0/26", "10.65.2.0/26"}, "BIRD's kernel table"
    )
    wait_for(lambda: n1.ear.complete and n2.ear.complete, "snapshots complete")


@pytest.mark.promise("F-38")
@pytest.mark.promise("M-134")
def test_mesh_and_router(pair: tuple[World, Node, Node]) -> None:
    """Blocks travel through mesh and router; next hops are the nodes themselves."""
    world, n1, n2 = pair
    routes = world.bird_routes()
    assert routes["10.65.1.0/26"] == {n1.address}
    assert routes["10.65.2.0/26"] == {n2.address}
    kinds = {address: peer["type"] for address, peer in n1.peers().items()}
    assert kinds == {ROUTER: "global", n2.address: "node-to-node mesh"}
    assert n1.ear.routes["10.65.2.0/26"].origin == "node"
    assert n1.ear.routes["10.200.0.0/24"].origin == "external"
    wait_for(lambda: n1.status["start_complete"] is True, "start complete")
    for page in ("liveness", "readiness"):
        wait_for(lambda page=page: n1.get(page), page)  # type: ignore[misc]
    assert 'calico_bgp_peers{state="up"} 2.0' in n1.get("metrics")


@pytest.mark.promise("M-129", "M-130", "F-56")
def test_birdc_a_client_of_calicos_and_the_report_agree(pair: tuple[World, Node, Node]) -> None:
    """What BIRD's own client, the reference's, CalicoNodeStatus and the metrics say of one node."""
    world, n1, n2 = pair
    control = n1.run / "calico" / "bird.ctl"
    told = asyncio.run(bird_client.peers(control, "."))
    assert [(peer[0], peer[1], peer[2], peer[4]) for peer in told] == [
        (n2.address, "Mesh", "up", "Established"),
        (ROUTER, "Global", "up", "Established"),
    ]
    shown = world.hub.run("birdc", "-s", str(control), "show", "route")
    assert re.search(r"^10.65.1.0/26 +blackhole \[static1 ", shown, re.M)
    assert re.search(
        rf"^10.65.2.0/26 +unicast \[Mesh_10_99_0_2 .*\n\tvia {n2.address}", shown, re.M
    )
    details = world.hub.run("birdc", "-s", str(control), "show", "protocols", "all")
    assert re.search(r"Routes: +\d imported, \d filtered, 1 exported", details)
    six = world.hub.run("birdc", "-s", str(control.with_name("bird6.ctl")), "show", "protocols")
    assert "static1" in six
    assert "Mesh" not in six
    spec = {"node": "n1", "classes": ["Agent", "BGP", "Routes"], "updatePeriodSeconds": 0}

    def report() -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(world.etcdctl("get", key, "--print-value-only"))
        found: dict[str, Any] = tree["status"]
        return found if found["lastUpdated"] else {}

    wait_for(lambda: n1.status["start_complete"] is True, "start complete")
    world.apply("CalicoNodeStatus", "n1", spec)
    key = path_of(ResourceKey("CalicoNodeStatus", "n1"))
    found = wait_for(report, "the report")
    assert found["agent"]["birdV4"]["state"] == "Ready"
    assert found["bgp"]["numberEstablishedV4"] == 2
    routes = {(one["destination"], one.get("gateway")) for one in found["routes"]["routesV4"]}
    assert ("10.65.2.0/26", n2.address) in routes
    page = n1.get("metrics")
    assert f'calico_bgp_peer_up{{asn="64500",peer="{ROUTER}",type="global"}} 1.0' in page
    assert f'calico_bgp_paths_sent{{peer="{n2.address}"}} 1.0' in page


def test_exabgp_has_one_capability_and_its_own_user(pair: tuple[World, Node, Node]) -> None:
    """ExaBGP runs as its own uid with CAP_NET_BIND_SERVICE; nobody else reads its files."""
    _, n1, _ = pair
    (pid,) = n1.exabgp()
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split()[1] == "61179"
    assert int(status["CapEff"], 16) == 1 << 10
    assert status["NoNewPrivs"] == "1"
    directory = n1.run / "calico" / "bgp"
    assert directory.stat().st_mode & 0o007 == 0
    configuration = directory / "exabgp.conf"
    assert (configuration.stat().st_mode & 0o777, configuration.stat().st_uid) == (0o400, 61179)


@pytest.mark.promise("M-131")
def test_datastore_changes_reach_the_speaker(pair: tuple[World, Node, Node]) -> None:
    """A block, a borrowed address, their end: announced and withdrawn without any restart."""
    world, n1, n2 = pair
    assert n1.process is not None
    before = (n1.process.pid, sorted(n1.exabgp()), n1.peers()[ROUTER]["session"])
    world.block("n1", "10.65.9.0/26")
    wait_for(lambda: "10.65.9.0/26" in world.kernel_routes(), "the block in BIRD's kernel")
    wait_for(lambda: "10.65.9.0/26" in n2.ear.table, "and at n2")
    world.lend("10.65.2.0/26", {7: "n1"})
    wait_for(lambda: world.bird_routes().get("10.65.2.7/32") == {n1.address}, "the borrowed /32")
    wait_for(lambda: n2.ear.table.get("10.65.2.7/32") == (n1.address,), "at the owner")
    n1.space.run("ip", "addr", "add", "10.65.2.7/32", "dev", "lo")
    ping = ("ping", "-c1", "-W1", "10.65.2.7")
    wait_for(lambda: "1 received" in world.hub.run(*ping, check=False), "packets")
    n1.space.run("ip", "addr", "del", "10.65.2.7/32", "dev", "lo")
    world.put(AffinityKey("n1", ip_network("10.65.9.0/26")), BlockAffinity(state="pendingDeletion"))
    wait_for(lambda: "10.65.9.0/26" not in world.kernel_routes(), "an unconfirmed block goes")
    world.unblock("n1", "10.65.9.0/26")
    world.lend("10.65.2.0/26", {})
    wait_for(lambda: "10.65.2.7/32" not in world.bird_routes(), "the address was given back")
    settle(world, n1, n2)
    assert (n1.process.pid, sorted(n1.exabgp()), n1.peers()[ROUTER]["session"]) == before


def test_a_health_port_that_is_taken(pair: tuple[World, Node, Node]) -> None:
    """The agent serves its peers without it, and its health as soon as the port is free."""
    world, n1, n2 = pair
    n1.kill()
    with n1.space.entered():
        other = socket.create_server(("localhost", 9097))
    with other:
        n1.start()
        settle(world, n1, n2)
    wait_for(lambda: n1.get("liveness"), "health is served")


@pytest.mark.promise("F-43")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_restart_loses_no_route(pair: tuple[World, Node, Node], number: int) -> None:
    """n1's process dies, a block moves meanwhile: nobody drops a route that still holds."""
    world, n1, n2 = pair
    world.block("n1", "10.65.9.0/26")
    wait_for(lambda: "10.65.9.0/26" in n2.ear.table, "the extra block")
    wait_for(lambda: "10.65.9.0/26" in world.kernel_routes(), "the extra block")
    n1.ear.lost.clear()
    n2.ear.lost.clear()
    complete = n1.ear.complete
    n1.kill(number)
    wait_for(lambda: not n1.exabgp(), "exabgp died with it")
    wait_for(
        lambda: "graceful restart active" in world.birdc("show", "protocols", "all", "n1"),
        "BIRD noticed",
    )
    world.unblock("n1", "10.65.9.0/26")
    kept = {"10.65.1.0/26", "10.65.2.0/26", "10.65.9.0/26"}
    assert world.kernel_routes() == kept
    assert "10.65.1.0/26" in n2.ear.table
    n1.start()
    while n1.ear.complete == complete:
        assert {"10.65.1.0/26", "10.65.2.0/26"} <= world.kernel_routes()
        time.sleep(0.05)
    settle(world, n1, n2)
    assert n1.ear.lost == []
    assert n2.ear.lost == ["10.65.9.0/26"]


@pytest.mark.promise("F-43")
def test_the_child_dies_alone(pair: tuple[World, Node, Node]) -> None:
    """A dead child comes back under the same agent; no half-alive pair, no route moves."""
    world, n1, n2 = pair
    assert n1.process is not None
    n1.ear.lost.clear()
    n2.ear.lost.clear()
    (old,), before = n1.exabgp(), n1.peers()[ROUTER]["session"]
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: n1.exabgp() not in ([], [old]), "a new one")
    wait_for(lambda: n1.peers()[ROUTER]["session"] != before, "the status knows")
    settle(world, n1, n2)
    assert n1.process.poll() is None
    assert (n1.ear.lost, n2.ear.lost) == ([], [])


def test_a_frozen_child_is_killed_before_the_hold_time(pair: tuple[World, Node, Node]) -> None:
    """SIGSTOP of ExaBGP: graceful restart does not cover a hang, the watchdog does."""
    world, n1, n2 = pair
    n2.ear.lost.clear()
    (frozen,) = n1.exabgp()
    before = n1.peers()[ROUTER]["session"]
    stopping.pause(frozen)
    wait_for(lambda: frozen not in n1.exabgp(), "killed")
    wait_for(lambda: n1.peers()[ROUTER]["session"] != before, "the status knows")
    settle(world, n1, n2)
    assert n2.ear.lost == []
    assert "Hold timer expired" not in world.birdc("show", "protocols", "all", "n1")


@pytest.mark.promise("F-44")
@pytest.mark.promise("F-45")
def test_filters_and_communities(pair: tuple[World, Node, Node]) -> None:
    """BIRD hears communities, a longer path and only what filters let through; no session moves."""
    world, n1, n2 = pair
    sessions = {address: peer["session"] for address, peer in n1.peers().items()}
    block = ("show", "route", "all", "protocol", "n1", "10.65.1.0/26")
    other = ("show", "route", "protocol", "n1", "10.65.2.0/26")
    wait_for(lambda: n1.address in world.birdc(*other), "n1 tells of n2's block, too")
    tags = [{"cidr": "10.65.0.0/16", "communities": ["65000:7", "65000:8:9"]}]
    world.apply("BGPConfiguration", "default", {"prefixAdvertisements": tags})
    wait_for(lambda: "(65000,7)" in world.birdc(*block), "the community")
    assert "(65000, 8, 9)" in world.birdc(*block)
    operations = [{"prependASPath": {"prefix": [64512, 64512]}}, {"addCommunity": {"value": "1:2"}}]
    export = [
        {"cidr": "10.65.1.0/26", "matchOperator": "Equal", "action": "Accept"},
        {"action": "Reject"},
    ]
    export[0]["operations"] = operations  # type: ignore[assignment]
    inward = [{"cidr": "10.200.0.0/16", "matchOperator": "In", "action": "Reject"}]
    world.apply("BGPFilter", "tor", {"exportV4": export, "importV4": inward})
    # Each kind has a watch of its own, and a peering with an unknown filter would be refused.
    absent = "10.99.0.99"
    world.apply("BGPPeer", "nobody", {"peerIP": absent, "asNumber": 64500, "filters": ["tor"]})
    wait_for(lambda: all(absent in node.peers() for node in (n1, n2)), "they know the filter")
    world.delete(ResourceKey("BGPPeer", "nobody"))
    world.peer_with_router(filters=["tor"])
    wait_for(lambda: "64512 64512 64512" in world.birdc(*block), "the path")
    assert "(1,2)" in world.birdc(*block)
    wait_for(lambda: n1.address not in world.birdc(*other), "nothing of n2")
    wait_for(lambda: "10.200.0.0/24" not in n1.ear.table, "nothing of the router")
    told = {"10.200.0.0/24": "a BGPFilter of the peering rejects it"}

    def refused() -> list[dict[str, str]]:
        return [node.peers()[ROUTER]["refused_paths"] for node in (n1, n2)]

    wait_for(lambda: refused() == [told, told], "the status")
    world.peer_with_router()
    wait_for(lambda: refused() == [{}, {}], "no peer uses the filter")
    world.delete(ResourceKey("BGPFilter", "tor"))
    world.delete(ResourceKey("BGPConfiguration", "default"))
    settle(world, n1, n2)
    wait_for(lambda: "65000" not in world.birdc(*block), "no community")
    assert {address: peer["session"] for address, peer in n1.peers().items()} == sessions


@pytest.mark.promise("M-131")
def test_peer_added_and_removed_at_run_time(pair: tuple[World, Node, Node]) -> None:
    """A new node joins the mesh and leaves: the other sessions do not notice."""
    world, n1, n2 = pair
    sessions = n1.peers()[ROUTER]["session"], n1.peers()[n2.address]["session"]
    n1.ear.lost.clear()
    world.apply("Node", "n9", {"bgp": {"ipv4Address": "10.99.0.9/24"}})
    wait_for(lambda: "10.99.0.9" in n1.peers(), "n1 waits for n9")
    assert n1.peers()["10.99.0.9"]["info"].startswith("Active")
    world.delete(ResourceKey("Node", "n9"))
    settle(world, n1, n2)
    assert (n1.peers()[ROUTER]["session"], n1.peers()[n2.address]["session"]) == sessions
    assert n1.ear.lost == []


def test_datastore_away(pair: tuple[World, Node, Node]) -> None:
    """etcd dies: no session and no route moves, even when n1 is killed meanwhile.

    etcd comes back: the sessions do not notice, and changes arrive again.
    """
    world, n1, n2 = pair
    n1.ear.lost.clear()
    n2.ear.lost.clear()
    world.kill_etcd()
    wait_for(lambda: n1.status["datastore"] is False, "n1 says so")
    assert n1.up(ROUTER, n2.address)
    n1.kill()
    n1.start()
    wait_for(lambda: n1.status.get("start_complete"), "n1 is back without etcd")
    wait_for(lambda: n1.up(ROUTER, n2.address), "with its sessions")
    sessions = n1.peers()[ROUTER]["session"], n1.peers()[n2.address]["session"]
    world.start_etcd()
    world.block("n1", "10.65.9.0/26")
    wait_for(lambda: "10.65.9.0/26" in n2.ear.table, "a block after it")
    world.unblock("n1", "10.65.9.0/26")
    settle(world, n1, n2)
    assert (n1.ear.lost, n2.ear.lost) == ([], ["10.65.9.0/26"])
    assert (n1.peers()[ROUTER]["session"], n1.peers()[n2.address]["session"]) == sessions


@pytest.mark.promise("F-43")
def test_router_disabled_and_router_killed(pair: tuple[World, Node, Node]) -> None:
    """A NOTIFICATION withdraws at once. SIGKILL keeps the paths, until End-of-RIB or F=0."""
    world, n1, n2 = pair
    world.birdc("disable", "n1")
    wait_for(lambda: "10.200.0.0/24" not in n1.ear.table, "withdrawn at once")
    assert "10.65.2.0/26" in n1.ear.table  # by the mesh
    world.birdc("enable", "n1")
    settle(world, n1, n2)
    n1.ear.lost.clear()
    n2.ear.lost.clear()
    assert world.bird is not None
    world.bird.kill()
    world.bird.wait()
    wait_for(lambda: n1.peers()[ROUTER]["graceful_restart"] == "keeping routes", "n1 noticed")
    assert n1.ear.table["10.200.0.0/24"] == (ROUTER,)
    assert n1.peers()[ROUTER]["stale"] >= 1
    world.start_bird(recover=True)
    settle(world, n1, n2)
    wait_for(lambda: n1.peers()[ROUTER]["stale"] == 0, "learned anew")
    assert n1.ear.lost == n2.ear.lost == []


@pytest.mark.promise("F-43")
def test_dead_router_is_swept_after_its_restart_time() -> None:
    """IPv6 beside IPv4; then the router dies for good: stale for 3 s, and gone."""
    with cluster(1) as world:
        n1 = world.nodes["n1"]
        world.register(n1, ipv6=True)
        world.apply("IPPool", "pods6", {"cidr": "fd65::/48", "blockSize": 122})
        world.peer_with_router()
        world.peer_with_router("tor6", peerIP=ROUTER6)
        world.block("n1", "fd65::40/122")
        world.start_bird()
        conf = world.directory / "bird.conf"
        conf.write_text(conf.read_text().replace("restart time 240", "restart time 3"))
        world.birdc("configure")
        n1.start()
        wait_for(lambda: n1.up(ROUTER, ROUTER6), "both sessions")
        wait_for(lambda: "fd65::40/122" in world.kernel_routes(), "the IPv6 block")
        wait_for(lambda: {"10.200.0.0/24", "fd20::/64"} == set(n1.ear.table), "learned")
        assert n1.ear.table["fd20::/64"] == (ROUTER6,)
        assert world.bird is not None
        died = time.monotonic()
        world.bird.kill()
        world.bird.wait()
        wait_for(lambda: not n1.ear.table, "swept")
        assert time.monotonic() - died >= 3
