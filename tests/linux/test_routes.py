"""ROUTE-1, ROUTE-2: what is written is what is read, and replacing loses no packet.

host --+-- a0 ---- a0 --+-- far     far holds 10.66.0.1 and fd66::1 on its loopback and is
       +-- b0 ---- b0 --+           reachable over both wires (10.99.1.0/24, 10.99.2.0/24)
"""

from __future__ import annotations

import errno
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

import pytest

from linux import links, routes
from linux.netlink import Socket
from linux.routes import NextHop, Route
from linux.rtnl import IPNetwork
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient


@dataclass
class World:
    host: Namespace
    far: Namespace
    sock: Socket
    a: int
    b: int

    def hop(self, wire: str, version: int, host: int = 2, **more: object) -> NextHop:
        number = 1 if wire == "a" else 2
        gateway = f"10.99.{number}.{host}" if version == 4 else f"fd99:{number}::{host}"
        oif = self.a if wire == "a" else self.b
        return NextHop(ip_address(gateway), oif, **more)  # type: ignore[arg-type]


@pytest.fixture
def world() -> Iterator[World]:
    with network_namespace("host") as host, network_namespace("far") as far, host.entered():
        for number, name in ((1, "a0"), (2, "b0")):
            host.run(
                "ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", far.name
            )
            for space, last in ((host, 1), (far, 2)):
                space.run("ip", "link", "set", name, "up")
                space.run("ip", "address", "add", f"10.99.{number}.{last}/24", "dev", name)
                space.run("ip", "address", "add", f"fd99:{number}::{last}/64", "dev", name, "nodad")
        far.run("ip", "address", "add", "10.66.0.1/32", "dev", "lo")
        far.run("ip", "address", "add", "fd66::1/128", "dev", "lo", "nodad")
        for key in ("all", "default", "a0", "b0"):
            far.run("sysctl", "-qw", f"net.ipv4.conf.{key}.rp_filter=0")
            host.run("sysctl", "-qw", f"net.ipv4.conf.{key}.rp_filter=0")
        with Socket() as sock:
            found = links.by_name(links.dump(sock))
            yield World(host, far, sock, found["a0"].index, found["b0"].index)


def _shapes(world: World, version: int) -> list[Route]:
    dst = ip_network("10.66.0.0/26" if version == 4 else "fd66::/122")
    hop = world.hop
    ways: list[tuple[NextHop, ...]] = [
        (hop("a", version),),
        (hop("b", version),),
        (hop("a", version), hop("b", version)),
        (hop("a", version), hop("b", version, weight=3)),
        (hop("a", version, 9), hop("b", version, 8)),
        (NextHop(None, world.a),),
    ]
    shapes = [Route(dst, way, protocol=109) for way in ways]
    return [
        *shapes,
        Route(dst, type="blackhole", protocol=109),
        Route(dst, type="unreachable", protocol=109),
    ]


def _kernel(world: World, dst: object) -> list[Route]:
    return [route for route in routes.dump(world.sock) if route.dst == dst]


@pytest.mark.parametrize("version", [4, 6])
def test_every_shape_replaces_every_other(world: World, version: int) -> None:
    shapes = _shapes(world, version)
    for before in shapes:
        for after in shapes:
            for route in (before, after, after):
                world.sock.request(routes.replace(route), f"replace {route}")
                assert _kernel(world, route.dst) == [route]
            world.sock.request(routes.delete(after), f"delete {after}")
            assert _kernel(world, after.dst) == []


@pytest.mark.parametrize("version", [4, 6])
def test_details_read_back(world: World, version: int) -> None:
    base = ip_network("10.67.0.0/24" if version == 4 else "fd67::/116")
    nets: list[IPNetwork] = list(base.subnets(prefixlen_diff=4))
    source = ip_address("10.99.1.1" if version == 4 else "fd99:1::1")
    stranger = ip_address("10.98.0.1" if version == 4 else "fd98::1")
    other = ip_address("10.98.0.2" if version == 4 else "fd98::2")
    wanted = [
        Route(nets[0], (world.hop("a", version),), prefsrc=source, mtu=1300, protocol=109),
        Route(nets[1], (NextHop(stranger, world.a, onlink=True),), protocol=109),
        Route(
            nets[2],
            (NextHop(stranger, world.a, onlink=True), NextHop(other, world.b, onlink=True)),
            protocol=109,
        ),
        Route(nets[3], (world.hop("a", version),), metric=7, protocol=109),
        Route(nets[3], (world.hop("b", version),), metric=8, protocol=109),
        Route(nets[4], (world.hop("a", version),), table=1000, protocol=109),
        Route(nets[5], type="prohibit", protocol=109, metric=5),
    ]
    if version == 4:
        wanted.append(Route(nets[6], (world.hop("a", 6),), protocol=109))
    results = world.sock.transact([routes.replace(route) for route in wanted])
    assert [r.error() for r in results if not r.ok] == []
    found = {route.key: route for route in routes.dump(world.sock, protocol=109)}
    assert found == {route.key: route for route in wanted}
    assert routes.dump(world.sock, table=1000) == [wanted[5]]
    assert routes.dump(world.sock, table=4711) == []
    world.sock.request(routes.delete(wanted[3]))
    assert _kernel(world, nets[3]) == [wanted[4]]


def test_a_foreign_routes_protocol_protects_it(world: World) -> None:
    world.host.run("ip", "route", "add", "10.66.9.0/26", "via", "10.99.1.2", "proto", "static")
    ours = Route(ip_network("10.66.9.0/26"), (world.hop("a", 4),), protocol=109)
    assert world.sock.transact([routes.delete(ours)])[0].errno == errno.ESRCH
    assert world.sock.transact([routes.add(ours)])[0].errno == errno.EEXIST
    assert "10.66.9.0/26" in world.host.run("ip", "route")


@pytest.mark.parametrize("version", [4, 6])
def test_lookup_gives_the_whole_route(world: World, version: int) -> None:
    shapes = _shapes(world, version)
    inside = ip_address("10.66.0.5" if version == 4 else "fd66::5")
    for route in shapes[:6]:
        world.sock.request(routes.replace(route))
        assert routes.lookup(world.sock, inside) == route
    world.sock.request(routes.replace(shapes[6]))
    assert routes.lookup(world.sock, inside) is None
    world.sock.request(routes.delete(shapes[6]))
    assert routes.lookup(world.sock, inside) is None
    near = ip_address("10.99.1.2" if version == 4 else "fd99:1::2")
    found = routes.lookup(world.sock, near)
    assert found is not None
    assert (found.oif, found.gateway) == (world.a, None)


@pytest.mark.parametrize("version", [4, 6])
def test_replacing_loses_no_packet(world: World, version: int) -> None:
    shapes = _shapes(world, version)[:4]
    target = "10.66.0.1" if version == 4 else "fd66::1"
    for route in shapes[1::-1]:
        # Each wire has to have come up and found its neighbour: that loss would not be ours.
        world.sock.request(routes.replace(route))
        deadline = time.monotonic() + patient(5)
        while ", 3 received" not in world.host.run(
            "ping", "-q", "-c", "3", "-i", "0.01", "-W", "1", target, check=False
        ):
            assert time.monotonic() < deadline
    ping = world.host.popen(
        "ping", "-q", "-i", "0.002", "-c", "400", "-W", "120", target, stdout=-1
    )
    changes = 0
    while ping.poll() is None:
        for route in shapes:
            world.sock.request(routes.replace(route))
            changes += 1
        try:
            ping.wait(0.002)
        except subprocess.TimeoutExpired:
            continue
    assert ping.stdout is not None
    output = ping.stdout.read()
    print(f"{changes} replacements under ping: {output.splitlines()[-2]}")
    assert re.search(r"400 packets transmitted, 400 received", output), output


def test_a_route_brings_itself_into_canonical_form() -> None:
    a, b = NextHop(ip_address("10.0.0.1"), 2), NextHop(ip_address("10.0.0.2"), 2)
    net = ip_network("10.66.0.0/26")
    assert Route(net, (b, a)) == Route(net, (a, b))
    assert hash(Route(net, (b, a))) == hash(Route(net, (a, b)))
    assert Route(net, (NextHop(None, 2, weight=5),)).next_hops[0].weight == 1
    assert Route(ip_network("fd66::/64"), (a,)).metric == 1024
    assert Route(net, (a,), type="blackhole").next_hops == ()
    assert (Route(net, (a,)).scope, Route(net, (NextHop(None, 2),)).scope) == (0, 253)
    with pytest.raises(ValueError, match="weight 257"):
        routes.replace(Route(net, (a, NextHop(None, 2, weight=257))))
