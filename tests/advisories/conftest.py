"""A node whose host has the worst settings it can have, and two pods under one felix.

a 10.65.0.1, b 10.65.0.2 -- node 10.99.7.1 -- outside 10.99.7.2, 203.0.113.9
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.felix.in_kernel import BACKENDS, mode
from tests.felix.world import Pod, World, make_world
from tests.support.patience import wait_for

OUTSIDE, OUTSIDE6 = "10.99.7.2", "2001:db8:7::2"
CARELESS = (
    # No reverse path filter, every advertisement is believed, ARP is answered for all.
    *(f"net.ipv4.conf.{name}.rp_filter=0" for name in ("all", "default")),
    *(f"net.ipv6.conf.{name}.accept_ra=2" for name in ("all", "default")),
    *(f"net.ipv4.conf.{name}.arp_accept=1" for name in ("all", "default")),
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.default.forwarding=1",
)


@pytest.fixture(scope="package", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every advisory is tried on iptables-nft and on nftables."""
    name: str = request.param
    return name


@pytest.fixture(scope="package")
def careless(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The world on a careless host, with pods a and b that everybody may talk to.

    Shared by all of the room: what a test puts into it, it takes away. The test's thread is inside
    the node until the last of them is over.
    """
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.node.run("sysctl", "-qw", *CARELESS)
        world.environment |= mode(backend) | {"FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT"}
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        world.outside.run("ip", "route", "add", "fd65::/48", "via", "2001:db8:7::1")
        for number, name in enumerate("ab", 1):
            world.add_pod(name, f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
        for pod in world.pods:
            wait_for(partial(reaches_outside, pod))
        yield world


def reaches_outside(pod: Pod) -> bool:
    """In both families."""
    return pod.reaches(OUTSIDE, wait=0.3) and pod.reaches(OUTSIDE6, wait=0.3)
