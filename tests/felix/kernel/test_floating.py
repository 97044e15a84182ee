"""Floating addresses of pods, with packets: they lead to one pod where an administrator says so.

a 10.65.0.1, b 10.65.0.2 -- node 10.99.7.1 -- outside 10.99.7.2, which routes 192.0.2.60 and
2001:db8:5::60 to the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.felix.in_kernel import mode
from tests.felix.stage import conditions_of
from tests.felix.world import NODE, Pod, World, make_world, reaches, until_reached
from tests.support.patience import HANG, wait_for

FLOATING, FLOATING6 = "192.0.2.60", "2001:db8:5::60"


@pytest.fixture(scope="module", params=["nft", "nftables"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(request.param)
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        for number, name in enumerate("ab", 1):
            world.add_pod(name, f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
        for floating, gateway in ((FLOATING, "10.99.7.1"), (FLOATING6, "2001:db8:7::1")):
            world.outside.run("ip", "route", "add", floating, "via", gateway)
        world.outside.run("ip", "route", "add", "fd65::/48", "via", "2001:db8:7::1")
        yield world


def translated(pod: Pod) -> list[dict[str, str]]:
    """The pod's `ipNATs`."""
    return [
        {"internalIP": pod.address, "externalIP": FLOATING},
        {"internalIP": pod.address6, "externalIP": FLOATING6},
    ]


def allow(world: World, word: str) -> None:
    spec: dict[str, Any] = {"floatingIPs": word}
    world.put("felixconfigurations", f"node.{NODE}", "FelixConfiguration", spec)


@pytest.mark.promise("ADV-2")
def test_a_floating_address_leads_to_its_pod_where_it_is_allowed(world: World) -> None:
    a, b = world.pods
    # Answers tell who it was: b is deaf to pings.
    b.space.run("sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
    world.put_endpoint("a", a, ipNATs=translated(a))
    wait_for(lambda: any("floatingIPs" in text for text in conditions_of(world, "Workload")))
    until_reached(world.outside, a.address)
    assert not reaches(world.outside, FLOATING, wait=0.3), "felix has the last word"
    allow(world, "Enabled")
    for address in (FLOATING, FLOATING6):
        for space in (world.outside, b.space, a.space, world.node):
            wait_for(partial(reaches, space, address, wait=0.3))
    wait_for(lambda: not conditions_of(world, "Workload"))

    # Of two that want one address the first by name has it; the other is named.
    world.put_endpoint("b", b, ipNATs=[{"internalIP": b.address, "externalIP": FLOATING}])
    wait_for(lambda: any("leads to another" in c for c in conditions_of(world, "Workload")))
    assert reaches(world.outside, FLOATING, wait=HANG)

    world.put_endpoint("a", a, ipNATs=[{"internalIP": a.address, "externalIP": b.address}])
    wait_for(lambda: not reaches(world.outside, FLOATING, wait=0.3))
    taken = f"{b.address} leads to another"
    wait_for(lambda: any(taken in c for c in conditions_of(world, "Workload")))
    b.space.run("sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=0")
    wait_for(lambda: reaches(world.outside, FLOATING, wait=0.3))
    allow(world, "Disabled")
    wait_for(lambda: not reaches(world.outside, FLOATING, wait=0.3))
    assert reaches(world.outside, b.address, wait=HANG)
    world.put_endpoint("b", b)


def test_an_endpoint_cannot_have_what_is_anothers_translated_to_it(world: World) -> None:
    """`internalIP` must be its own address, whoever wrote the resource."""
    a, b = world.pods
    allow(world, "Enabled")
    world.put_endpoint("a", a, ipNATs=[{"internalIP": b.address, "externalIP": FLOATING}])
    wait_for(lambda: conditions_of(world, "Workload"))
    assert not reaches(world.outside, FLOATING, wait=0.3)
    world.put_endpoint("a", a)
    until_reached(world.outside, a.address)
