"""PRE-1, PRE-2: a node that Calico served is taken over without losing a packet."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, cast

import pytest

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.calc.blocks import BlockFacts
from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.calc.nodes import NodeFacts
from felix.calc.pools import Pool
from felix.calc.tunnels import TunnelSupport
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.view import KernelView, sort_routes
from felix.dataplane.routes.manager import RouteManager
from felix.dataplane.routes.own_routes import pod_route
from felix.dataplane.routes.stale_routes import leftovers
from felix.dataplane.turn.wake import Wake
from lab.demo.traffic import lost
from linux.links import Link
from linux.routes import NextHop, Route
from tests.felix.world import World
from tests.support.patience import HANG, wait_for

if TYPE_CHECKING:
    from felix.dataplane.routes.kernel_reader import KernelReader

ETH0 = Link(2, "eth0", "", 1500, True, True, True, False, 6, "", 0, 0, None, 0, "", b"", b"")
POOL, BLOCK = ip_network("10.65.0.0/16"), ip_network("10.65.1.0/26")


def of(protocol: int, network: str, metric: int = 0) -> Route:
    hop = NextHop(ip_address("10.99.1.2"), 2)
    return Route(ip_network(network), (hop,), protocol=protocol, metric=metric)


@pytest.mark.parametrize(
    ("protocol", "network", "owner", "wanted", "stands", "swept"),
    [
        (80, "10.65.1.0/26", "a", False, False, False),  # its tunnel is not ready
        (80, "10.65.1.9/32", "a", False, False, False),  # in the same block
        (80, "10.65.1.0/26", "a", True, False, False),  # the kernel refused ours
        (80, "10.65.1.0/26", "a", True, True, True),
        (80, "10.65.1.9/32", "a", False, True, True),
        (80, "10.65.1.0/26", "gone", False, False, True),  # no such node
        (80, "10.65.2.0/26", "a", False, False, True),  # nobody's block
        (12, "10.65.1.0/26", "a", True, False, False),
        (12, "10.65.1.0/26", "a", True, True, True),
        (12, "10.65.1.9/32", "gone", False, False, False),
    ],
)
def test_a_route_goes_when_ours_stands_or_none_is_to_come(
    protocol: int, network: str, owner: str, wanted: bool, stands: bool, swept: bool
) -> None:
    """PRE-1."""
    ours, theirs = of(ROUTE_PROTOCOL, str(BLOCK), ROUTE_METRIC), of(protocol, network)
    view = KernelView(("cali",))
    view.replace_links([ETH0], ())
    view.replace_routes(sort_routes([theirs, ours] if stands else [theirs]))
    pools = {"p": Pool(POOL, False, vxlan_mode="Always")}
    blocks = {BLOCK: BlockFacts(f"host:{owner}", frozenset())}
    cluster = ClusterRoutes("me", blocks, {"me": NodeFacts(), "a": NodeFacts()}, pools)
    cluster.pools_changed()
    cluster.settle(TunnelSupport())
    assert not cluster.ways, "no way is known: the tunnels of both are missing"
    keys = {ours.key} if wanted else set()
    assert list(leftovers(view, pools.values(), keys, cluster)) == ([theirs] if swept else [])


@pytest.mark.parametrize(
    ("network", "index", "protocol", "swept"),
    [
        ("10.65.0.1/32", 7, 3, True),  # before Calico 3.32
        ("10.65.0.1/32", 8, 3, True),  # it wins over ours, and leads astray
        ("10.65.0.1/32", 7, 17, True),  # deviceRouteProtocol
        ("10.65.0.1/32", 2, 3, False),  # an administrator's: another interface
        ("10.65.0.9/32", 7, 3, False),  # another destination
        ("10.65.0.0/30", 7, 3, False),
    ],
)
def test_a_pods_route_of_any_number_goes_once_ours_stands(
    network: str, index: int, protocol: int, swept: bool
) -> None:
    """PRE-1."""
    view = KernelView(("cali",))
    cali = [replace(ETH0, index=number, name=f"cali{number}") for number in (7, 8)]
    view.replace_links([ETH0, *cali], ())
    theirs = Route(ip_network(network), (NextHop(None, index),), protocol=protocol)
    ours = pod_route(ip_network("10.65.0.1/32"), 7)
    nowhere = ClusterRoutes("me", {}, {}, {})
    view.replace_routes(sort_routes([theirs]))
    assert not list(leftovers(view, (), (), nowhere)), "ours first: no moment without a route"
    view.replace_routes(sort_routes([theirs, ours]))
    assert list(leftovers(view, (), (), nowhere)) == ([theirs] if swept else [])


CALICOS = (
    # Of its felix: with the key of ours, of a release before 3.32, of a pod that is gone.
    "10.65.0.1 dev cali1 scope link proto boot metric 1024",
    "10.65.0.2 dev cali2 scope link proto boot",
    "10.65.9.9 via 10.99.7.2 proto 80",
    # Of its BIRD: the node's own block.
    "blackhole 10.65.0.0/26 proto bird",
    # With another deviceRouteProtocol.
    "10.65.0.3 dev cali3 scope link proto 17",
)
OTHERS = (
    "10.65.77.0/24 via 10.99.7.2 proto bird",
    "10.65.78.0/24 via 10.99.7.2 proto static",
    "10.65.79.0/24 via 10.99.7.2 proto boot",
    "198.51.100.0/24 via 10.99.7.2 proto 80",
)
NOT_YET = "10.65.1.0/26 via 10.99.7.2 proto 80"


def test_a_sweep_waits_for_a_view_that_is_to_be_read_again() -> None:
    """And not for the next time that routes are read back though nothing was told."""
    view, dirty = KernelView(("cali",)), DirtySet()
    manager = RouteManager(
        *(view, dirty, PathTable(), Wake(dirty), lambda: None), unread=lambda _: False
    )
    manager.routes.paths_known()
    swept: list[bool] = []
    manager.stale.sweep = lambda *_: swept.append(view.outdated)  # type: ignore[method-assign]
    host, news = cast("KernelReader", None), Calculator("me").take_changes(("cali",))
    manager.remove_stale(host, news, reread=True, fit=True)
    view.stale_all = view.stale_routes = False
    for _ in range(2):
        manager.remove_stale(host, news, reread=False, fit=True)
    assert swept == [False]


def show(world: World) -> list[str]:
    return [line.strip() for line in world.routes().splitlines()]


def show_of(world: World, destination: str) -> list[str]:
    return [line for line in show(world) if line.split()[0] == destination]


def has(world: World, *words: str) -> bool:
    return any(set(words) <= set(line.split()) for line in show(world))


def test_routes_of_calico_are_adopted_and_then_swept(bare_world: World) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.environment |= {
        "FELIX_ROUTEREFRESHINTERVAL": "1",
        "CALICO_NETWORKING_BACKEND": "vxlan",
    }
    # A node that is there, to which no way is known, as long as its tunnel's end is not.
    world.put("nodes", "node2", "Node", {"bgp": {"ipv4Address": "10.99.8.1/24"}})
    world.put_block("10.65.1.0/26", "node2")
    for number in (1, 2, 3):
        pod = world.wire(f"cali{number}", f"10.65.0.{number}")
        world.put_endpoint(f"pod{number}", pod)
    for route in (*CALICOS, *OTHERS, NOT_YET):
        words = route.split() if route[0] == "b" else ["unicast", *route.split()]
        world.node.run("ip", "route", "add", *words)
    # What Calico's felix had set.
    world.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    for number in (1, 2, 3):
        world.outside.run("ping", "-n", "-c", "1", "-w", "60", f"10.65.0.{number}")
    pings = [
        subprocess.Popen(
            world.outside.command("ping", "-n", "-i", "0.05", "-W", "20", f"10.65.0.{number}"),
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2, 3)
    ]
    try:
        world.start_felix()
        world.wait_ready()
        wait_for(lambda: not has(world, "proto", "boot", "dev", "cali2"))
        wait_for(lambda: not has(world, "10.65.9.9"))
        wait_for(lambda: not has(world, "blackhole", "bird"))
        wait_for(lambda: len(show_of(world, "10.65.0.3")) == 1)
        for number in (1, 2, 3):  # those of the stream that are under way then are not lost
            world.outside.run("ping", "-n", "-c", "1", "-w", "60", f"10.65.0.{number}")
    finally:
        for ping in pings:
            ping.send_signal(2)
        told = [ping.communicate(timeout=HANG)[0] for ping in pings]
    for number in (1, 2, 3):
        assert has(world, f"10.65.0.{number}", "109", f"cali{number}")
    assert has(world, "blackhole", "10.65.0.0/26", "109")
    for route in (*OTHERS, NOT_YET):
        assert has(world, route.split()[0]), route
    for text in told:
        sent, missing = lost(text)
        assert missing == 0, text
        assert sent > 10
    world.delete("nodes", "node2")
    wait_for(lambda: not has(world, "10.65.1.0/26"))


@pytest.mark.parametrize("protocol", ["80", "bird"])
def test_what_comes_back_has_a_living_writer(bare_world: World, protocol: str) -> None:
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.environment |= {
        "FELIX_ROUTEREFRESHINTERVAL": "1",
        "CALICO_NETWORKING_BACKEND": "vxlan",
    }
    again = ("ip", "route", "add", "blackhole", "10.65.0.0/26", "proto", protocol)
    world.node.run(*again)
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: not has(world, "blackhole", protocol))
    world.node.run(*again)
    log = world.folder / "felix.log"
    wait_for(lambda: "is Calico still running?" in log.read_text())
    assert has(world, "blackhole", "proto", protocol)
    if protocol == "bird":
        # Its metric goes before that of ours: a condition, as long as it lasts.
        status = world.folder / "run" / "calico" / "status" / "felix.json"
        wait_for(lambda: "came back after it was removed" in status.read_text())


def test_calicos_arp_table_goes_with_the_last_of_its_pods(bare_world: World) -> None:
    """ARP-1, ARP-2."""
    world = bare_world
    world.etcd.start()
    world.write_cluster()
    world.environment |= {
        "FELIX_ROUTEREFRESHINTERVAL": "1",
        "CALICO_NETWORKING_BACKEND": "vxlan",
    }
    table = ("add", "table", "arp", "calico-arp")
    world.node.run("nft", *table)
    world.node.run("nft", "add chain arp calico-arp cali-arp-dispatch { type filter hook input "
                   "priority 0; }")  # fmt: skip
    others = ("table ip calico-arp", "table arp calico", "table arp theirs")
    for other in others:
        world.node.run("nft", "add", *other.split())
    for number in (1, 2):
        world.put_endpoint(f"pod{number}", world.wire(f"cali{number}", f"10.65.0.{number}"))
    world.node.run("ip", "link", "set", "cali1", "alias", "ours")
    # It goes in the same look: then felix has been there, and left the table.
    world.ip("route add 10.65.0.2 dev cali2 scope link proto boot")

    def tables() -> list[str]:
        return str(world.node.run("nft", "list", "tables")).splitlines()

    world.start_felix()
    world.wait_ready()
    wait_for(lambda: "route of protocol 3, left by Calico, removed" in world.log())
    assert "table arp calico-arp" in tables()
    world.node.run("ip", "link", "del", "cali2")
    wait_for(lambda: "table arp calico-arp" not in tables())
    assert set(others) <= set(tables())
    assert "left by Calico, removed" in world.log()
    world.node.run("nft", *table)
    wait_for(lambda: "came back after it was removed, and stays" in world.log())
    assert "table arp calico-arp" in tables()
