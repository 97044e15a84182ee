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
        index = links.created(sock.transact([links.create("br0", "bridge", up=True)])[0]).index
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


def test_proxy_entries_are_a_table_of_their_own() -> None:
    address = ip_address("fd65::9")
    with network_namespace("proxy") as space, space.entered(), Socket() as sock:
        index = links.created(sock.transact([links.create("br0", "bridge", up=True)])[0]).index
        sock.request(neighbours.add_proxy(index, address))
        assert address not in {n.address for n in neighbours.dump(sock)}
        (found,) = neighbours.dump(sock, proxy=True)
        assert (found.address, found.index, found.proxy) == (address, index, True)
        sock.request(neighbours.delete(index, address, proxy=True))
        assert neighbours.dump(sock, proxy=True) == []


def test_a_bad_mac_is_refused() -> None:
    with pytest.raises(ValueError, match="six hexadecimal"):
        neighbours.replace(1, ip_address("10.0.0.1"), "ee:ee")
