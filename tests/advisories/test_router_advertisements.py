"""CVE-2020-10749: a pod with raw sockets would be its host's router.

The host believes every advertisement (accept_ra 2), so nothing but felix stands in the way. That
the same frames are believed where felix has no say, shows that they are good.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.felix import frames
from tests.felix.world import World
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for

ROUTER, PREFIX = "fe80::bad", "2001:db8:bad"


@contextmanager
def advertising(space: Namespace, link: str = "eth0") -> Iterator[None]:
    """Advertisements to all nodes and to the host alone, some hundred a second."""
    over = threading.Event()
    advert = frames.router_advertisement(ROUTER)

    def flood() -> None:
        while not over.wait(0.005):
            for to in (frames.ALL_NODES, frames.HOST_MAC):
                try:
                    frames.send(space, frames.IPV6, advert, to=to, link=link)
                except OSError:
                    # The cable is not plugged yet.
                    continue

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def believed(world: World) -> str:
    """What the host has taken over of an advertisement."""
    routes = world.routes("default", family=6) + world.routes("proto", "ra", family=6)
    addresses = world.node.run("ip", "-6", "address")
    found = [line for line in routes.splitlines() if ROUTER in line or "proto ra" in line]
    return "\n".join(found + [line for line in addresses.splitlines() if PREFIX in line])


def test_the_frames_are_good(careless: World) -> None:
    """On an interface that is no workload's, the careless host takes them for a router's."""
    node, outside = careless.node, careless.outside
    node.run(*f"ip link add lan0 type veth peer name lan0 netns {outside.name}".split())
    try:
        for space in (node, outside):
            space.run("ip", "link", "set", "lan0", "up")
        with advertising(outside, "lan0"):
            wait_for(lambda: "lan0" in believed(careless) and PREFIX in believed(careless))
    finally:
        node.run("ip", "link", "del", "lan0")
    assert not believed(careless)


@pytest.mark.promise("ADV-1")
def test_a_pod_is_no_router(careless: World) -> None:
    a, b = careless.pods[:2]
    careless.node.run("sysctl", "-qw", "net.ipv6.conf.cali0a.accept_ra=2")
    with advertising(a.space), frames.ears(b.space) as heard:
        assert not heard(PREFIX.encode(), 0.5), "another pod heard it"
        assert b.reaches("2001:db8:7::2", wait=HANG)
    assert not believed(careless)
    assert ROUTER not in b.space.run("ip", "-6", "route")


@pytest.mark.promise("ADV-1")
def test_not_even_while_its_interface_is_new(careless: World) -> None:
    """The pod shouts before the cable is plugged, before felix knows of it, and ever after."""
    new = careless.wire("cali0new", "10.65.0.9", "fd65::9")
    careless.node.run("ip", "link", "set", "cali0new", "down")
    careless.node.run("sysctl", "-qw", "net.ipv6.conf.cali0new.accept_ra=2")
    with advertising(new.space):
        careless.node.run("ip", "link", "set", "cali0new", "up")
        for _ in range(20):
            assert not believed(careless)
        careless.put_endpoint("new", new)
        wait_for(lambda: careless.route("10.65.0.9/32"))
        assert not believed(careless)
        careless.delete_endpoint("new")
        wait_for(lambda: not careless.route("10.65.0.9/32"))
        assert not believed(careless)


@pytest.mark.promise("ADV-1")
def test_not_even_while_felix_is_dead(careless: World) -> None:
    a = careless.pods[0]
    careless.stop_felix(9)
    try:
        careless.node.run("sysctl", "-qw", "net.ipv6.conf.cali0a.accept_ra=2")
        with advertising(a.space):
            for _ in range(20):
                assert not believed(careless)
    finally:
        careless.start_felix()
        careless.wait_ready()
