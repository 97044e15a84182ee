"""Addresses of both families are added, read back and removed in one code path."""

from __future__ import annotations

import errno
from ipaddress import ip_interface

import pytest

from linux import addresses, links
from linux.netlink import Socket
from tests.support.netns import network_namespace


@pytest.mark.parametrize("text", ["10.65.0.1/32", "10.99.1.1/24", "fd65::1/128", "fd99::1/64"])
def test_an_address_comes_and_goes(text: str) -> None:
    wanted = ip_interface(text)
    with network_namespace("addr", loopback=False) as space, space.entered(), Socket() as sock:
        index = links.made(sock, links.create("br0", "bridge"), "br0").index
        sock.request(addresses.add(index, wanted))
        assert [a.interface for a in addresses.dump(sock, index)] == [wanted]
        again, replaced = sock.transact(
            [addresses.add(index, wanted), addresses.add(index, wanted, replace=True)]
        )
        assert (again.errno, replaced.errno) == (errno.EEXIST, 0)
        assert addresses.dump(sock, index + 1) == []
        sock.request(addresses.delete(index, wanted))
        assert addresses.dump(sock) == []
        gone = sock.transact([addresses.delete(index, wanted)])[0]
        assert gone.errno == errno.EADDRNOTAVAIL
