"""The kernel's side of address detection: interfaces as they are, the source towards a host.

Tested in `tests/node/test_startup.py` in a real network namespace.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address

from linux import addresses, links
from linux.netlink import Socket
from node.autodetect import Interface, IPAddress


def read() -> list[Interface]:
    """All interfaces of this namespace with their addresses, in kernel order."""
    with Socket() as sock:
        names = {link.index: link.name for link in links.dump(sock)}
        found = addresses.dump(sock)
    return [
        Interface(name, tuple(one.interface for one in found if one.index == index))
        for index, name in names.items()
    ]


def source_towards(host: str, version: int) -> IPAddress | None:
    """The source address that the kernel chooses towards `host`; None when there is no route.

    A UDP socket is connected for that; no packet leaves.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        target = socket.getaddrinfo(host, 80, family, socket.SOCK_DGRAM)[0][4]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None
