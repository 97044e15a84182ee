"""A tunnel's device that the kernel refuses something, and one that is not needed any more.

The device is one of veth by the name of `tunl0`: IP-in-IP itself is tested in tests/uml.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

import pytest

from felix.calc.cluster_facts import ClusterFacts
from felix.calc.encapsulation import Encapsulation
from felix.calc.nodes import NodeFacts
from felix.config.parameters import Config
from felix.dataplane.devices.tunnels import LINGER, RETRY, Tunnels
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from linux import addresses, links
from linux.netlink import Socket
from linux.route_values import NextHop, Route
from tests.support.netns import Namespace, network_namespace

GUARDED = frozenset({("tunl0", 0)})


@dataclass
class Stage:
    space: Namespace
    sock: Socket
    facts: ClusterFacts
    tunnels: Tunnels
    now: float = 0.0
    ways: list[Route] = field(default_factory=list)
    """Ours, of the kernel."""

    def node_is(self, me: NodeFacts) -> None:
        self.facts = replace(self.facts, version=self.facts.version + 1, nodes={"me": me})

    def turn(self, *, ipip: bool) -> bool:
        """One commit over the kernel as it is; whether ways may lead through the device."""
        view = KernelView(("cali",))
        view.replace_links(links.dump(self.sock), addresses.dump(self.sock))
        for way in self.ways:
            view.wrote(way.key, way)
        used = Encapsulation(ipip=ipip)
        work = LinkWork(self.sock, view, Config(), self.facts, used, guarded=GUARDED)
        self.tunnels.commit(work)
        return self.tunnels.means(used, Config()).ipip

    def addresses(self) -> list[str]:
        words = self.ip("addr show tunl0").split()
        return [word for word in words if word.endswith(("/32", "/128"))]

    def ip(self, words: str) -> str:
        return self.space.run("ip", *words.split())


@pytest.fixture
def stage() -> Iterator[Stage]:
    with network_namespace("tunnel") as space, space.entered():
        # Modules may bring a tunl0 of their own into every namespace.
        space.run("ip", "link", "del", "tunl0", check=False)
        if "tunl0" in space.run("ip", "link"):
            space.run("ip", "link", "set", "tunl0", "name", "old0")
        space.run("ip", "link", "add", "tunl0", "type", "veth", "peer", "far0")
        facts = ClusterFacts("me", nodes={"me": NodeFacts(ipip=ip_address("10.65.0.1"))})
        sock = Socket()
        made = Stage(space, sock, facts, Tunnels("me", lambda: made.now, lambda: None))
        yield made
        sock.close()


def test_a_device_that_was_refused_its_address_is_not_ready(stage: Stage) -> None:
    own = ip_address("fd65::1")
    stage.facts = replace(
        stage.facts, version=stage.facts.version + 1, nodes={"me": NodeFacts(ipip=own)}
    )
    switch = "net.ipv6.conf.tunl0.disable_ipv6"
    stage.space.run("sysctl", "-w", f"{switch}=1")
    assert not stage.turn(ipip=True)
    assert stage.tunnels.problems
    assert stage.tunnels.wait is not None, "it is tried again"
    assert not stage.turn(ipip=True)
    stage.space.run("sysctl", "-w", f"{switch}=0")
    assert stage.turn(ipip=True)
    assert (stage.addresses(), stage.tunnels.problems) == ([f"{own}/128"], [])
    assert stage.turn(ipip=True), "it is ready while nothing is to be done"


def test_all_addresses_go_when_nobody_needs_the_device_and_the_pool_is_gone(stage: Stage) -> None:
    assert stage.turn(ipip=True)
    stage.ip("addr add 10.77.0.1/32 dev tunl0")
    assert len(stage.addresses()) == 2
    assert not stage.facts.pools
    stage.turn(ipip=False)
    assert not stage.addresses()


def test_a_device_that_never_got_an_address_unwraps_for_nobody_when_its_rules_go(
    stage: Stage,
) -> None:
    """Without an address it takes all (rp_filter 0), which only its rules hold back."""
    stage.node_is(NodeFacts())
    stage.turn(ipip=True)
    setting = "net.ipv4.conf.tunl0.rp_filter"
    assert stage.space.run("sysctl", "-n", setting).strip() == "0"
    stage.turn(ipip=False)
    assert stage.space.run("sysctl", "-n", setting).strip() == "0", "others still send"
    assert stage.tunnels.wait == LINGER
    stage.now = LINGER
    stage.turn(ipip=False)
    assert stage.space.run("sysctl", "-n", setting).strip() == "2"
    writes = stage.tunnels.writes
    stage.turn(ipip=False)
    assert stage.tunnels.writes == writes, "once"


@pytest.mark.parametrize("name", ["tunl0", "vxlan.calico"])
def test_a_device_that_awaits_the_end_of_its_routes_is_looked_at_again(
    stage: Stage, name: str
) -> None:
    """The monitor does not tell of what felix removed itself (a turn removes routes last)."""
    if name == "vxlan.calico":
        stage.ip(f"link add {name} type vxlan id 4096 dstport 4789")
    stage.ip(f"link set {name} up")
    stage.ip(f"addr add 10.65.0.1/32 dev {name}")
    index = next(link.index for link in links.dump(stage.sock) if link.name == name)
    stage.ways = [Route(ip_network("10.65.64.0/26"), next_hops=(NextHop(None, index),))]
    stage.turn(ipip=False)
    assert "10.65.0.1" in stage.ip(f"addr show {name}")
    assert stage.tunnels.wait == RETRY
    stage.ways = []
    stage.turn(ipip=False)
    assert stage.tunnels.wait == LINGER
    assert ("10.65.0.1" in stage.ip(f"addr show {name}")) == (name != "tunl0")
