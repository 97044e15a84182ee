"""The container's end of a veth pair: addresses, routes and neighbours, and both ends' settings.

The pod gets its address as /32 (/128), a link-scoped route to 169.254.1.1, a default route via it
and a permanent neighbour for it with the host end's MAC. For IPv6 the gateway is the host end's
link-local address. A further interface of a pod has its routes in a table of its own.

Source: docs/reference/data-model.md#the-veth; conformance CAL-02 to CAL-04. Tested in
tests/cni/test_daemon_add.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_network,
)

from cni.request.attachment import FIRST_INTERFACE
from cni.request.errors import CNIError, Code
from cni.veth.orphan_veths import HOST_MAC
from cni.veth.wiring import VethPair, VethSpec
from ipam.records.blocks import IPAddress
from libcalico.model.keys import IPNetwork
from linux import addresses as kernel_addresses
from linux import links, neighbours, netns, routes, rules, sysctl
from linux.errors import KernelError
from linux.netlink import Socket

log = logging.getLogger(__name__)

EVERYTHING: tuple[IPNetwork, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))
GATEWAYS: dict[int, IPAddress] = {
    4: IPv4Address("169.254.1.1"),
    6: IPv6Address("fe80::ecee:eeff:feee:eeee"),
}
HOST_INET6 = {
    "disable_ipv6": 0,
    "accept_dad": 0,
    "addr_gen_mode": 0,
    "accept_ra": 0,
    "proxy_ndp": 1,
    "forwarding": 1,
}
POD_INET6 = {"disable_ipv6": 0, "accept_dad": 0, "accept_ra": 0}
FURTHER_TABLES = 1000
"""The routing table of a further interface of a pod is this plus its index."""
RULE_PRIORITY = 1000


@lru_cache(maxsize=256)
def host_prefix(address: IPAddress) -> IPv4Interface | IPv6Interface:
    """An address as a pod has it: /32 or /128."""
    made = IPv4Interface if address.version == 4 else IPv6Interface
    return made((int(address), address.max_prefixlen))


def configure(
    pod: PodSocket,
    netns_fd: int,
    spec: VethSpec,
    pair: VethPair,
    addresses: Sequence[IPAddress],
    destinations: Sequence[IPNetwork] = EVERYTHING,
) -> None:
    """Host settings for IPv6, then the pod's end: up, addresses, routes, neighbours.

    `destinations` are reached through the host; those of a family without address are left out.
    May be repeated on a reused pair. Raises KernelError or CNIError.
    """
    families = sorted({address.version for address in addresses})
    _host_settings(spec.host_interface, 6 in families)
    if 6 in families or pod.forwarding != str(int(spec.forwarding)):
        netns.run_in(netns_fd, lambda: _pod_settings(spec, families))
    batch = [links.set_up(pair.pod)]
    # The first interface has the default route; one of another network must not disturb it.
    sources: list[IPAddress] = []
    others = [] if spec.ifname == FIRST_INTERFACE else _routes_of_others(pod, pair.pod)
    if pair.reused:
        batch += _outdated(pod, pair.pod, addresses)
    for address in addresses:
        batch.append(kernel_addresses.add(pair.pod, host_prefix(address), replace=True))
    for family in families:
        own = [network for network in destinations if network.version == family]
        if others:
            batch += _gateway(pair.pod, family, own, others)
        else:
            batch += _first_gateway(pair.pod, family, tuple(own))
        if any(route.dst in own for route in others):
            batch += _own_table(pair.pod, family, own)
            sources += [address for address in addresses if address.version == family]
    pod.carry_out(batch, f"configure {spec.ifname} in the container")
    if sources:
        _route_by_source(pod, pair.pod, sources)


def _outdated(pod: Socket, index: int, addresses: Sequence[IPAddress]) -> list[bytes]:
    return [
        kernel_addresses.delete(index, address.interface)
        for address in kernel_addresses.dump(pod, index)
        if address.scope == kernel_addresses.SCOPE_UNIVERSE
        and address.interface.ip not in addresses
    ]


def _routes_of_others(pod: Socket, index: int) -> list[routes.Route]:
    return [
        route
        for route in routes.dump(pod, table=routes.TABLE_MAIN)
        if any(hop.oif != index for hop in route.next_hops)
    ]


def _own_table(index: int, family: int, destinations: Sequence[IPNetwork]) -> list[bytes]:
    """The routes of a further interface, in a table for what its own addresses send.

    By the first interface's routes their answers would leave there, with a foreign source
    (PAIN-18).
    """
    via = routes.NextHop(GATEWAYS[family], index)
    return [
        routes.replace(routes.Route(network, (via,), table=FURTHER_TABLES + index))
        for network in destinations
    ]


def _route_by_source(pod: Socket, index: int, sources: Sequence[IPAddress]) -> None:
    source_rules = [
        rules.from_source(each, FURTHER_TABLES + index, RULE_PRIORITY) for each in sources
    ]
    for result in pod.transact(source_rules):
        if result.errno != errno.EEXIST:
            result.check("route by source in the container")


@lru_cache(maxsize=256)
def _first_gateway(
    index: int, family: int, destinations: tuple[IPNetwork, ...]
) -> tuple[bytes, ...]:
    """`_gateway` of a first interface: the same for nearly all pods."""
    return tuple(_gateway(index, family, destinations))


def _gateway(
    index: int,
    family: int,
    destinations: Sequence[IPNetwork],
    others: Sequence[routes.Route] = (),
) -> list[bytes]:
    """The gateway, and the routes through it that no other interface has already."""
    gateway = GATEWAYS[family]
    via = routes.NextHop(gateway, index)
    taken = {route.dst for route in others}
    batch = []
    if family == 4:
        direct = ip_network(gateway)
        metric = index if direct in taken else 0
        batch.append(
            routes.replace(routes.Route(direct, (routes.NextHop(None, index),), metric=metric))
        )
    batch += [
        routes.replace(routes.Route(network, (via,)))
        for network in destinations
        if network not in taken
    ]
    batch.append(neighbours.replace(index, gateway, HOST_MAC))
    return batch


def _host_settings(name: str, ipv6: bool) -> None:
    if not ipv6:
        return
    for setting, value in HOST_INET6.items():
        try:
            sysctl.set(f"net/ipv6/conf/{name}/{setting}", value)
        except KernelError as error:
            if setting in ("disable_ipv6", "forwarding", "proxy_ndp"):
                raise _no_ipv6(error) from error
            log.debug("an IPv6 setting of %s stays: %s", name, error)


def _pod_settings(spec: VethSpec, families: Sequence[int]) -> None:
    forward = int(spec.forwarding)
    if 4 in families:
        sysctl.ensure("net/ipv4/ip_forward", forward)
    if 6 not in families:
        return
    try:
        for scope in ("all", "default", "lo"):
            sysctl.ensure(f"net/ipv6/conf/{scope}/disable_ipv6", 0)
        for setting, value in POD_INET6.items():
            sysctl.ensure(f"net/ipv6/conf/{spec.ifname}/{setting}", value)
        sysctl.ensure("net/ipv6/conf/all/forwarding", forward)
    except KernelError as error:
        raise _no_ipv6(error) from error


def _no_ipv6(error: KernelError) -> CNIError:
    return CNIError(
        Code.INTERNAL, "an IPv6 address is wanted, but IPv6 cannot be switched on", str(error)
    )


class PodSocket(Socket):
    """A netlink socket of the namespace in which it was opened.

    `forwarding`: what net.ipv4.ip_forward was there; "" where that was not told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forwarding = sysctl.try_get("net/ipv4/ip_forward") or ""


def open_pod(netns_fd: int) -> PodSocket:
    """A netlink socket inside the pod; raises CNIError if it is no network namespace."""
    require_netns(netns_fd)
    return netns.run_in(netns_fd, PodSocket)


def require_netns(netns_fd: int) -> None:
    """Raise CNIError 4 if the descriptor is of something else than a network namespace."""
    if not netns.is_netns(netns_fd):
        raise CNIError(Code.INVALID_ENVIRONMENT, "CNI_NETNS is not a network namespace")
