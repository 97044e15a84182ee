"""What the kernel tells by itself: links, routes, addresses, neighbours, settings.

Problem: drift must be repaired within a second without polling. The monitor reads the multicast
groups inside the event loop and hands over batches, coalesced by object: of an object that
changed five times the consumer sees the last state once. If messages were lost (ENOBUFS) the
batch holds `Overrun`, and the consumer dumps again.

MON-1: after the last change of an object, a batch with that state or an `Overrun` follows.
MON-2: what waits is bounded: beyond `limit` objects the monitor says `Overrun` instead.
Tested in tests/linux/test_monitor.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from dataclasses import dataclass
from types import TracebackType

from linux import addresses, links, neighbours, routes, rtnl
from linux.netlink.socket import Socket


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link appeared, changed or went (`removed`)."""

    link: links.Link
    removed: bool


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """A route appeared, changed or went."""

    route: routes.Route
    removed: bool


@dataclass(frozen=True, slots=True)
class AddressChanged:
    """An address appeared, changed or went."""

    address: addresses.Address
    removed: bool


@dataclass(frozen=True, slots=True)
class NeighbourChanged:
    """A neighbour entry appeared, changed or went."""

    neighbour: neighbours.Neighbour
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
    LinkChanged | RouteChanged | AddressChanged | NeighbourChanged | SettingChanged | Overrun
)

LINKS = (rtnl.GROUP_LINK,)
ADDRESSES = (rtnl.GROUP_IPV4_ADDRESS, rtnl.GROUP_IPV6_ADDRESS)
ROUTES = (rtnl.GROUP_IPV4_ROUTE, rtnl.GROUP_IPV6_ROUTE)
NEIGHBOURS = (rtnl.GROUP_NEIGH,)
SETTINGS = (rtnl.GROUP_IPV4_NETCONF, rtnl.GROUP_IPV6_NETCONF)
EVERYTHING = LINKS + ADDRESSES + ROUTES + NEIGHBOURS + SETTINGS


class Monitor:
    """Subscribes at once (dump after making it, and nothing is missed in between).

    Use inside a running event loop:
        with Monitor() as monitor:
            async for batch in monitor.batches(): ...
    """

    def __init__(self, groups: Iterable[int] = EVERYTHING, *, limit: int = 65536) -> None:
        raise NotImplementedError

    async def batches(self) -> AsyncIterator[list[Event]]:
        """What happened since the last batch, never empty; ends when the monitor is closed."""
        raise NotImplementedError
        yield []

    def close(self) -> None:
        """Leaves the groups; `batches` ends."""

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
