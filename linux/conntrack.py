"""Deletes the connections of an address that left: all flows from it or to it.

Problem: an address is given to another machine while the kernel still knows the old one's flows,
and those skip policy as "established". For IPv4 the kernel itself selects what to delete (a filter
in the delete request, kernel 5.8 and later); it walks its table twice for each address (about
0.5 ms a walk). A list costs one walk (7 ms with 262,144 buckets) for all of them: so for many
addresses at once, if there are few flows, these are listed, compared here and deleted one by one.
So they are where the filter is unknown, and for IPv6, where it is inverted in the kernels we tried
(6.18: it deletes what does not match).

CT-1: a request that the kernel does not understand deletes nothing: a partial tuple without its
      filter is refused, never taken as "everything".
CT-2: a flow with neither address stays.
CT-3: `Forgetter.forget` returns when a walk that began after the call has ended.
CT-4: a delete that is refused keeps no other from being done.
Tested in tests/linux/test_conntrack.py.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from linux.errors import KernelError
from linux.netlink import Result
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.rtnl import IPAddress, family_of

_GET, _DELETE = (1 << 8) | 1, (1 << 8) | 2
_TUPLE_ORIG, _TUPLE_REPLY, _ID, _ZONE, _FILTER = 1, 2, 12, 18, 25
_TUPLE_IP, _V4_SRC, _V6_SRC = 1, 1, 3
_FILTER_ORIG, _FILTER_REPLY = 1, 2
_BY_SOURCE = 1
_UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ERANGE)


MANY, FEW = 10, 2000
"""From so many addresses on, with at most so many flows, listing is the shorter way."""
_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")


async def delete_by_address(addresses: Iterable[IPAddress]) -> None:
    """Deletes flows whose original or reply source is one of the addresses.

    None found is fine. Raises the first `KernelError`, naming the address, when all others are
    gone (CT-4). Runs in a thread: a large table takes the kernel its time.
    """
    departed = list(addresses)
    if departed:
        await asyncio.to_thread(_delete, departed)


class Forgetter:
    """Joins calls of `delete_by_address`: those that come during a walk share the next one."""

    def __init__(self) -> None:
        self._addresses: set[IPAddress] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._walking = False

    async def forget(self, addresses: Iterable[IPAddress]) -> None:
        """Returns when the flows of these addresses are gone. Raises as `delete_by_address`."""
        wanted = set(addresses)
        if not wanted:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._addresses |= wanted
        self._waiters.append(waiter)
        if not self._walking:
            self._walking = True
            # Those who ask in this turn of the loop share the walk.
            loop.call_soon(self._walk)
        await waiter

    def _walk(self) -> None:
        addresses, waiters = list(self._addresses), self._waiters
        self._addresses, self._waiters = set(), []
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(None, _delete, addresses)
        except RuntimeError as refused:
            # No thread can be started now.
            work = loop.create_future()
            work.set_exception(refused)
        work.add_done_callback(partial(self._walked, waiters))

    def _walked(self, waiters: Iterable[asyncio.Future[None]], work: asyncio.Future[None]) -> None:
        self._walking = bool(self._waiters)
        if self._walking:
            self._walk()
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        for waiter in waiters:
            # One whose caller was cancelled is done.
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(None)


def _delete(addresses: list[IPAddress]) -> None:
    flows = _flows()
    if flows == 0:
        return
    errors: list[KernelError] = []
    with Socket(family=NETLINK_NETFILTER) as sock:
        left: list[IPAddress] = [address for address in addresses if address.version == 6]
        older: list[IPAddress] = [address for address in addresses if address.version == 4]
        listed = flows <= FEW and len(addresses) >= MANY
        left += older if listed else _delete_filtered(sock, older, errors)
        for family in {family_of(address) for address in left}:
            _delete_listed(sock, family, [a for a in left if family_of(a) == family], errors)
    if errors:
        raise errors[0]


def _flows() -> float:
    """How many flows this namespace has; infinity where the kernel does not say."""
    try:
        return int(_COUNT.read_text())
    except (OSError, ValueError):
        return math.inf


def _delete_filtered(
    sock: Socket, addresses: list[IPAddress], errors: list[KernelError]
) -> list[IPAddress]:
    """Lets the kernel select the flows; returns the addresses for which it cannot."""
    messages = [_filtered(address, reply) for address in addresses for reply in (False, True)]
    results = sock.transact(messages)
    left = []
    for address, pair in zip(addresses, zip(results[::2], results[1::2], strict=True), strict=True):
        if any(result.errno in _UNSUPPORTED for result in pair):
            left.append(address)
        else:
            errors += _failures(pair, f"delete connections of {address}")
    return left


def _filtered(address: IPAddress, reply: bool) -> bytes:
    which, place = (_TUPLE_REPLY, _FILTER_REPLY) if reply else (_TUPLE_ORIG, _FILTER_ORIG)
    source = m.attribute(_V4_SRC if address.version == 4 else _V6_SRC, address.packed)
    body = struct.pack("=BBH", family_of(address), 0, 0)
    body += m.nest(which, m.nest(_TUPLE_IP, source))
    body += m.nest(_FILTER, m.u32(place, _BY_SOURCE))
    return m.message(_DELETE, 0, body)


def _delete_listed(
    sock: Socket, family: int, addresses: Collection[IPAddress], errors: list[KernelError]
) -> None:
    head = struct.pack("=BBH", family, 0, 0)
    sources = {address.packed for address in addresses}
    # Bytes that occur nowhere in the flow need no parsing: nearly all flows end here.
    named = re.compile(b"|".join(map(re.escape, sources)), re.DOTALL).search
    messages = []
    for _, body in sock.dump(m.message(_GET, 0, head), "list connections"):
        if named(body) is None:
            continue
        flow = m.parse_attributes(body, 4)
        if not sources & {_source(flow[_TUPLE_ORIG]), _source(flow[_TUPLE_REPLY])}:
            continue
        key = m.nest(_TUPLE_ORIG, flow[_TUPLE_ORIG]) + m.attribute(_ID, flow[_ID])
        if _ZONE in flow:
            key += m.attribute(_ZONE, flow[_ZONE])
        messages.append(m.message(_DELETE, 0, head + key))
    what = f"delete connections of {', '.join(map(str, addresses))}"
    errors += _failures(sock.transact(messages), what)


def _failures(results: Iterable[Result], what: str) -> Iterator[KernelError]:
    """The errors of deletes; a flow that is gone is none."""
    for result in results:
        error = result.error(what)
        if error is not None and error.errno != errno.ENOENT:
            yield error


def _source(flow_tuple: bytes) -> bytes:
    attributes = m.parse_attributes(m.parse_attributes(flow_tuple)[_TUPLE_IP])
    return attributes.get(_V4_SRC) or attributes.get(_V6_SRC, b"")
