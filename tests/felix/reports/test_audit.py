"""Felix's looks at itself: what lasts is told, what is under way is not; and what a look costs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

import pytest

from felix.calc.endpoints import Endpoint
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.calc.standing import NEWEST
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.dataplane.rules.drift import Drift
from felix.reports.audit import Audit, RouteLookup, kernel_lookup
from felix.reports.metrics import Taken, figures
from libcalico.model import ResourceKey
from linux.links import Link
from linux.netlink.socket import Socket
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, make_world
from tests.support.netns import network_namespace
from tests.support.patience import wait_for


def endpoint(number: int = 1, container: str = "c1", label: str = "") -> Endpoint:
    name = f"{NODE}-k8s-p{number}-eth0"
    return Endpoint(
        ResourceKey("WorkloadEndpoint", name, "default"),
        container,
        f"cali{number}",
        (ip_network(f"10.65.{number // 250}.{number % 250}"), ip_network(f"fd65::{number:x}")),
        "",
        (),
        "k8s",
        f"default/p{number}",
        "eth0",
        labels=(("label", label),),
    )


def link(index: int, name: str) -> Link:
    return Link(index, name, "", 1500, True, True, True, False, 6, "", 0, 0, None, 0, "", b"", b"")


class Node:
    """A data plane that does not run; its kernel leads each address where it is told to."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self.plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
        self.ways: dict[IPv4Address | IPv6Address, str] = {}
        self.asked = 0
        self.audit = Audit(self.plane, lambda: self._way)
        for one in endpoints:
            self.plane.calc.endpoints.store(one.key, one, NEWEST)
            self.serve(one)
            self.ways |= {network.network_address: one.interface for network in one.networks}

    def serve(self, one: Endpoint) -> None:
        self.plane.state.active[one.interface] = one
        self.plane.state.in_force[one.key] = one

    def _way(self, address: IPv4Address | IPv6Address) -> str | None:
        self.asked += 1
        return self.ways.get(address)

    def look(self) -> list[str]:
        """One audit; what it tells."""
        asyncio.run(self.audit.look())
        return [reason for _, reason in self.audit.conditions()]

    def metric(self, name: str) -> float:
        (found,) = (
            figure.value
            for figure in figures(self.plane, {}, Taken(), self.audit)
            if figure.name == name
        )
        return found


def test_where_all_is_well_nothing_is_told() -> None:
    node = Node(endpoint(1), endpoint(2))
    assert node.look() == node.look() == []


def test_a_way_elsewhere_is_told_once_it_lasts_and_until_it_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """AUD-2."""
    node = Node(endpoint(1))
    address = ip_address("10.65.0.1")
    del node.ways[address]
    assert node.look() == []
    assert node.look() == ["the kernel leads 10.65.0.1 to nowhere, not to cali1"]
    assert node.metric("muslin_felix_differences") == 1
    assert "it lasts: the kernel leads 10.65.0.1 to nowhere" in caplog.text
    node.ways[address] = "eth0"
    assert node.look() == [], "another difference, which may pass"
    assert node.look() == ["the kernel leads 10.65.0.1 to eth0, not to cali1"]
    node.ways[address] = "cali1"
    assert node.look() == []
    assert node.metric("muslin_felix_differences") == 0
    assert node.metric("muslin_felix_audits_total") == 5


def test_what_never_comes_into_force_is_told() -> None:
    first, waiting = endpoint(1), endpoint(2, container="")
    node = Node(first, waiting)
    del node.plane.state.in_force[first.key]
    del node.plane.state.in_force[waiting.key]
    node.look()
    told = node.look()
    assert told == ["is not in force in the kernel"], "a pod without a container has no link yet"
    node.plane.state.in_force[first.key] = replace(first, labels=())
    assert len(node.look()) == 1, "as it was, not as it is"


def test_a_pods_link_without_an_endpoint_is_told() -> None:
    """As when an operator deletes the WorkloadEndpoint of a running pod."""
    one = endpoint(1)
    node = Node(one)
    up, down = link(7, "cali1"), replace(link(8, "cali2"), up=False)
    node.plane.view.replace_links([up, down, link(9, "eth0")], ())
    assert node.look() == node.look() == []
    del node.plane.state.active[one.interface]
    del node.plane.state.in_force[one.key]
    node.plane.calc.endpoints.store(one.key, None, NEWEST)
    assert node.look() == []
    (told,) = node.look()
    assert "no endpoint names it" in told
    assert ("interface cali1", told) in node.audit.conditions()
    node.serve(one)
    assert node.look() == []


def test_an_offer_that_is_never_said_to_be_stored_is_told_and_ends_if_it_is() -> None:
    """AUD-3."""
    node = Node()
    endpoints = node.plane.calc.endpoints
    offered = endpoint(1, label="as it was")
    endpoints.offer(offered)
    node.look()
    assert node.look() == ["offered by cni, which has not said that it is stored"]
    assert endpoints.get(offered.key) == offered, "its ADD may take long"
    endpoints.store(offered.key, endpoint(1, label="new"), 7)
    assert endpoints.get(offered.key) == offered
    node.look()
    assert endpoints.get(offered.key) == endpoint(1, label="new")
    assert node.look() == []


def test_what_the_datastore_does_not_tell_is_told() -> None:
    node = Node()
    endpoints = node.plane.calc.endpoints
    one = endpoint(1)
    endpoints.offer(one)
    endpoints.settle(one.key, "c1", 7)
    node.look()
    assert node.look() == ["stored by cni at revision 7, of which the datastore does not tell"]
    endpoints.store(one.key, one, 7)
    assert node.look() == []
    endpoints.retract(one.key, "c1")
    node.look()
    assert node.look() == ["taken away by cni, and still stored"]
    endpoints.store(one.key, None, 8)
    assert node.look() == []


def test_a_release_that_waits_for_the_datastore_is_no_fault_of_the_node() -> None:
    """AUD-4: retracted, or its link gone while calico-cni was away; and of another container."""
    node = Node(endpoint(1), endpoint(2, "c2"), endpoint(3, "c3"))
    endpoints = node.plane.calc.endpoints
    endpoints.unreleased = frozenset({"c1", "c2"})
    for gone in (endpoint(1), endpoint(3, "c3")):
        endpoints.retract(gone.key, gone.container_id)
        del node.plane.state.active[gone.interface], node.plane.state.in_force[gone.key]
    del node.plane.state.in_force[endpoint(2).key]
    node.look()
    told = node.look()
    assert told.count("taken away by cni, and still stored") == 1
    assert sum("waits in calico-cni's journal" in reason for reason in told) == 2
    assert node.metric("muslin_felix_differences") == 1
    endpoints.unreleased = frozenset()
    node.look()
    node.look()
    assert node.metric("muslin_felix_differences") == 3


def test_what_is_changed_again_and_again_is_told() -> None:
    drift = Drift()
    for found, lasting in (("ab", ""), ("b", "b"), ("", ""), ("b", "")):
        drift.take(set(found))
        assert drift.lasting == set(lasting)


def test_an_audit_asks_once_for_each_address_in_force_and_writes_nothing() -> None:
    """AUD-1: of 110 endpoints with two addresses each."""
    node = Node(*(endpoint(number) for number in range(1, 111)))
    before = (node.plane.touched.everything, dict(node.plane.routing.routes.table.desired))
    node.look()
    assert node.asked == 220
    assert (node.plane.touched.everything, dict(node.plane.routing.routes.table.desired)) == before


def test_the_kernels_way_to_an_address() -> None:
    with network_namespace("audit") as space, space.entered():
        for name in ("cali1", "cali2"):
            space.run(*f"ip link add {name} type veth peer name peer-{name}".split())
            for end in (name, f"peer-{name}"):
                space.run("ip", "link", "set", end, "up")
        space.run("ip", "route", "add", "default", "dev", "cali2")
        space.run("ip", "route", "add", "blackhole", "10.65.0.0/26")
        with Socket() as sock:
            way: RouteLookup = kernel_lookup(sock)
            address = IPv4Address("10.65.0.1")
            assert way(address) is None, "the block's blackhole"
            space.run("ip", "route", "add", "10.65.0.1/32", "dev", "cali1")
            assert way(address) == "cali1"
            space.run("ip", "route", "replace", "10.65.0.1/32", "dev", "cali2")
            assert way(address) == "cali2"
            assert way(IPv4Address("203.0.113.1")) == "cali2"
            assert way(IPv6Address("fd65::1")) is None


def test_a_running_felix_tells_of_a_way_that_another_program_took(tmp_path: Path) -> None:
    """Its condition and its metric; before and after that it has nothing to tell."""
    with make_world(tmp_path) as world:
        world.program = ("tests.felix.quick_audit",)
        world.etcd.start()
        world.write_cluster()
        pod = world.add_pod("one", "cali0000one", "10.65.0.1", "fd65::1")
        world.start_felix()
        world.wait_ready()

        def audited(differences: int) -> bool:
            before = world.metric("muslin_felix_audits_total")
            wait_for(lambda: world.metric("muslin_felix_audits_total") >= before + 3)
            return world.metric("muslin_felix_differences") == differences

        wait_for(lambda: world.route("10.65.0.1/32"))
        wait_for(lambda: audited(0))
        world.ip("route add 10.65.0.1/32 dev eth0 metric 5")
        wait_for(lambda: audited(1))
        reason = f"the kernel leads 10.65.0.1 to eth0, not to {pod.interface}"
        wait_for(lambda: reason in conditions_of(world, "node1-k8s-one-eth0"))
        world.ip("route del 10.65.0.1/32 dev eth0 metric 5")
        wait_for(lambda: audited(0))
