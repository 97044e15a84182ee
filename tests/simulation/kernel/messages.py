"""Rows of the simulated kernel as the bodies of rtnetlink messages, and requests as rows."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import TYPE_CHECKING

from linux.link_values import INET_CONF
from linux.netlink import wire as m

if TYPE_CHECKING:
    from tests.simulation.kernel.rows import Addr, Link, Neigh, Route

AF_INET = 2
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_UP, _LOOP, _RUNNING, _LOWER_UP = 0x1, 0x8, 0x40, 0x10000
_CONF_PLACES = 33


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def link(one: Link, removed: bool = False) -> bytes:
    """A link, with its settings while it has any."""
    flags = (_UP if one.up else 0) | (_LOOP if one.loopback else 0)
    flags |= (_RUNNING if one.running else 0) | (_LOWER_UP if one.carrier else 0)
    body = _IFINFO.pack(0, 772 if one.loopback else 1, one.index, flags, 0)
    body += m.text(3, one.name) + m.u32(4, one.mtu) + m.u8(16, one.operstate)
    body += m.attribute(1, _mac(one.mac))
    if one.peer_index:
        body += m.u32(5, one.peer_index) + m.u32(37, 0)
    if one.alias:
        body += m.text(20, one.alias)
    if one.kind:
        body += m.nest(18, m.text(1, one.kind))
    if not removed:
        table = [0] * _CONF_PLACES
        for name, value in one.conf.items():
            table[INET_CONF[name] - 1] = value
        body += m.nest(26, m.nest(AF_INET, m.attribute(1, struct.pack(f"={len(table)}i", *table))))
    return body


def address(one: Addr) -> bytes:
    """An address."""
    ip, network = one.interface.ip, one.interface.network
    body = _IFADDR.pack(AF_INET, network.prefixlen, 0x80, 0, one.index)
    body += m.attribute(1, ip.packed) + m.attribute(2, ip.packed)
    return body + m.text(3, one.label) + m.u32(8, 0x80)


def route(one: Route) -> bytes:
    """A route."""
    body = _RTMSG.pack(
        AF_INET, one.dst.prefixlen, 0, 0, one.table, one.protocol, one.scope, one.type, 0
    )
    body += m.u32(15, one.table)
    if one.dst.prefixlen:
        body += m.attribute(1, one.dst.network_address.packed)
    if one.metric:
        body += m.u32(6, one.metric)
    if one.prefsrc is not None:
        body += m.attribute(7, one.prefsrc.packed)
    if one.gateway is not None:
        body += m.attribute(5, one.gateway.packed)
    if one.oif:
        body += m.u32(4, one.oif)
    return body


def neighbour(one: Neigh) -> bytes:
    """A neighbour entry."""
    body = _NDMSG.pack(AF_INET, one.index, one.state, 0, 1)
    body += m.attribute(1, one.address.packed)
    return body + (m.attribute(2, _mac(one.mac)) if one.mac else b"")


def read_route(body: bytes) -> Route:
    """The route of a request."""
    from tests.simulation.kernel.rows import Route

    _, length, _, _, table, protocol, scope, kind, _ = _RTMSG.unpack_from(body)
    found = m.parse_attributes(body, _RTMSG.size)
    packed = found.get(1, bytes(4))
    return Route(
        IPv4Network((packed, length)),
        m.as_uint(found.get(4, b"")),
        IPv4Address(found[5]) if 5 in found else None,
        kind,
        m.as_uint(found[15]) if 15 in found else table,
        protocol,
        scope,
        m.as_uint(found.get(6, b"")),
        IPv4Address(found[7]) if 7 in found else None,
    )


def read_address(body: bytes) -> tuple[int, IPv4Interface]:
    """The link and the address of a request."""
    _, prefix, _, _, index = _IFADDR.unpack_from(body)
    return index, IPv4Interface((m.parse_attributes(body, _IFADDR.size)[2], prefix))


def read_neighbour(body: bytes) -> tuple[int, IPv4Address, str, int]:
    """Link, address, hardware address and state of a request."""
    _, index, state, _, _ = _NDMSG.unpack_from(body)
    found = m.parse_attributes(body, _NDMSG.size)
    return index, IPv4Address(found[1]), found.get(2, b"").hex(":"), state


def read_link(body: bytes) -> tuple[int, int, int, m.Attributes]:
    """Index, flags, change mask and attributes of a request."""
    _, _, index, flags, mask = _IFINFO.unpack_from(body)
    return index, flags, mask, m.parse_attributes(body, _IFINFO.size)
