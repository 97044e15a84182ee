"""Routes, IPv4 and IPv6 in one code path, with several next hops everywhere.

Problem: a route that is removed and added again loses packets in between, and a route read back
never looks quite like the one that was written. So writing is `replace` (one message, hitless),
and a `Route` brings itself into the form in which the kernel reads it back.

ROUTE-1: `dump` of what `replace(route)` wrote contains a value equal to `route`.
ROUTE-2: replacing a route loses no packet.
The kernel's key of a route is (table, destination, metric): `Route.key`. Another metric is
another route. IPv6: metric 0 means 1024; blackholes hang on the loopback device.
Tested in tests/linux/test_routes.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from errno import EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, ENOENT
from ipaddress import IPv4Network
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Literal

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.rtnl import (
    RTM_DELROUTE,
    RTM_GETROUTE,
    RTM_NEWROUTE,
    IPAddress,
    IPNetwork,
    address_from,
    family_of,
    network_from,
)

RouteType = Literal[
    "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable",
    "prohibit", "throw", "other",
]  # fmt: skip
_TYPES: dict[RouteType, int] = {
    "unicast": 1,
    "local": 2,
    "broadcast": 3,
    "anycast": 4,
    "multicast": 5,
    "blackhole": 6,
    "unreachable": 7,
    "prohibit": 8,
    "throw": 9,
    "other": 0,
}
_TYPE_NAMES: dict[int, RouteType] = {number: name for name, number in _TYPES.items()}
_HOPLESS = frozenset({"blackhole", "unreachable", "prohibit", "throw"})

TABLE_MAIN, TABLE_LOCAL, TABLE_DEFAULT = 254, 255, 253
PROTOCOL_KERNEL, PROTOCOL_BOOT, PROTOCOL_STATIC = 2, 3, 4
SCOPE_UNIVERSE, SCOPE_LINK, SCOPE_HOST, SCOPE_NOWHERE = 0, 253, 254, 255

_MESSAGE = struct.Struct("=BBBBBBBBI")  # family, dst, src, tos, table, protocol, scope, type, flags
_HOP = struct.Struct("=HBBi")  # length, flags, weight-1, index
_DST, _OIF, _GATEWAY, _PRIORITY, _PREFSRC = 1, 4, 5, 6, 7
_METRICS, _MULTIPATH, _TABLE, _MARK, _VIA = 8, 9, 15, 16, 18
_METRIC_MTU = 2
_ONLINK = 0x4
_F_CLONED, _F_LOOKUP_TABLE, _F_FIB_MATCH = 0x200, 0x1000, 0x2000
_IPV6_METRIC = 1024


@dataclass(frozen=True, slots=True, order=False)
class NextHop:
    """One way out: `gateway` (None: the destination is on the link) through link `oif`.

    `onlink`: take the gateway as reachable though no route says so. `weight` 1 to 256. The
    gateway may be of the other family (IPv4 via IPv6).
    """

    gateway: IPAddress | None
    oif: int
    onlink: bool = False
    weight: int = 1

    def _order(self) -> tuple[bytes, int, bool, int]:
        return (self.gateway.packed if self.gateway else b"", self.oif, self.onlink, self.weight)


@dataclass(frozen=True, slots=True)
class Route:
    """One route in the kernel's read-back form (ROUTE-1).

    `next_hops` is empty for types without one; their order carries no meaning and is canonical.
    `scope` None means the usual: link for a route without gateway, universe otherwise.
    `mtu` 0 leaves it to the link. `metric` of IPv6: 0 becomes 1024.
    """

    dst: IPNetwork
    next_hops: tuple[NextHop, ...] = ()
    type: RouteType = "unicast"
    table: int = TABLE_MAIN
    protocol: int = PROTOCOL_BOOT
    scope: int | None = None
    metric: int = 0
    prefsrc: IPAddress | None = None
    mtu: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        hops = () if self.type in _HOPLESS else tuple(sorted(self.next_hops, key=NextHop._order))
        if len(hops) == 1 and hops[0].weight != 1:
            hops = (NextHop(hops[0].gateway, hops[0].oif, hops[0].onlink),)
        put(self, "next_hops", hops)
        if self.dst.version == 6:
            put(self, "metric", self.metric or _IPV6_METRIC)
            put(self, "scope", SCOPE_UNIVERSE)
        elif self.scope is None:
            direct = self.type == "unicast" and all(hop.gateway is None for hop in hops)
            put(self, "scope", SCOPE_LINK if direct else SCOPE_UNIVERSE)

    @property
    def key(self) -> tuple[int, IPNetwork, int]:
        """(table, destination, metric): what makes it one route to the kernel."""
        return (self.table, self.dst, self.metric)

    @property
    def oif(self) -> int:
        """The link of the first next hop, 0 without any."""
        return self.next_hops[0].oif if self.next_hops else 0

    @property
    def gateway(self) -> IPAddress | None:
        """The gateway of the first next hop."""
        return self.next_hops[0].gateway if self.next_hops else None


def decode(body: bytes) -> Route | None:
    """A route message's body; None for what is no IP route or a cached clone."""
    family, prefix, _, _, table, protocol, scope, kind, flags = _MESSAGE.unpack_from(body)
    if family not in (AF_INET, AF_INET6) or flags & _F_CLONED:
        return None
    found = m.parse_attributes(body, _MESSAGE.size)
    packed = found.get(_DST) or bytes(4 if family == AF_INET else 16)
    if _MULTIPATH in found:
        hops = tuple(_decode_hops(found[_MULTIPATH]))
    elif _OIF in found or _GATEWAY in found or _VIA in found:
        hops = (NextHop(_gateway(found), m.as_uint(found.get(_OIF, b"")), bool(flags & _ONLINK)),)
    else:
        hops = ()
    prefsrc = found.get(_PREFSRC)
    metrics = m.parse_attributes(found[_METRICS]) if _METRICS in found else {}
    return Route(
        dst=network_from(packed, prefix),
        next_hops=hops,
        type=_TYPE_NAMES.get(kind, "other"),
        table=m.as_uint(found[_TABLE]) if _TABLE in found else table,
        protocol=protocol,
        scope=scope,
        metric=m.as_uint(found[_PRIORITY]) if _PRIORITY in found else 0,
        prefsrc=address_from(prefsrc) if prefsrc else None,
        mtu=m.as_uint(metrics.get(_METRIC_MTU, b"")),
    )


def _decode_hops(data: bytes) -> Iterator[NextHop]:
    offset = 0
    while offset + _HOP.size <= len(data):
        length, flags, weight, oif = _HOP.unpack_from(data, offset)
        if length < _HOP.size:
            return
        found = m.parse_attributes(data[offset : offset + length], _HOP.size)
        yield NextHop(_gateway(found), oif, bool(flags & _ONLINK), weight + 1)
        offset += (length + 3) & ~3


def _gateway(found: m.Attributes) -> IPAddress | None:
    if _GATEWAY in found:
        return address_from(found[_GATEWAY])
    if _VIA in found:
        return address_from(found[_VIA][2:])
    return None


def dump(
    sock: Socket, family: int = AF_UNSPEC, *, table: int = 0, protocol: int = 0
) -> list[Route]:
    """All routes of a family (0: both), of one table and protocol if given (the kernel filters).

    Raises `KernelError`.
    """
    found: list[Route] = []
    for each in (AF_INET, AF_INET6) if family == AF_UNSPEC else (family,):
        body = _MESSAGE.pack(each, 0, 0, 0, 0, protocol, 0, 0, 0)
        if table:
            body += m.u32(_TABLE, table)
        try:
            answers = sock.dump(m.message(RTM_GETROUTE, 0, body), "list routes")
        except KernelError as error:
            # A table that holds no route yet does not exist to the kernel.
            if table and error.errno == ENOENT:
                continue
            raise
        for _, answer in answers:
            route = decode(answer)
            if route is None or (table and route.table != table):
                continue
            if not protocol or route.protocol == protocol:
                found.append(route)
    return found


def _hop_attributes(hop: NextHop, family: int) -> bytes:
    if hop.gateway is None:
        return b""
    if family_of(hop.gateway) != family:
        return m.attribute(_VIA, struct.pack("=H", family_of(hop.gateway)) + hop.gateway.packed)
    return m.attribute(_GATEWAY, hop.gateway.packed)


def _body(route: Route) -> bytes:
    family = AF_INET if isinstance(route.dst, IPv4Network) else AF_INET6
    parts = [m.attribute(_DST, route.dst.network_address.packed), m.u32(_TABLE, route.table)]
    flags = 0
    if route.metric:
        parts.append(m.u32(_PRIORITY, route.metric))
    if route.prefsrc is not None:
        parts.append(m.attribute(_PREFSRC, route.prefsrc.packed))
    if route.mtu:
        parts.append(m.nest(_METRICS, m.u32(_METRIC_MTU, route.mtu)))
    if len(route.next_hops) == 1:
        hop = route.next_hops[0]
        flags = _ONLINK if hop.onlink else 0
        if hop.oif:
            parts.append(m.u32(_OIF, hop.oif))
        parts.append(_hop_attributes(hop, family))
    elif route.next_hops:
        parts.append(m.attribute(_MULTIPATH, b"".join(_hops(route, family))))
    head = _MESSAGE.pack(
        family,
        route.dst.prefixlen,
        0,
        0,
        route.table if route.table < 256 else 0,
        route.protocol,
        route.scope or 0,
        _TYPES[route.type],
        flags,
    )
    return head + b"".join(parts)


def _hops(route: Route, family: int) -> Iterator[bytes]:
    for hop in route.next_hops:
        if not 1 <= hop.weight <= 256:
            raise ValueError(f"route {route.dst}: weight {hop.weight} is not within 1 to 256")
        inner = _hop_attributes(hop, family)
        flags = _ONLINK if hop.onlink else 0
        yield _HOP.pack(_HOP.size + len(inner), flags, hop.weight - 1, hop.oif) + inner


def replace(route: Route) -> bytes:
    """Writes a route whether or not its key exists, hitless (ROUTE-2)."""
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_REPLACE, _body(route))


def add(route: Route) -> bytes:
    """Writes a route. EEXIST if its key exists."""
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_EXCL, _body(route))


def delete(route: Route) -> bytes:
    """Removes the route of this key and protocol, with all its next hops. ESRCH if gone."""
    family = AF_INET if isinstance(route.dst, IPv4Network) else AF_INET6
    parts = [m.attribute(_DST, route.dst.network_address.packed), m.u32(_TABLE, route.table)]
    if route.metric:
        parts.append(m.u32(_PRIORITY, route.metric))
    table = route.table if route.table < 256 else 0
    # Scope "nowhere" matches any: the key is enough, and the scope may have drifted.
    head = _MESSAGE.pack(
        family, route.dst.prefixlen, 0, 0, table, route.protocol, SCOPE_NOWHERE, 0, 0
    )
    return m.message(RTM_DELROUTE, 0, head + b"".join(parts))


def lookup(sock: Socket, address: IPAddress, *, oif: int = 0, mark: int = 0) -> Route | None:
    """The route by which the host would reach an address, None if there is none.

    The route's own prefix and all its next hops are given, of the table that matched. A
    blackhole counts as no route. Raises `KernelError`.
    """
    family = family_of(address)
    # IPv6 always tells the table, and refuses the flag that asks IPv4 for it.
    flags = _F_FIB_MATCH | (_F_LOOKUP_TABLE if family == AF_INET else 0)
    body = _MESSAGE.pack(family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, flags)
    body += m.attribute(_DST, address.packed)
    if oif:
        body += m.u32(_OIF, oif)
    if mark:
        body += m.u32(_MARK, mark)
    result = sock.transact([m.message(RTM_GETROUTE, 0, body)])[0]
    if result.errno in (ENETUNREACH, EHOSTUNREACH, EACCES):
        return None
    if result.errno == EINVAL and not result.detail:  # how the kernel answers for a blackhole
        return None
    result.check(f"look up the route to {address}")
    route = decode(result.answers[0][1])
    return None if route is None or route.type in _HOPLESS else route
