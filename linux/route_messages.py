"""Route messages: from the kernel's bytes to a `Route` and back.

Source: linux/rtnetlink.h. Tested in tests/linux/test_routes.py and test_route_values.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from socket import AF_INET, AF_INET6

from linux.netlink import wire as m
from linux.prefixes import Prefix
from linux.route_values import NextHop, Route, RouteType, Shape
from linux.rtnl import IPAddress, address_from, family_of

MESSAGE = struct.Struct("=BBBBBBBBI")
"""struct rtmsg: family, dst, src, tos, table, protocol, scope, type, flags."""
RTA_DST, RTA_OIF, _RTA_GATEWAY, RTA_PRIORITY, _RTA_PREFSRC = 1, 4, 5, 6, 7
RTA_METRICS, _RTA_MULTIPATH, RTA_TABLE, RTA_MARK, _RTA_VIA = 8, 9, 15, 16, 18
RTAX_MTU, RTAX_ADVMSS = 2, 8
_HOP = struct.Struct("=HBBi")  # length, flags, weight-1, index
_DST_4, _DST_6 = struct.pack("=HH", 8, RTA_DST), struct.pack("=HH", 20, RTA_DST)
"""How the destination's attribute begins."""
_ONLINK, _CLONED = 0x4, 0x200
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
    family, prefix, _, _, table, protocol, scope, kind, flags = MESSAGE.unpack_from(body)
    if family not in (AF_INET, AF_INET6) or flags & _CLONED:
        return None
    attributes = m.parse_attributes(body, MESSAGE.size)
    packed = attributes.get(RTA_DST) or bytes(4 if family == AF_INET else 16)
    if _RTA_MULTIPATH in attributes:
        hops = tuple(_decode_hops(attributes[_RTA_MULTIPATH]))
    elif RTA_OIF in attributes or _RTA_GATEWAY in attributes or _RTA_VIA in attributes:
        hops = (
            NextHop(
                _gateway(attributes), m.as_uint(attributes.get(RTA_OIF, b"")), bool(flags & _ONLINK)
            ),
        )
    else:
        hops = ()
    prefsrc = attributes.get(_RTA_PREFSRC)
    metrics = m.parse_attributes(attributes[RTA_METRICS]) if RTA_METRICS in attributes else {}
    shape = Shape.of(
        4 if family == AF_INET else 6,
        hops,
        _TYPE_NAMES.get(kind, "other"),
        m.as_uint(attributes[RTA_TABLE]) if RTA_TABLE in attributes else table,
        protocol,
        scope,
        m.as_uint(attributes[RTA_PRIORITY]) if RTA_PRIORITY in attributes else 0,
        address_from(prefsrc) if prefsrc else None,
        m.as_uint(metrics.get(RTAX_MTU, b"")),
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
    if _RTA_GATEWAY in attributes:
        return address_from(attributes[_RTA_GATEWAY])
    if _RTA_VIA in attributes:
        return address_from(attributes[_RTA_VIA][2:])
    return None


def _hop_attributes(hop: NextHop, family: int) -> bytes:
    if hop.gateway is None:
        return b""
    if family_of(hop.gateway) != family:
        return m.attribute(_RTA_VIA, struct.pack("=H", family_of(hop.gateway)) + hop.gateway.packed)
    return m.attribute(_RTA_GATEWAY, hop.gateway.packed)


def head(route: Route, scope: int, kind: int = 0, flags: int = 0) -> bytes:
    """The header of a message about a route, and the route's destination."""
    prefix, shape = route
    family, mark = (AF_INET, _DST_4) if shape.version == 4 else (AF_INET6, _DST_6)
    table = shape.table if shape.table < 256 else 0
    body = MESSAGE.pack(family, prefix[-1], 0, 0, table, shape.protocol, scope, kind, flags)
    return body + mark + prefix[:-1]


def encode(route: Route) -> bytes:
    """The body of a message that writes a route."""
    shape = route[1]
    flags = _ONLINK if len(shape.next_hops) == 1 and shape.next_hops[0].onlink else 0
    tail = _tail(shape) if shape.tail is None else shape.tail
    return head(route, shape.scope or 0, _TYPES[shape.type], flags) + tail


def _tail(shape: Shape) -> bytes:
    family = AF_INET if shape.version == 4 else AF_INET6
    parts = [m.u32(RTA_TABLE, shape.table)]
    if shape.metric:
        parts.append(m.u32(RTA_PRIORITY, shape.metric))
    if shape.prefsrc is not None:
        parts.append(m.attribute(_RTA_PREFSRC, shape.prefsrc.packed))
    if shape.mtu:
        parts.append(m.nest(RTA_METRICS, m.u32(RTAX_MTU, shape.mtu)))
    if len(shape.next_hops) == 1:
        hop = shape.next_hops[0]
        if hop.oif:
            parts.append(m.u32(RTA_OIF, hop.oif))
        parts.append(_hop_attributes(hop, family))
    elif shape.next_hops:
        parts.append(m.attribute(_RTA_MULTIPATH, b"".join(_hops(shape, family))))
    shape.tail = b"".join(parts)
    return shape.tail


def _hops(shape: Shape, family: int) -> Iterator[bytes]:
    for hop in shape.next_hops:
        if not 1 <= hop.weight <= 256:
            raise ValueError(f"next hop {hop}: weight {hop.weight} is not within 1 to 256")
        inner = _hop_attributes(hop, family)
        flags = _ONLINK if hop.onlink else 0
        yield _HOP.pack(_HOP.size + len(inner), flags, hop.weight - 1, hop.oif) + inner
