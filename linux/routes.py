"""Routes, IPv4 and IPv6 in one code path, with several next hops everywhere.

Problem: a route that is removed and added again loses packets in between, and a route read back
never looks quite like the one that was written. So writing is `replace` (one message, hitless),
and a `Route` brings itself into the form in which the kernel reads it back.

ROUTE-1: `dump` of what `replace(route)` wrote contains a value equal to `route`.
ROUTE-2: replacing a route loses no packet.
What a route is: linux/route_values.py.
Tested in tests/linux/test_routes.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from errno import EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, ENOENT
from socket import AF_INET, AF_INET6, AF_UNSPEC

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.prefixes import Prefix
from linux.route_values import (
    HOPLESS,
    SCOPE_NOWHERE,
    TABLE_MAIN,
    NextHop,
    Route,
    RouteKey,
    RouteType,
    Shape,
)
from linux.rtnl import (
    RTM_DELROUTE,
    RTM_GETROUTE,
    RTM_NEWROUTE,
    IPAddress,
    address_from,
    family_of,
)

__all__ = [
    "TABLE_MAIN",
    "NextHop",
    "Route",
    "RouteKey",
    "Shape",
    "Shapes",
    "add",
    "decode",
    "delete",
    "dump",
    "lookup",
    "replace",
]

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

_MESSAGE = struct.Struct("=BBBBBBBBI")  # family, dst, src, tos, table, protocol, scope, type, flags
_HOP = struct.Struct("=HBBi")  # length, flags, weight-1, index
_DST, _OIF, _GATEWAY, _PRIORITY, _PREFSRC = 1, 4, 5, 6, 7
_METRICS, _MULTIPATH, _TABLE, _MARK, _VIA = 8, 9, 15, 16, 18
_METRIC_MTU = 2
_METRIC_ADVMSS = 8
_DST_4, _DST_6 = struct.pack("=HH", 8, _DST), struct.pack("=HH", 20, _DST)
"""How the destination's attribute begins."""
_ONLINK = 0x4
_F_CLONED, _F_LOOKUP_TABLE, _F_FIB_MATCH = 0x200, 0x1000, 0x2000

Shapes = dict[bytes, Shape]
"""Shapes by the bytes of a message without its destination."""


def decode(body: bytes, known: Shapes | None = None) -> Route | None:
    """A route message's body; None for what is no IP route or a cached clone.

    `known` remembers shapes by all bytes but the destination's: routes that differ in nothing
    else are read without looking at their attributes again. The caller bounds it.
    """
    if known is None:
        return _decode(body)
    # The kernel puts the destination behind the table, in both families.
    mark = body[20:24]
    end = 28 if mark == _DST_4 else 40 if mark == _DST_6 else 0
    if not end:
        return _decode(body)
    template = body[:1] + body[2:24] + body[end:]
    shape = known.get(template)
    if shape is not None:
        return tuple.__new__(Route, (body[24:end] + body[1:2], shape))
    route = _decode(body)
    if route is not None:
        known[template] = route.shape
    return route


def _decode(body: bytes) -> Route | None:
    family, prefix, _, _, table, protocol, scope, kind, flags = _MESSAGE.unpack_from(body)
    if family not in (AF_INET, AF_INET6) or flags & _F_CLONED:
        return None
    attributes = m.parse_attributes(body, _MESSAGE.size)
    packed = attributes.get(_DST) or bytes(4 if family == AF_INET else 16)
    if _MULTIPATH in attributes:
        hops = tuple(_decode_hops(attributes[_MULTIPATH]))
    elif _OIF in attributes or _GATEWAY in attributes or _VIA in attributes:
        hops = (
            NextHop(
                _gateway(attributes), m.as_uint(attributes.get(_OIF, b"")), bool(flags & _ONLINK)
            ),
        )
    else:
        hops = ()
    prefsrc = attributes.get(_PREFSRC)
    metrics = m.parse_attributes(attributes[_METRICS]) if _METRICS in attributes else {}
    shape = Shape.of(
        4 if family == AF_INET else 6,
        hops,
        _TYPE_NAMES.get(kind, "other"),
        m.as_uint(attributes[_TABLE]) if _TABLE in attributes else table,
        protocol,
        scope,
        m.as_uint(attributes[_PRIORITY]) if _PRIORITY in attributes else 0,
        address_from(prefsrc) if prefsrc else None,
        m.as_uint(metrics.get(_METRIC_MTU, b"")),
    )
    return Route.of(Prefix(packed + bytes((prefix,))), shape)


def _decode_hops(data: bytes) -> Iterator[NextHop]:
    offset = 0
    while offset + _HOP.size <= len(data):
        length, flags, weight, oif = _HOP.unpack_from(data, offset)
        if length < _HOP.size:
            return
        attributes = m.parse_attributes(data[offset : offset + length], _HOP.size)
        yield NextHop(_gateway(attributes), oif, bool(flags & _ONLINK), weight + 1)
        offset += (length + 3) & ~3


def _gateway(attributes: m.Attributes) -> IPAddress | None:
    if _GATEWAY in attributes:
        return address_from(attributes[_GATEWAY])
    if _VIA in attributes:
        return address_from(attributes[_VIA][2:])
    return None


def dump(
    sock: Socket, family: int = AF_UNSPEC, *, table: int = 0, protocol: int = 0
) -> list[Route]:
    """All routes of a family (0: both), of one table and protocol if given (the kernel filters).

    Raises `KernelError`.
    """
    routes: list[Route] = []
    shapes: Shapes = {}
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
            route = decode(answer, shapes)
            if route is None or (table and route.table != table):
                continue
            if not protocol or route.protocol == protocol:
                routes.append(route)
    return routes


def _hop_attributes(hop: NextHop, family: int) -> bytes:
    if hop.gateway is None:
        return b""
    if family_of(hop.gateway) != family:
        return m.attribute(_VIA, struct.pack("=H", family_of(hop.gateway)) + hop.gateway.packed)
    return m.attribute(_GATEWAY, hop.gateway.packed)


def _body(route: Route) -> bytes:
    prefix, shape = route
    family = AF_INET if shape.version == 4 else AF_INET6
    head = _MESSAGE.pack(
        family,
        prefix[-1],
        0,
        0,
        shape.table if shape.table < 256 else 0,
        shape.protocol,
        shape.scope or 0,
        _TYPES[shape.type],
        _ONLINK if len(shape.next_hops) == 1 and shape.next_hops[0].onlink else 0,
    )
    return head + (_DST_4 if family == AF_INET else _DST_6) + prefix[:-1] + _tail(shape, family)


def _tail(shape: Shape, family: int) -> bytes:
    if shape.tail is not None:
        return shape.tail
    parts = [m.u32(_TABLE, shape.table)]
    if shape.metric:
        parts.append(m.u32(_PRIORITY, shape.metric))
    if shape.prefsrc is not None:
        parts.append(m.attribute(_PREFSRC, shape.prefsrc.packed))
    if shape.mtu:
        parts.append(m.nest(_METRICS, m.u32(_METRIC_MTU, shape.mtu)))
    if len(shape.next_hops) == 1:
        hop = shape.next_hops[0]
        if hop.oif:
            parts.append(m.u32(_OIF, hop.oif))
        parts.append(_hop_attributes(hop, family))
    elif shape.next_hops:
        parts.append(m.attribute(_MULTIPATH, b"".join(_hops(shape, family))))
    shape.tail = b"".join(parts)
    return shape.tail


def _hops(shape: Shape, family: int) -> Iterator[bytes]:
    for hop in shape.next_hops:
        if not 1 <= hop.weight <= 256:
            raise ValueError(f"next hop {hop}: weight {hop.weight} is not within 1 to 256")
        inner = _hop_attributes(hop, family)
        flags = _ONLINK if hop.onlink else 0
        yield _HOP.pack(_HOP.size + len(inner), flags, hop.weight - 1, hop.oif) + inner


def replace(route: Route, *, advmss: int = 0) -> bytes:
    """Writes a route whether or not its key exists, hitless (ROUTE-2).

    `advmss`: the TCP segment size to announce, in bytes; 0 leaves it to the kernel.
    """
    body = _body(route)
    if advmss:
        # Of two nests of metrics the kernel takes the later one.
        mtu = m.u32(_METRIC_MTU, route[1].mtu) if route[1].mtu else b""
        body += m.nest(_METRICS, mtu + m.u32(_METRIC_ADVMSS, advmss))
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_REPLACE, body)


def add(route: Route) -> bytes:
    """Writes a route. EEXIST if its key exists."""
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_EXCL, _body(route))


def delete(route: Route) -> bytes:
    """Removes the route of this key and protocol, with all its next hops. ESRCH if gone.

    A route by one next hop goes only if it still leads to that link: another one, which took its
    place since it was read, stays.
    """
    prefix, shape = route
    family = AF_INET if shape.version == 4 else AF_INET6
    tail = m.u32(_TABLE, shape.table)
    if shape.metric:
        tail += m.u32(_PRIORITY, shape.metric)
    if len(shape.next_hops) == 1 and shape.oif:
        tail += m.u32(_OIF, shape.oif)
    table = shape.table if shape.table < 256 else 0
    # Scope "nowhere" matches any: the key is enough, and the scope may have drifted.
    head = _MESSAGE.pack(family, prefix[-1], 0, 0, table, shape.protocol, SCOPE_NOWHERE, 0, 0)
    head += (_DST_4 if family == AF_INET else _DST_6) + prefix[:-1]
    return m.message(RTM_DELROUTE, 0, head + tail)


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
    return None if route is None or route.type in HOPLESS else route
