"""What the kernel would do with a packet that arrives: its route, or its refusal."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from socket import if_nametoindex

import pytest

from linux.lookups.forwarding import decide
from linux.netlink.socket import Socket
from tests.support.netns import Namespace, network_namespace

SOURCE = ip_address("10.1.0.9")


@pytest.fixture
def router() -> Iterator[Namespace]:
    """A router between two networks; the test runs inside."""
    with network_namespace("forwarding") as made, made.entered():
        for name, net in (("left", "10.1.0.1/24"), ("right", "10.2.0.1/24")):
            made.run("ip", "link", "add", name, "type", "bridge")
            made.run("ip", "address", "add", net, "dev", name)
            made.run("ip", "link", "set", name, "up")
        made.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        made.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
        made.run("ip", "route", "add", "10.3.0.0/26", "via", "10.2.0.7")
        made.run("ip", "route", "add", "blackhole", "10.4.0.0/16")
        made.run("ip", "route", "add", "prohibit", "10.5.0.0/16")
        yield made


def test_the_route_with_its_prefix_and_the_next_hop(router: Namespace) -> None:
    with Socket() as sock:
        left, right = if_nametoindex("left"), if_nametoindex("right")
        found = decide(sock, SOURCE, ip_address("10.3.0.5"), iif=left)
        assert found.route is not None
        assert found.route.dst == ip_network("10.3.0.0/26")
        assert (found.gateway, found.oif, found.error) == (ip_address("10.2.0.7"), right, 0)
        direct = decide(sock, SOURCE, ip_address("10.2.0.9"), iif=left)
        assert (direct.gateway, direct.oif) == (None, right)
        own = decide(sock, None, ip_address("10.3.0.5"))
        assert own.oif == right


@pytest.mark.parametrize(
    ("address", "code"),
    [("10.4.0.1", errno.EINVAL), ("10.5.0.1", errno.EACCES), ("10.9.0.1", errno.ENETUNREACH)],
)
def test_a_refusal_has_its_errno(router: Namespace, address: str, code: int) -> None:
    with Socket() as sock:
        found = decide(sock, SOURCE, ip_address(address), iif=if_nametoindex("left"))
        assert (found.route, found.error) == (None, code)


def test_the_reverse_path_filter_refuses(router: Namespace) -> None:
    router.run("sysctl", "-qw", "net.ipv4.conf.right.rp_filter=1")
    with Socket() as sock:
        found = decide(sock, SOURCE, ip_address("10.3.0.5"), iif=if_nametoindex("right"))
        assert found.error == errno.EXDEV


def test_a_host_that_does_not_forward_refuses(router: Namespace) -> None:
    router.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
    with Socket() as sock:
        found = decide(sock, SOURCE, ip_address("10.3.0.5"), iif=if_nametoindex("left"))
        assert found.error == errno.EHOSTUNREACH
