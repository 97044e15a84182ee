"""A kernel with IP-in-IP gives the device, one without says so; which it is, ip(8) knows too."""

from __future__ import annotations

from linux import ipip, links
from linux.netlink import Socket
from tests.support.netns import network_namespace


def test_the_device_or_the_word_that_there_is_none() -> None:
    with network_namespace("ipip") as space, space.entered(), Socket() as sock:
        refused = "Unknown device type" in space.run(
            "sh", "-c", "ip link add t0 type ipip local 10.0.0.1 remote 10.0.0.2 2>&1", check=False
        )
        found = ipip.ensure(sock)
        assert (found is None) == refused
        assert links.get(sock, ipip.DEVICE) == found
