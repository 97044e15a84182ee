"""What the kernel tells by itself: links, routes, addresses, neighbours, settings.

Problem: drift must be repaired within a second without polling. The monitor reads the multicast
groups inside the event loop and hands over batches, coalesced by object: of an object that
changed five times the consumer sees the last state once. If messages were lost (ENOBUFS) the
batch holds `Overrun`, and the consumer dumps again.

MON-1: after the last change of an object, a batch with that state or an `Overrun` follows.
       What cannot be read counts as lost.
MON-2: what waits is bounded: beyond `limit` objects the monitor says `Overrun` instead.
Tested in tests/linux/test_monitor.py.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import sys
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from socket import AF_INET6, AF_UNSPEC

from linux import addresses, links, neighbours, routes, rtnl, vxlan
from linux.closing import Closing
from linux.netlink import wire as m
from linux.netlink.socket import Socket, split


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

LINKS = (rtnl.GROUP_LINK,)
ADDRESSES = (rtnl.GROUP_IPV4_ADDRESS, rtnl.GROUP_IPV6_ADDRESS)
ROUTES = (rtnl.GROUP_IPV4_ROUTE, rtnl.GROUP_IPV6_ROUTE)
NEIGHBOURS = (rtnl.GROUP_NEIGH,)
SETTINGS = (rtnl.GROUP_IPV4_NETCONF, rtnl.GROUP_IPV6_NETCONF)
_NETCONF_INDEX = 1
_DATAGRAMS_PER_TURN = 64
_LOCAL = 255
_SCOPE_LINK = 253
_SHAPES_KEPT = 1024
UNREADABLE = (struct.error, LookupError, ValueError)
"""What reading a message that is cut short, or holds what it should not, may raise."""

EVERYTHING = LINKS + ADDRESSES + ROUTES + NEIGHBOURS + SETTINGS


class Monitor(Closing):
    """Subscribes at once (dump after making it, and nothing is missed in between).

    Routes that the socket of port `own` writes are not told: who wrote a hundred thousand knows.
    `only`: a filter program in its place; what it leaves out wakes nobody.
    `linger` is asked when something is told after all was read: for so many seconds nothing is
    read, so that what belongs together comes in one batch. A storm is read without it.

    Use inside a running event loop:
        with Monitor() as monitor:
            async for batch in monitor.batches(): ...
    """

    def __init__(
        self,
        groups: Iterable[int] = EVERYTHING,
        *,
        limit: int = 65536,
        own: int = 0,
        only: Sequence[tuple[int, int, int, int]] = (),
        linger: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._limit, self._linger = limit, linger
        self._waiting: asyncio.TimerHandle | None = None
        self._pending: dict[Hashable, Event | _LinkTold] = {}
        self._wake = asyncio.Event()
        self._closed = False
        self._emptied = True
        self._loop = asyncio.get_running_loop()
        self._socket = Socket(groups=tuple(groups))
        if program := without_routes_of(own) if own else only:
            self._socket.take_only(program)
        self._socket.setblocking(False)
        self._shapes: routes.Shapes = {}
        self._loop.add_reader(self._socket.fileno(), self._told)

    def _told(self) -> None:
        # What was left in the socket has waited already.
        seconds = self._linger() if self._emptied else 0.0
        if seconds <= 0:
            self._readable()
            return
        self._loop.remove_reader(self._socket.fileno())
        self._waiting = self._loop.call_later(seconds, self.listen_now)

    def listen_now(self) -> None:
        """Read what there is, if that waits for more."""
        if self._waiting is None:
            return
        self._waiting.cancel()
        self._waiting = None
        self._loop.add_reader(self._socket.fileno(), self._told)
        self._readable()

    def _readable(self) -> None:
        # A few datagrams at a time: a storm of changes must not starve the rest of the loop.
        self._emptied = False
        for _ in range(_DATAGRAMS_PER_TURN):
            data = self._receive()
            if data is None:
                self._emptied = True
                break
            try:
                for kind, _, _, body in split(data):
                    self._take(kind, body)
            except UNREADABLE:
                self._overrun()
        if self._pending:
            self._wake.set()

    def _receive(self) -> bytes | None:
        lost = False
        while True:
            try:
                data = self._socket.receive()
            except BlockingIOError:
                if lost:
                    self._overrun()
                return None
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    self.close()
                    raise
                lost = True
                continue
            # After a loss the kernel drops in silence until the queue was empty once. So it is
            # emptied before anyone hears of the loss, and a dump after that misses nothing.
            if not lost:
                return data

    def _overrun(self) -> None:
        self._pending = {Overrun: Overrun()}

    def _take(self, kind: int, body: bytes) -> None:
        if Overrun in self._pending:
            return
        key: Hashable
        event: Event | _LinkTold
        if kind in (rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK):
            # Bridges and IPv6 tell of the same link in messages of their own family: not whole.
            if body[0] != AF_UNSPEC:
                return
            # A new link is told of four times: only the last word is read.
            key, event = ("link", links.index_of(body)), _LinkTold(kind, body)
        else:
            found = decode(kind, body, self._shapes)
            if found is None:
                return
            if len(self._shapes) > _SHAPES_KEPT:
                self._shapes.clear()
            key, event = found
        # An object that changes again moves to the end: batches keep the order of last changes.
        self._pending.pop(key, None)
        self._pending[key] = event
        if len(self._pending) > self._limit:
            self._overrun()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """What happened since the last batch, never empty; ends when the monitor is closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._pending:
                told, self._pending = self._pending.values(), {}
                yield _read(told)
            if self._closed:
                return

    def close(self) -> None:
        """Leaves the groups; `batches` ends."""
        if not self._closed:
            self._closed = True
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._wake.set()


WITHOUT_LINK_LOCAL = [
    (0x30, 0, 0, 16),  # the family
    (0x15, 0, 2, AF_INET6),
    (0x30, 0, 0, 19),  # the scope, which the kernel works out from an IPv6 address
    (0x15, 1, 0, _SCOPE_LINK),
    (0x06, 0, 0, 0xFFFFFFFF),
    (0x06, 0, 0, 0),
]
"""A filter program for addresses (rtnetlink(7), struct ifaddrmsg): all but those of fe80::/10, of
which every link of a pod has one."""


def without_routes_of(port: int) -> list[tuple[int, int, int, int]]:
    """A filter program (`Socket.take_only`): all but route messages of one sender, and those of the
    kernel's own table (`local`, ip-route(8)), which it keeps by itself. Pure."""
    # It reads in network order what the kernel wrote in its own.
    new, gone = (_swapped("=H", kind) for kind in (rtnl.RTM_NEWROUTE, rtnl.RTM_DELROUTE))
    return [
        (0x28, 0, 0, 4),  # the type
        (0x15, 1, 0, new),
        (0x15, 0, 4, gone),
        (0x20, 0, 0, 12),  # the sender
        (0x15, 3, 0, _swapped("=I", port)),
        (0x30, 0, 0, 20),  # the table
        (0x15, 1, 0, _LOCAL),
        (0x06, 0, 0, 0xFFFFFFFF),
        (0x06, 0, 0, 0),
    ]


@dataclass(frozen=True, slots=True)
class _LinkTold:
    """A message of a link, not read yet."""

    kind: int
    body: bytes

    def read(self) -> Event:
        return LinkChanged(links.decode(self.body), self.kind == rtnl.RTM_DELLINK)


def _read(told: Iterable[Event | _LinkTold]) -> list[Event]:
    """A batch whole; what cannot be read has to be dumped."""
    try:
        return [each.read() if isinstance(each, _LinkTold) else each for each in told]
    except UNREADABLE:
        return [Overrun()]


def _swapped(form: str, number: int) -> int:
    return int.from_bytes(struct.pack(form, number), "big")


def decode(
    kind: int, body: bytes, shapes: routes.Shapes | None = None
) -> tuple[Hashable, Event] | None:
    """A multicast message as (key of the object, event); None if it is of no interest.

    `shapes`: see `routes.decode`.
    """
    if kind in (rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK):
        # Bridges and IPv6 tell of the same link in messages of their own family: not whole.
        if body[0] != AF_UNSPEC:
            return None
        link = links.decode(body)
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
    found = vxlan.decode_forward(body)
    if found is None:
        return None
    key = ("forward", found.index, found.mac, found.dst)
    return key, ForwardChanged(found, kind == rtnl.RTM_DELNEIGH)
