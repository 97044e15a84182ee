"""Kernel notifications: links, routes, addresses, neighbours, settings.

Problem: drift must be repaired within a second without polling. The monitor reads the multicast
groups inside the event loop and hands over batches, coalesced by object: of an object that
changed five times the consumer sees the last state once. If messages were lost (ENOBUFS) the
batch holds `Overrun`, and the consumer dumps again.

MON-1: after the last change of an object, a batch with that state or an `Overrun` follows.
       What cannot be read counts as lost.
MON-2: pending changes are bounded: beyond `limit` objects the batch is an `Overrun` instead.
MON-3: what the kernel sent before `catch_up` was called is in an earlier batch, or in
       `pop_pending`. The kernel reports a change before it answers the request for the change or
       for a dump.
Tested in tests/linux/test_monitor.py.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from socket import AF_UNSPEC

from linux import link_values, routes, rtnl
from linux.closing import Closing
from linux.monitor.events import UNREADABLE, AddressChanged, Event, LinkChanged, Overrun, decode
from linux.netlink.answers import split
from linux.netlink.filters import Program, without_routes_of
from linux.netlink.socket import Socket

LINKS = (rtnl.GROUP_LINK,)
ADDRESSES = (rtnl.GROUP_IPV4_ADDRESS, rtnl.GROUP_IPV6_ADDRESS)
ROUTES = (rtnl.GROUP_IPV4_ROUTE, rtnl.GROUP_IPV6_ROUTE)
NEIGHBOURS = (rtnl.GROUP_NEIGH,)
SETTINGS = (rtnl.GROUP_IPV4_NETCONF, rtnl.GROUP_IPV6_NETCONF)
_DATAGRAMS_PER_TURN = 64
_SHAPES_KEPT = 1024

EVERYTHING = LINKS + ADDRESSES + ROUTES + NEIGHBOURS + SETTINGS


class Monitor(Closing):
    """Subscribes at once (dump after making it, and nothing is missed in between).

    The monitor leaves out routes that the socket of port `own` writes: their writer knows them.
    `only`: a filter program in its place; the kernel drops what it refuses, and the loop sleeps.
    `linger`: when a message arrives at an empty queue, the monitor waits so many seconds before it
    reads, so that changes that belong together come in one batch. It reads a storm without a wait.
    `emptied` counts how often the queue was read to its end.

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
        only: Program = (),
        linger: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._limit, self._linger = limit, linger
        self._waiting: asyncio.TimerHandle | None = None
        self._pending: dict[Hashable, Event | _LinkMessage] = {}
        self._wake = asyncio.Event()
        self._closed = False
        self._failure: OSError | None = None
        self._emptied = True
        self.emptied = 0
        self._loop = asyncio.get_running_loop()
        self._socket = Socket(groups=tuple(groups))
        if program := without_routes_of(own) if own else only:
            self._socket.attach_filter(program)
        self._socket.setblocking(False)
        self._shapes: routes.Shapes = {}
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        # What was left in the socket has waited already.
        seconds = self._linger() if self._emptied else 0.0
        if seconds <= 0:
            self._read_datagrams()
            return
        self._loop.remove_reader(self._socket.fileno())
        self._waiting = self._loop.call_later(seconds, self.listen_now)

    def listen_now(self) -> None:
        """Read at once, if the monitor lingers."""
        if self._waiting is None:
            return
        self._waiting.cancel()
        self._waiting = None
        self._loop.add_reader(self._socket.fileno(), self._on_readable)
        self._read_datagrams()

    def read_now(self) -> bool:
        """Read what waits, up to a limit, without lingering; whether that was all."""
        if self._closed:
            return True
        if self._waiting is not None:
            self.listen_now()
        else:
            self._read_datagrams()
        return self._emptied

    async def catch_up(self) -> None:
        """Read all that the kernel has sent so far (MON-3). Raises OSError."""
        while True:
            if self.read_now():
                return
            await asyncio.sleep(0)

    def pop_pending(self) -> list[Event]:
        """The events that were read and are in no batch yet."""
        pending, self._pending = self._pending.values(), {}
        return _read(pending)

    def _read_datagrams(self) -> None:
        # A few datagrams at a time: a storm of changes must not starve the rest of the loop.
        self._emptied = False
        for _ in range(_DATAGRAMS_PER_TURN):
            data = self._receive()
            if data is None:
                self._emptied = True
                self.emptied += 1
                break
            try:
                for kind, _, _, body in split(data):
                    self._add_message(kind, body)
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
                    self._failure = error
                    self.close()
                    return None
                lost = True
                continue
            # After a loss the kernel drops in silence until the queue was empty once. So it is
            # emptied before the loss is reported, and a dump after that misses nothing.
            if not lost:
                return data

    def _overrun(self) -> None:
        self._pending = {Overrun: Overrun()}

    def _add_message(self, kind: int, body: bytes) -> None:
        if Overrun in self._pending:
            return
        key: Hashable
        event: Event | _LinkMessage
        if kind in (rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK):
            # Bridges and IPv6 send partial messages of the same link, in their own families.
            if body[0] != AF_UNSPEC:
                return
            # The kernel sends four messages of a new link: only the last one is decoded.
            index, up = link_values.index_and_state(body)
            key, event = ("link", index), _LinkMessage(kind, body, up)
        else:
            keyed = decode(kind, body, self._shapes)
            if keyed is None:
                return
            if len(self._shapes) > _SHAPES_KEPT:
                self._shapes.clear()
            key, event = keyed
        # An object that changes again moves to the end: batches keep the order of last changes.
        earlier = self._pending.pop(key, None)
        self._pending[key] = event if earlier is None else _after(earlier, event)
        if len(self._pending) > self._limit:
            self._overrun()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """What happened since the last batch, never empty; ends when the monitor is closed.

        Raises `OSError` when the socket fails.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._pending:
                yield self.pop_pending()
            if self._failure is not None:
                raise self._failure
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


@dataclass(frozen=True, slots=True)
class _LinkMessage:
    """A message of a link that is not decoded yet."""

    kind: int
    body: bytes
    up: bool
    fell: bool = False

    def read(self) -> Event:
        removed = self.kind == rtnl.RTM_DELLINK
        return LinkChanged(link_values.decode(self.body), removed, self.fell)


def _after(earlier: Event | _LinkMessage, event: Event | _LinkMessage) -> Event | _LinkMessage:
    """The later of two events of one object, with what only the earlier one says."""
    if isinstance(event, _LinkMessage) and isinstance(earlier, _LinkMessage):
        # Down is what a link is at first, too: then nothing fell.
        fell = earlier.fell or (earlier.up and not event.up)
        return replace(event, fell=True) if fell else event
    if isinstance(event, AddressChanged) and isinstance(earlier, AddressChanged):
        fell = earlier.fell or earlier.removed
        return replace(event, fell=True) if fell else event
    return event


def _read(pending: Iterable[Event | _LinkMessage]) -> list[Event]:
    """A batch with its links decoded; `Overrun` alone where a message cannot be decoded."""
    try:
        return [each.read() if isinstance(each, _LinkMessage) else each for each in pending]
    except UNREADABLE:
        return [Overrun()]
