"""Permanent and proxy neighbour entries, IPv4 and IPv6."""

from __future__ import annotations

import errno
from ipaddress import ip_address

import pytest

from linux import links, neighbours
from linux.netlink import Socket
from tests.support.netns import network_namespace


@pytest.mark.parametrize("text", ["169.254.1.1", "fe80::1"])
def test_a_permanent_neighbour_comes_changes_and_goes(text: str) -> None:
    address = ip_address(text)
    with network_namespace("neigh") as space, space.entered(), Socket() as sock:
        index = links.made(sock, links.create("br0", "bridge", up=True), "br0").index
        for mac in ("ee:ee:ee:ee:ee:ee", "02:00:00:00:00:01"):
            sock.request(neighbours.replace(index, address, mac))
            found = [n for n in neighbours.dump(sock, index=index) if n.address == address]
            assert found == [neighbours.Neighbour(index, address, mac)]
            assert found[0].permanent
            assert f"{text} dev br0 lladdr {mac} PERMANENT" in space.run("ip", "neigh")
        sock.request(neighbours.delete(index, address))
        assert address not in {n.address for n in neighbours.dump(sock)}
        gone = sock.transact([neighbours.delete(index, address)])[0]
        assert gone.errno == errno.ENOENT


def test_a_bad_mac_is_refused() -> None:
    with pytest.raises(ValueError, match="six hexadecimal"):
        neighbours.replace(1, ip_address("10.0.0.1"), "ee:ee")
