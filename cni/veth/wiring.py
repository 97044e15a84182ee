"""The veth pair between host and pod: made, found again, removed, and the routes to it.

The host end gets its MAC and its settings before the pod's end is up, so the pod never sends into
a half-made host. `cni.veth.pod_end` then configures the container's side. Host routes are felix's,
which leaves those of a pod that we wire to us: they come last, when its rules stand
(`add_host_routes`).

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
from ipaddress import (
    IPv4Address,
    IPv6Address,
)

from cni.request.errors import CNIError, Code
from cni.veth import orphan_veths
from cni.veth.orphan_veths import HOST_MAC
from libcalico.local.node_api import ROUTE_METRIC, ROUTE_PROTOCOL
from linux import links, routes, sysctl
from linux.errors import KernelError
from linux.netlink import Socket
from linux.prefixes import parse, version

log = logging.getLogger(__name__)

HOST_INET = {"forwarding": 1, "proxy_arp": 1, "route_localnet": 1, "rp_filter": 1}
HOST_ALWAYS = {"accept_ra": 0}
DEFAULT_MTU = 1500


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


def add_host_routes(host: Socket, name: str, index: int, prefixes: Sequence[str]) -> None:
    """Route these prefixes to the host end, as felix writes its routes. Raises KernelError."""
    via = (routes.NextHop(None, index),)
    batch = []
    for prefix in map(parse, prefixes):
        shape = routes.Shape.of(version(prefix), via, protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)
        batch.append(routes.replace(routes.Route.of(prefix, shape)))
    host.carry_out(batch, f"lead {', '.join(prefixes)} to {name}")


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
