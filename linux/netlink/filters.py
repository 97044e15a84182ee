"""Filters for multicast messages: BPF programs by which the kernel drops what is of no interest.

A program is for `Socket.attach_filter`. It reads numbers in network order, and the kernel wrote the
message in its own: hence `_swapped`. Source: rtnetlink(7), linux/filter.h.
Tested in tests/linux/test_monitor.py, test_link_removals.py and test_nftables_watch.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from socket import AF_INET6

from linux import rtnl

Program = Sequence[tuple[int, int, int, int]]
"""Instructions of a filter: (code, jump if true, jump if false, number)."""

_LOAD, _LOAD_HALF, _LOAD_BYTE = 0x20, 0x28, 0x30  # at an offset in the message
_EQUAL, _BITS = 0x15, 0x45  # jumps: equal, or some of the bits set
_RETURN = 0x06
_ACCEPT, _DROP = (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)
# Offsets in struct nlmsghdr, and in the bodies behind it.
_TYPE, _SENDER = 4, 12
_ADDRESS_FAMILY, _ADDRESS_SCOPE, _ROUTE_TABLE, _NEIGHBOUR_STATE = 16, 19, 20, 24
_SCOPE_LINK, _TABLE_LOCAL, _PERMANENT = 253, 255, 0x80


def _swapped(form: str, number: int) -> int:
    return int.from_bytes(struct.pack(form, number), "big")


WITHOUT_LINK_LOCAL: Program = [
    (_LOAD_BYTE, 0, 0, _ADDRESS_FAMILY),
    (_EQUAL, 0, 2, AF_INET6),
    (_LOAD_BYTE, 0, 0, _ADDRESS_SCOPE),  # which the kernel works out from an IPv6 address
    (_EQUAL, 1, 0, _SCOPE_LINK),
    _ACCEPT,
    _DROP,
]
"""For addresses (struct ifaddrmsg): all but those of fe80::/10, of which every link of a pod has
one."""

PERMANENT_ONLY: Program = [
    (_LOAD_HALF, 0, 0, _NEIGHBOUR_STATE),
    (_BITS, 0, 1, _swapped("=H", _PERMANENT)),
    _ACCEPT,
    _DROP,
]
"""For neighbours (struct ndmsg): the permanent ones. ARP and neighbour discovery change others many
times a second on a large node; the loop sleeps then."""


def only_type(kind: int) -> Program:
    """Messages of one type. Pure."""
    return [(_LOAD_HALF, 0, 0, _TYPE), (_EQUAL, 0, 1, _swapped("=H", kind)), _ACCEPT, _DROP]


def not_caused_by(ports: Sequence[int]) -> Program:
    """All but what the sockets of these ports caused. Pure."""
    tests = [
        (_EQUAL, len(ports) - place, 0, _swapped("=I", port)) for place, port in enumerate(ports)
    ]
    return [(_LOAD, 0, 0, _SENDER), *tests, _ACCEPT, _DROP]


def without_routes_of(port: int) -> Program:
    """All but route messages of one sender, and those of the kernel's own table (`local`,
    ip-route(8)), which it keeps by itself. Pure."""
    return [
        (_LOAD_HALF, 0, 0, _TYPE),
        (_EQUAL, 1, 0, _swapped("=H", rtnl.RTM_NEWROUTE)),
        (_EQUAL, 0, 4, _swapped("=H", rtnl.RTM_DELROUTE)),
        (_LOAD, 0, 0, _SENDER),
        (_EQUAL, 3, 0, _swapped("=I", port)),
        (_LOAD_BYTE, 0, 0, _ROUTE_TABLE),
        (_EQUAL, 1, 0, _TABLE_LOCAL),
        _ACCEPT,
        _DROP,
    ]
