"""Events: what one multicast message of the kernel says of a link, route, address or neighbour.

Tested in tests/linux/test_monitor.py.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from socket import AF_UNSPEC

from linux import addresses, link_values, neighbours, routes, rtnl, vxlan
from linux.netlink import wire as m

_NETCONF_INDEX = 1
UNREADABLE = (struct.error, LookupError, ValueError)
"""What decoding a message that is cut short, or holds what it should not, may raise."""


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link appeared, changed or went (`removed`).

    `fell`: it was up, down and up again since the last batch. The kernel dropped its IPv4 routes
    then, without a message.
    """

    link: link_values.Link
    removed: bool
    fell: bool = False


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """A route appeared, changed or went."""

    route: routes.Route
    removed: bool


@dataclass(frozen=True, slots=True)
class AddressChanged:
    """An address appeared, changed or went.

    `fell`: it was gone in between, since the last batch; the IPv4 routes that needed it went too.
    """

    address: addresses.Address
    removed: bool
    fell: bool = False


@dataclass(frozen=True, slots=True)
class NeighbourChanged:
    """A neighbour entry appeared, changed or went."""

    neighbour: neighbours.Neighbour
    removed: bool


@dataclass(frozen=True, slots=True)
class ForwardChanged:
    """An FDB entry of a VXLAN device appeared, changed or went."""

    forward: vxlan.Forward
    removed: bool


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """A per-link setting changed (forwarding, rp_filter, proxy_arp/ndp ...): dump the link.

    `index` -1 is "all", -2 is "default". route_localnet changes silently in the kernel.
    """

    index: int
    family: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """Messages were lost: nothing is known any more, dump everything."""


Event = (
    LinkChanged
    | RouteChanged
    | AddressChanged
    | NeighbourChanged
    | ForwardChanged
    | SettingChanged
    | Overrun
)


def decode(
    kind: int, body: bytes, shapes: routes.Shapes | None = None
) -> tuple[Hashable, Event] | None:
    """A multicast message as (key of the object, event); None if it is of no interest.

    `shapes`: see `routes.decode`.
    """
    if kind in (rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK):
        # Bridges and IPv6 send partial messages of the same link, in their own families.
        if body[0] != AF_UNSPEC:
            return None
        link = link_values.decode(body)
        return ("link", link.index), LinkChanged(link, kind == rtnl.RTM_DELLINK)
    if kind in (rtnl.RTM_NEWROUTE, rtnl.RTM_DELROUTE):
        route = routes.decode(body, shapes)
        if route is None:
            return None
        return ("route", route.key), RouteChanged(route, kind == rtnl.RTM_DELROUTE)
    if kind in (rtnl.RTM_NEWADDR, rtnl.RTM_DELADDR):
        address = addresses.decode(body)
        return (
            ("address", address.index, address.interface),
            AddressChanged(address, kind == rtnl.RTM_DELADDR),
        )
    if kind in (rtnl.RTM_NEWNEIGH, rtnl.RTM_DELNEIGH):
        entry = neighbours.decode(body)
        if entry is None:
            return _forward(kind, body)
        return (
            ("neighbour", entry.index, entry.address, entry.proxy),
            NeighbourChanged(entry, kind == rtnl.RTM_DELNEIGH),
        )
    if kind in (rtnl.RTM_NEWNETCONF, rtnl.RTM_DELNETCONF):
        index = m.parse_attributes(body, 4).get(_NETCONF_INDEX)
        if index is None:
            return None
        number = int.from_bytes(index, sys.byteorder, signed=True)
        return ("setting", number, body[0]), SettingChanged(number, body[0])
    return None


def _forward(kind: int, body: bytes) -> tuple[Hashable, Event] | None:
    forward = vxlan.decode_forward(body)
    if forward is None:
        return None
    key = ("forward", forward.index, forward.mac, forward.dst)
    return key, ForwardChanged(forward, kind == rtnl.RTM_DELNEIGH)
