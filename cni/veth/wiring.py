"""The veth pair between host and pod: its addresses, two routes and one neighbour.

The pod gets its address as /32 (/128), a link-scoped route to 169.254.1.1, a default route
via it and a permanent neighbour for it with the host end's MAC; for IPv6 the gateway is the
host end's link-local address. The host end gets that MAC and its settings before the pod's
end is up, so the pod never sends into a half-made host. Host routes are felix's, which leaves
those of a pod that we wire to us: they come last, when its rules stand (`add_host_routes`).

Everything here blocks for well under a millisecond (removing a link: about 20 ms, so that
runs in a thread) and never awaits, so a namespace that was entered is left again.

Invariants (tests/cni/test_daemon_add.py, tests/cni/test_daemon_faults.py):
  CNI-14  A link that is not provably ours is neither removed nor changed (ADD-02, CNI-11).
  CNI-15  `create` leaves nothing behind when it raises.

Source: docs/reference/data-model.md#the-veth; conformance CAL-02 to CAL-04.
"""

from __future__ import annotations

import errno
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
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
from cni.veth import orphan_veths
from cni.veth.orphan_veths import HOST_MAC
from ipam.records.blocks import IPAddress
from libcalico.local.node_api import ROUTE_METRIC, ROUTE_PROTOCOL
from libcalico.model.keys import IPNetwork
from linux import addresses as kernel_addresses
from linux import links, neighbours, netns, routes, rules, sysctl
from linux.errors import KernelError
from linux.netlink import Socket
from linux.prefixes import parse, version

log = logging.getLogger(__name__)

EVERYTHING: tuple[IPNetwork, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))
GATEWAYS: dict[int, IPAddress] = {
    4: IPv4Address("169.254.1.1"),
    6: IPv6Address("fe80::ecee:eeff:feee:eeee"),
}
HOST_INET = {"forwarding": 1, "proxy_arp": 1, "route_localnet": 1, "rp_filter": 1}
HOST_INET6 = {
    "disable_ipv6": 0,
    "accept_dad": 0,
    "addr_gen_mode": 0,
    "accept_ra": 0,
    "proxy_ndp": 1,
    "forwarding": 1,
}
HOST_ALWAYS = {"accept_ra": 0}
POD_INET6 = {"disable_ipv6": 0, "accept_dad": 0, "accept_ra": 0}
DEFAULT_MTU = 1500
FURTHER_TABLES = 1000
"""The routing table of a further interface of a pod is this plus its index."""
RULE_PRIORITY = 1000


@dataclass(frozen=True, slots=True)
class VethSpec:
    """What a pair should be. `mark` is the proof of ownership that the host end carries."""

    host_interface: str
    ifname: str
    mark: str
    mac: str
    mtu: int
    queues: int = 1
    forwarding: bool = False


@dataclass(frozen=True, slots=True)
class VethPair:
    """The two ends by index, each in its own namespace; `reused` if they were there already."""

    host: int
    pod: int
    mac: str
    mtu: int
    reused: bool = False


@lru_cache(maxsize=256)
def host_prefix(address: IPAddress) -> IPv4Interface | IPv6Interface:
    """An address as a pod has it: /32 or /128."""
    made = IPv4Interface if address.version == 4 else IPv6Interface
    return made((int(address), address.max_prefixlen))


def random_mac() -> str:
    """A unicast, locally administered MAC."""
    octets = bytearray(secrets.token_bytes(6))
    octets[0] = (octets[0] & 0xFC) | 0x02
    return octets.hex(":")


def is_taken(host: Socket, name: str) -> bool:
    """Whether the host has a link of this name."""
    return links.is_there(host, name)


def existing(host: Socket, pod: Socket, spec: VethSpec) -> VethPair | None:
    """The pair of an earlier ADD of this attachment, or None if the name is free.

    What a killed daemon began is removed, and counts as none. Raises CNIError naming the interface
    when a foreign link has the name (CNI-14).
    """
    inner = links.get(pod, spec.ifname)
    if inner is None:
        return None
    outer = links.get(host, inner.peer_index) if inner.peer_index else None
    if outer is None or outer.alias != spec.mark or outer.name != spec.host_interface:
        if orphan_veths.remove(host, pod, spec.host_interface, spec.ifname):
            return None
        raise CNIError(
            Code.INTERNAL,
            f"interface {spec.ifname} exists in the container already and is not ours",
            "remove it, or choose another CNI_IFNAME; nothing was changed",
        )
    return VethPair(outer.index, inner.index, inner.mac, inner.mtu, reused=True)


def create(host: Socket, netns_fd: int, spec: VethSpec) -> VethPair:
    """Make the pair, the host end configured and up, the pod's end down.

    Raises KernelError; EEXIST means that the host has a link of this name (CNI-15).
    """
    message = links.create_veth(
        spec.host_interface,
        mac=HOST_MAC,
        mtu=spec.mtu,
        peer_name=spec.ifname,
        peer_mac=spec.mac,
        peer_netns_fd=netns_fd,
        queues=spec.queues,
    )
    made = links.made(host, message, spec.host_interface)
    try:
        for name, value in HOST_ALWAYS.items():
            sysctl.try_set(f"net/ipv6/conf/{spec.host_interface}/{name}", value)
        # The alias comes last: what the kernel tells of it shows felix that nothing is to be done.
        settings = [
            links.set_inet_conf(made.index, HOST_INET),
            links.set_proxy_delay(made.index, 0),
            links.set_alias(made.index, spec.mark),
        ]
        host.carry_out(settings, f"configure {spec.host_interface}")
    except BaseException:
        host.transact([links.delete(made.index)])
        raise
    return VethPair(made.index, made.peer_index, spec.mac, spec.mtu)


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


def add_host_routes(host: Socket, name: str, index: int, prefixes: Sequence[str]) -> None:
    """Route these prefixes to the host end, as felix writes its routes. Raises KernelError."""
    via = (routes.NextHop(None, index),)
    batch = []
    for prefix in map(parse, prefixes):
        shape = routes.Shape.of(version(prefix), via, protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)
        batch.append(routes.replace(routes.Route.of(prefix, shape)))
    host.carry_out(batch, f"lead {', '.join(prefixes)} to {name}")


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


def remove(host_interface: str, mark: str, *, unmarked: bool = False) -> bool:
    """Remove the host end (and with it the pod's); returns whether there was one of ours.

    `unmarked`: a link without any mark counts as ours (the datastore recorded it for this
    container). Blocks about 20 ms: call it in a thread. Raises KernelError.
    """
    with Socket() as host:
        link = links.get(host, host_interface)
        if link is None or not (link.alias == mark or (unmarked and not link.alias)):
            return False
        return _delete(host, link)


def remove_stale(host_interface: str, mark: str | None) -> None:
    """Remove what an older sandbox of the same pod left under this name (CAL-04).

    With `mark` only a link that carries it. Blocks about 20 ms. Raises CNIError, KernelError.
    """
    with Socket() as host:
        link = links.get(host, host_interface)
        if link is None:
            return
        if link.kind != "veth" or (mark is not None and link.alias != mark):
            raise CNIError(
                Code.INTERNAL,
                f"host interface {host_interface} exists already and is not this container's",
                f"it is a {link.kind or 'link'} with the alias {link.alias!r}",
            )
        log.info("replacing a host interface", extra={"link": host_interface, "of": link.alias})
        _delete(host, link)


def _delete(host: Socket, link: links.Link) -> bool:
    result = host.transact([links.delete(link.index)])[0]
    if result.errno == errno.ENODEV:
        return False
    result.check(f"remove {link.name}")
    return True


def default_mtu(host: Socket) -> int:
    """The MTU of the link that the default route uses, else 1500."""
    for family in (4, 6):
        probe = IPv4Address("192.0.2.1") if family == 4 else IPv6Address("2001:db8::1")
        try:
            route = routes.lookup(host, probe)
        except KernelError:
            continue
        link = links.get(host, route.oif) if route and route.oif else None
        if link is not None and link.mtu and not link.loopback:
            return link.mtu
    return DEFAULT_MTU


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
