"""Routing rules: which table the route of a packet is looked for in, by its source.

Needed where a namespace has several ways out and each address must leave by its own. Written only;
a rule goes with its namespace. Source: linux/fib_rules.h. Tested in tests/linux/test_rules.py.
"""

from __future__ import annotations

import struct

from linux.netlink import wire as m
from linux.rtnl import IPAddress, family_of

RTM_NEWRULE = 32
_MESSAGE = struct.Struct("=BBBBBBBBI")  # family, dst, src, tos, table, -, -, action, flags
_SOURCE, _PRIORITY, _TABLE = 2, 6, 15
_TO_TABLE = 1


def from_source(address: IPAddress, table: int, priority: int) -> bytes:
    """Packets from this address are routed by `table`, if it has a route. EEXIST: there already."""
    size = address.max_prefixlen
    body = _MESSAGE.pack(family_of(address), 0, size, 0, 0, 0, 0, _TO_TABLE, 0)
    body += m.attribute(_SOURCE, address.packed)
    body += m.u32(_TABLE, table) + m.u32(_PRIORITY, priority)
    return m.message(RTM_NEWRULE, m.NLM_F_CREATE | m.NLM_F_EXCL, body)
