"""MON-1, MON-2: what somebody else changes is told at once; lost messages are told as Overrun."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from linux import link_values, links, neighbours, routes
from linux.monitor import ADDRESSES, Monitor
from linux.monitor import monitor as monitor_module
from linux.monitor.events import (
    AddressChanged,
    Event,
    LinkChanged,
    NeighbourChanged,
    Overrun,
    RouteChanged,
    SettingChanged,
)
from linux.netlink import Socket, wire
from linux.netlink.filters import WITHOUT_LINK_LOCAL
from linux.routes import Route
from linux.rtnl import RTM_NEWLINK
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient


class Seen:
    """The monitor's events one by one, so that none of a batch is skipped."""

    def __init__(self, monitor: Monitor) -> None:
        self._batches = monitor.batches()
        self._waiting: list[Event] = []
        self.events: list[Event] = []

    async def until(self, wanted: Callable[[Event], bool], seconds: float = 10.0) -> Event:
        async with asyncio.timeout(patient(seconds)):
            while True:
                while self._waiting:
                    event = self._waiting.pop(0)
                    if wanted(event):
                        return event
                self._waiting = list(await anext(self._batches))
                self.events += self._waiting
                assert self._waiting


def test_link_local_addresses_can_be_left_out() -> None:
    async def story(space: Namespace) -> None:
        with Monitor(ADDRESSES, only=WITHOUT_LINK_LOCAL) as monitor:
            seen = Seen(monitor)
            space.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
            for name in ("v0", "v1"):
                space.run("ip", "link", "set", name, "up")
            space.run("ip", "-6", "address", "add", "fe80::7/64", "dev", "v0", "nodad")
            found = ["10.99.1.1/24", "10.99.2.1/24", "fd99::1/64"]
            for text in found:
                scope = ["scope", "link"] if text == found[1] else []
                nodad = ["nodad"] if ":" in text else []
                space.run("ip", "address", "add", text, "dev", "v0", *scope, *nodad)
            space.run("ip", "-6", "address", "del", "fe80::7/64", "dev", "v0")
            space.run("ip", "address", "del", found[0], "dev", "v0")
            last = ip_interface(found[0])
            await seen.until(
                lambda e: (
                    isinstance(e, AddressChanged) and e.removed and e.address.interface == last
                )
            )
            told = [e.address.interface for e in seen.events if isinstance(e, AddressChanged)]
            assert {ip_interface(text) for text in found} == set(told)

    with network_namespace("filtered") as space, space.entered():
        asyncio.run(story(space))


def test_changes_by_others_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(space: Namespace) -> None:
        with Monitor() as monitor:
            seen = Seen(monitor)
            space.run("ip", "link", "add", "br0", "type", "bridge")
            event = await seen.until(lambda e: isinstance(e, LinkChanged) and not e.removed)
            assert isinstance(event, LinkChanged)
            assert event.link.name == "br0"
            index = event.link.index

            space.run("ip", "address", "add", "10.99.1.1/24", "dev", "br0")
            space.run("ip", "link", "set", "br0", "up")
            address = ip_interface("10.99.1.1/24")
            await seen.until(
                lambda e: isinstance(e, AddressChanged) and e.address.interface == address
            )
            space.run("ip", "link", "set", "br0", "down")
            await seen.until(lambda e: isinstance(e, LinkChanged) and not e.link.up)
            space.run("ip", "link", "set", "br0", "up")
            await seen.until(lambda e: isinstance(e, LinkChanged) and e.link.up)

            space.run("ip", "route", "add", "blackhole", "10.66.0.0/26", "proto", "109")
            start = time.perf_counter()
            space.run("ip", "route", "del", "blackhole", "10.66.0.0/26")
            event = await seen.until(lambda e: isinstance(e, RouteChanged) and e.removed)
            assert isinstance(event, RouteChanged)
            assert event.route == Route(ip_network("10.66.0.0/26"), type="blackhole", protocol=109)
            with capsys.disabled():
                print(f" [route deletion seen {time.perf_counter() - start:.3f} s]", end="")

            space.run("ip", "-6", "route", "add", "fd66::/64", "dev", "br0")
            space.run("ip", "-6", "route", "del", "fd66::/64", "dev", "br0")
            await seen.until(
                lambda e: (
                    isinstance(e, RouteChanged)
                    and e.removed
                    and e.route.dst == ip_network("fd66::/64")
                ),
            )

            for text in ("10.99.1.9", "fd99::9"):
                mac = "02:00:00:00:00:01"
                space.run("ip", "neigh", "add", text, "lladdr", mac, "dev", "br0")
                space.run("ip", "neigh", "del", text, "dev", "br0")
                wanted = ip_address(text)
                await seen.until(
                    lambda e, wanted=wanted: (  # type: ignore[misc]
                        isinstance(e, NeighbourChanged)
                        and e.neighbour.address == wanted
                        and (e.removed or e.neighbour.state == neighbours.FAILED)
                    ),
                )

            for setting in ("proxy_arp", "rp_filter", "forwarding"):
                # A new namespace takes the machine's own values, and only a change is told.
                name = f"net.ipv4.conf.br0.{setting}"
                was = space.run("sysctl", "-n", name).strip()
                space.run("sysctl", "-qw", f"{name}={0 if was == '1' else 1}")
                await seen.until(lambda e: isinstance(e, SettingChanged) and e.index == index)

            space.run("ip", "link", "del", "br0")
            await seen.until(lambda e: isinstance(e, LinkChanged) and e.removed)

    with network_namespace("mon") as space, space.entered():
        asyncio.run(story(space))


def test_one_object_that_changes_often_is_one_event() -> None:
    async def story() -> None:
        route = Route(ip_network("10.66.0.0/26"), type="blackhole", protocol=109)
        with Monitor() as monitor, Socket() as sock:
            sock.transact([routes.add(route), routes.delete(route)] * 10 + [routes.add(route)])
            async for batch in monitor.batches():
                assert batch == [RouteChanged(route, removed=False)]
                return

    with network_namespace("coalesce") as space, space.entered():
        asyncio.run(story())


def test_routes_of_one_socket_are_not_told_and_all_others_are() -> None:
    async def story() -> None:
        net = ip_network("10.66.0.0/24")
        ours, others = (Route(dst, type="blackhole") for dst in net.subnets())
        six = Route(ip_network("fd66::/64"), type="blackhole")
        with Socket() as sock, Socket() as other, Monitor(own=sock.port) as monitor:
            sock.request(links.create("br0", "bridge"))
            sock.transact([routes.add(ours), routes.add(six), routes.delete(ours)])
            other.transact([routes.add(others), routes.delete(others)])
            seen = Seen(monitor)
            await seen.until(lambda e: isinstance(e, RouteChanged) and e.removed)
            told = [e for e in seen.events if isinstance(e, RouteChanged)]
            assert {e.route for e in told} == {others}
            # The links that it makes are told.
            assert any(isinstance(e, LinkChanged) for e in seen.events)

    with network_namespace("own") as space, space.entered():
        asyncio.run(story())


def test_too_many_objects_become_an_overrun() -> None:
    async def story() -> None:
        with Monitor(limit=50) as monitor, Socket() as sock:
            net = ip_network("10.66.0.0/16")
            many = [Route(dst, type="blackhole") for dst in net.subnets(new_prefix=26)]
            sock.transact([routes.add(route) for route in many[:200]])
            async for batch in monitor.batches():
                assert batch == [Overrun()]
                return

    with network_namespace("limit") as space, space.entered():
        asyncio.run(story())


def test_a_link_that_cannot_be_read_becomes_an_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """MON-1: whether it is found out when it comes or when it is handed over."""

    async def story() -> None:
        with Monitor() as monitor, Socket() as sock:
            seen = Seen(monitor)
            for broken in (b"", bytes(8), bytes(16)):
                waiting = [wire.message(RTM_NEWLINK, 0, broken)]

                def receive(waiting: list[bytes] = waiting) -> bytes:
                    if not waiting:
                        raise BlockingIOError
                    return waiting.pop()

                with monkeypatch.context() as patched:
                    patched.setattr(monitor._socket, "receive", receive)
                    patched.setattr(link_values, "decode", int)
                    monitor._read_datagrams()
                    await seen.until(lambda e: isinstance(e, Overrun))
            sock.request(links.create("br0", "bridge"))
            await seen.until(lambda e: isinstance(e, LinkChanged))

    with network_namespace("unreadable") as space, space.entered():
        asyncio.run(story())


def test_lost_messages_become_an_overrun_and_the_stream_goes_on() -> None:
    async def story() -> None:
        with Monitor() as monitor, Socket() as sock:
            monitor._socket._socket.setsockopt(1, 33, 4096)  # a tiny SO_RCVBUFFORCE
            net = ip_network("10.66.0.0/16")
            many = [Route(dst, type="blackhole") for dst in net.subnets(new_prefix=26)]
            sock.transact([routes.add(route) for route in many])
            seen = Seen(monitor)
            await seen.until(lambda e: isinstance(e, Overrun))
            monitor._socket._socket.setsockopt(1, 33, 1 << 20)
            sock.request(links.create("br0", "bridge"))
            await seen.until(lambda e: isinstance(e, LinkChanged))

    with network_namespace("overrun") as space, space.entered():
        asyncio.run(story())


def test_a_storm_is_read_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still in the socket after one look has waited for company already."""

    async def story() -> None:
        asked: list[int] = []

        def linger() -> float:
            asked.append(1)
            return 0.01

        with Monitor(linger=linger) as monitor, Socket() as sock:
            net = ip_network("10.66.0.0/16")
            many = [Route(dst, type="blackhole") for dst in net.subnets(new_prefix=24)][:250]
            sock.transact([routes.add(route) for route in many])
            seen = Seen(monitor)
            await seen.until(lambda e: isinstance(e, RouteChanged) and e.route == many[-1])
            assert len(seen.events) == len(many)
            assert len(asked) == 1
            # After that it is quiet, and what comes next may have company again.
            sock.transact([routes.delete(many[0])])
            await seen.until(lambda e: isinstance(e, RouteChanged) and e.removed)
            assert len(asked) == 2

    monkeypatch.setattr(monitor_module, "_DATAGRAMS_PER_TURN", 8)
    with network_namespace("storm") as space, space.entered():
        asyncio.run(story())


def test_one_that_was_closed_while_it_waited_listens_no_more() -> None:
    async def story() -> None:
        with Socket() as sock:
            monitor = Monitor(linger=lambda: 30.0)
            sock.request(links.create("br0", "bridge"))
            async with asyncio.timeout(patient(10)):
                while monitor._waiting is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            monitor.close()
            monitor.listen_now()

    with network_namespace("closed") as space, space.entered():
        asyncio.run(story())


def test_a_closed_monitor_ends_the_stream() -> None:
    async def story() -> None:
        monitor = Monitor()
        asyncio.get_running_loop().call_later(0.01, monitor.close)
        async with asyncio.timeout(patient(3)):
            assert [batch async for batch in monitor.batches()] == []
        monitor.close()

    with network_namespace("close") as space, space.entered():
        asyncio.run(story())
