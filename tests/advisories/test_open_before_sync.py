"""Open before sync: a start of felix is no moment in which more passes than policy says.

Felix is killed and started with the datastore away, with policy that changed meanwhile, and with
pods that came meanwhile, while packets that may not pass are sent all the time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.advisories.conftest import OUTSIDE
from tests.advisories.traffic import Stream, Traffic, flowing
from tests.felix.world import NODE, World
from tests.support.patience import wait_for

UNSYNCED_SECONDS = 1.5
SHUT = {"types": ["Ingress"], "ingress": [{"action": "Deny"}]}
TIMES = 3 if os.environ.get("MUSLIN_FULL_SIZE") else 1


@pytest.fixture
def guarded(careless: World) -> Iterator[World]:
    """Pod b takes one port only, and so does the node on eth0."""
    world = careless
    world.put_endpoint("b", world.pods[1], labels={"role": "b"})
    only = [{"action": "Allow", "protocol": "UDP", "destination": {"ports": [7800]}}]
    for name, selector in (("b", "role == 'b'"), ("host", "has(host)")):
        spec = {"selector": selector, "types": ["Ingress"], "ingress": only}
        world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)
    host = {"node": NODE, "interfaceName": "eth0", "expectedIPs": ["10.99.7.1"]}
    world.put("hostendpoints", "eth0", "HostEndpoint", host, labels={"host": ""})
    yield world
    world.etcd.start()
    for name in ("b", "host", "shut", "new"):
        world.delete("globalnetworkpolicies", name)
    world.delete("hostendpoints", "eth0")
    world.put_endpoint("b", world.pods[1])


def streams(world: World) -> list[Stream]:
    """To pod b and to the node, from outside: what may pass and what may not."""
    b = world.pods[1]
    return [
        Stream("pod open", world.outside, b.space, b.address, 7800),
        Stream("pod shut", world.outside, b.space, b.address, 7801),
        Stream("pod shut 6", world.outside, b.space, b.address6, 7801),
        Stream("node open", world.outside, world.node, "10.99.7.1", 7800),
        Stream("node shut", world.outside, world.node, "10.99.7.1", 7801),
    ]


def ended(traffic: Traffic, name: str) -> bool:
    """Whether nothing of a stream arrives while 60 are sent."""
    before = traffic.arrived[name]
    traffic.tried(name, more=60)
    return traffic.arrived[name] == before


def shut(traffic: Traffic) -> int:
    """Packets that arrived though they may not."""
    return sum(count for name, count in traffic.arrived.items() if "shut" in name)


@pytest.mark.promise("ADV-10")
def test_what_was_shut_is_shut_until_felix_knows_better(guarded: World) -> None:
    world = guarded
    with flowing(streams(world)) as traffic:
        wait_for(lambda: traffic.silent("pod shut", "pod shut 6", running="pod open"))
        wait_for(lambda: traffic.silent("node shut", running="node open"))
        traffic.anew()
        for _ in range(TIMES):
            world.stop_felix(signal.SIGKILL)
            world.etcd.stop()
            world.start_felix()
            wait_for(lambda: world.get("/liveness")[0] == 200)
            time.sleep(UNSYNCED_SECONDS)
            traffic.wait("pod open", 50)
            traffic.wait("node open", 50)
            assert world.get("/readiness")[0] == 503
            world.etcd.start()
            world.wait_ready()
            assert shut(traffic) == 0
        traffic.wait("pod open")
        traffic.tried("pod shut", "pod shut 6", "node shut")
    assert shut(traffic) == 0


@pytest.mark.promise("ADV-10")
def test_what_came_while_felix_was_dead_is_never_open(guarded: World) -> None:
    """A pod with its routes, an endpoint and a policy that shuts it: the start opens nothing."""
    world = guarded
    world.stop_felix(signal.SIGKILL)
    new = world.wire("cali0late", "10.65.0.40", "fd65::40")
    # Somebody has even made its route, so that only rules stand before it.
    world.ip("route add 10.65.0.40/32 dev cali0late")
    spec = {"selector": "role == 'new'", **SHUT}
    world.put("globalnetworkpolicies", "new", "GlobalNetworkPolicy", spec)
    world.put_endpoint("new", new, labels={"role": "new"})
    into = Stream("shut", world.outside, new.space, "10.65.0.40", 7801)
    out = Stream("out", new.space, world.outside, OUTSIDE, 7802)
    to_node = Stream("to node", new.space, world.node, "10.99.7.1", 7803)
    with flowing([into, out, to_node]) as traffic:
        traffic.tried("shut", "out", "to node", more=50)
        # Without an endpoint in the rules it is nobody: neither way.
        assert not traffic.arrived
        world.start_felix()
        world.wait_ready()
        # Its egress is open: by that it is seen that felix has taken it in.
        traffic.wait("out")
        traffic.wait("to node")
        traffic.tried("shut")
    assert traffic.arrived["shut"] == 0
    world.delete_endpoint("new")
    wait_for(lambda: not world.chain("cali-fw-cali0late"))


@pytest.mark.promise("ADV-10")
def test_policy_that_was_tightened_meanwhile_opens_nothing_else(guarded: World) -> None:
    """The old rules hold until the new ones stand: at no moment neither."""
    world = guarded
    b = world.pods[1]
    watched = [
        Stream("pod open", world.outside, b.space, b.address, 7800),
        Stream("pod shut", world.outside, b.space, b.address, 7801),
    ]
    with flowing(watched) as traffic:
        wait_for(lambda: traffic.silent("pod shut", running="pod open"))
        traffic.wait("pod open")
        traffic.anew()
        world.stop_felix(signal.SIGKILL)
        spec = {"selector": "role == 'b'", "order": -1, **SHUT}
        world.put("globalnetworkpolicies", "shut", "GlobalNetworkPolicy", spec)
        world.start_felix()
        world.wait_ready()
        wait_for(lambda: ended(traffic, "pod open"))
        world.stop_felix(signal.SIGKILL)
        world.delete("globalnetworkpolicies", "shut")
        world.start_felix()
        world.wait_ready()
        traffic.wait("pod open")
    assert shut(traffic) == 0
