"""Routes, IPv4 and IPv6 in one code path, with several next hops everywhere.

Problem: a route that is removed and added again loses packets in between, and a route read back
never looks quite like the one that was written. So writing is `replace` (one message, hitless),
and a `Route` brings itself into the form in which the kernel reads it back.
What a route is: linux/route_values.py; its bytes: linux/route_messages.py.

ROUTE-1: `dump` of what `replace(route)` wrote contains a value equal to `route`.
ROUTE-2: replacing a route loses no packet.
Tested in tests/linux/test_routes.py.
"""

from __future__ import annotations

from errno import EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, ENOENT
from socket import AF_INET, AF_INET6, AF_UNSPEC

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.route_messages import (
    MESSAGE,
    RTA_DST,
    RTA_MARK,
    RTA_METRICS,
    RTA_OIF,
    RTA_PRIORITY,
    RTA_TABLE,
    RTAX_ADVMSS,
    RTAX_MTU,
    Shapes,
    decode,
    encode,
    head,
)
from linux.route_values import HOPLESS, SCOPE_NOWHERE, TABLE_MAIN, NextHop, Route, RouteKey, Shape
from linux.rtnl import RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE, IPAddress, family_of

# From linux.route_values and linux.route_messages, for callers of this.
__all__ = ["TABLE_MAIN", "NextHop", "Route", "RouteKey", "Shape", "Shapes", "decode"]

_LOOKUP_TABLE, _FIB_MATCH = 0x1000, 0x2000


def dump(
    sock: Socket, family: int = AF_UNSPEC, *, table: int = 0, protocol: int = 0
) -> list[Route]:
    """All routes of a family (0: both), of one table and protocol if given (the kernel filters).

    Raises `KernelError`.
    """
    routes: list[Route] = []
    shapes: Shapes = {}
    for each in (AF_INET, AF_INET6) if family == AF_UNSPEC else (family,):
        body = MESSAGE.pack(each, 0, 0, 0, 0, protocol, 0, 0, 0)
        if table:
            body += m.u32(RTA_TABLE, table)
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


def replace(route: Route, *, advmss: int = 0) -> bytes:
    """Writes a route whether or not its key exists, hitless (ROUTE-2).

    `advmss`: the TCP segment size to announce, in bytes; 0 leaves it to the kernel.
    """
    body = encode(route)
    if advmss:
        # Of two nests of metrics the kernel takes the later one.
        mtu = m.u32(RTAX_MTU, route[1].mtu) if route[1].mtu else b""
        body += m.nest(RTA_METRICS, mtu + m.u32(RTAX_ADVMSS, advmss))
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_REPLACE, body)


def add(route: Route) -> bytes:
    """Writes a route. EEXIST if its key exists."""
    return m.message(RTM_NEWROUTE, m.NLM_F_CREATE | m.NLM_F_EXCL, encode(route))


def delete(route: Route) -> bytes:
    """Removes the route of this key and protocol, with all its next hops. ESRCH if gone.

    A route by one next hop goes only if it still leads to that link: another one, which took its
    place since it was read, stays.
    """
    shape = route[1]
    tail = m.u32(RTA_TABLE, shape.table)
    if shape.metric:
        tail += m.u32(RTA_PRIORITY, shape.metric)
    if len(shape.next_hops) == 1 and shape.oif:
        tail += m.u32(RTA_OIF, shape.oif)
    # Scope "nowhere" matches any: the key is enough, and the scope may have drifted.
    return m.message(RTM_DELROUTE, 0, head(route, SCOPE_NOWHERE) + tail)


def lookup(sock: Socket, address: IPAddress, *, oif: int = 0, mark: int = 0) -> Route | None:
    """The route by which the host would reach an address, None if there is none.

    The route's own prefix and all its next hops are given, of the table that matched. A
    blackhole counts as no route. Raises `KernelError`.
    """
    family = family_of(address)
    # IPv6 always sends the table, and refuses the flag that asks IPv4 for it.
    flags = _FIB_MATCH | (_LOOKUP_TABLE if family == AF_INET else 0)
    body = MESSAGE.pack(family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, flags)
    body += m.attribute(RTA_DST, address.packed)
    if oif:
        body += m.u32(RTA_OIF, oif)
    if mark:
        body += m.u32(RTA_MARK, mark)
    result = sock.transact([m.message(RTM_GETROUTE, 0, body)])[0]
    if result.errno in (ENETUNREACH, EHOSTUNREACH, EACCES):
        return None
    if result.errno == EINVAL and not result.detail:  # how the kernel answers for a blackhole
        return None
    result.check(f"look up the route to {address}")
    route = decode(result.answers[0][1])
    return None if route is None or route.type in HOPLESS else route
