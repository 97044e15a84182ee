"""The kernel's side of address detection: the interfaces, and the source towards a host.

Tested in `tests/node/test_node_address.py` in a real network namespace.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address

from felix import ROUTE_PROTOCOL
from ipam.admin.overlap import Taken
from linux import addresses, links, routes
from linux.netlink import Socket
from node.identity.autodetect import Interface, IPAddress


def read() -> list[Interface]:
    """All interfaces of this namespace with their addresses, in kernel order."""
    with Socket() as sock:
        names = {link.index: link.name for link in links.dump(sock)}
        assigned = addresses.dump(sock)
    return [
        Interface(name, tuple(one.interface for one in assigned if one.index == index))
        for index, name in names.items()
    ]


ROUTERS = frozenset({ROUTE_PROTOCOL, 12, 80})
"""Protocols of the routes to pods: ours, BIRD's and Calico's felix's."""
POD_LINKS = ("cali", "tunl", "vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali")


def kernel_networks() -> list[Taken]:
    """The networks of this machine's routes, without routes to pods.

    A default route names no network, and every machine has loopback and link-local ones.
    """
    with Socket() as sock:
        names = {link.index: link.name for link in links.dump(sock)}
        kernel_routes = routes.dump(sock, table=routes.TABLE_MAIN)
    return [
        Taken(route.dst, f"route {route.dst} via {names.get(route.oif, 'an unknown link')}")
        for route in kernel_routes
        if route.type == "unicast"
        and route.dst.prefixlen
        and route.protocol not in ROUTERS
        and not names.get(route.oif, "").startswith(POD_LINKS)
        and not (route.dst.is_loopback or route.dst.is_link_local or route.dst.is_multicast)
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
