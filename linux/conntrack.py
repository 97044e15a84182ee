"""Forget connections of an address that left: all flows from it or to it.

Problem: an address is given to another pod while the kernel still knows the old one's flows, and
those skip policy as "established". The kernel itself selects what to delete (a filter in the
delete request, kernel 5.8 and later), so nothing is listed and no program runs. Where it cannot,
conntrack(8) does it.

CT-1: a request that the kernel does not understand deletes nothing: the partial tuple without
      a filter is refused, never taken as "everything".
Tested in tests/linux/test_conntrack.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

from linux import programs
from linux.errors import CommandError
from linux.netlink import wire as m
from linux.netlink.socket import NETLINK_NETFILTER, Socket
from linux.rtnl import IPAddress, family_of

_DELETE = (1 << 8) | 2
_TUPLE_ORIG, _TUPLE_REPLY, _FILTER = 1, 2, 25
_TUPLE_IP, _V4_SRC, _V6_SRC = 1, 1, 3
_FILTER_ORIG, _FILTER_REPLY = 1, 2
_BY_SOURCE = 1
_UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ERANGE)


async def delete_by_address(addresses: Iterable[IPAddress]) -> None:
    """Deletes flows whose original or reply source is one of the addresses.

    None found is fine. Raises `KernelError` naming the address.
    """
    wanted = list(addresses)
    if not wanted:
        return
    messages = [_message(address, reply) for address in wanted for reply in (False, True)]
    with Socket(family=NETLINK_NETFILTER) as sock:
        results = sock.transact(messages)
    for address, pair in zip(wanted, zip(results[::2], results[1::2], strict=True), strict=True):
        if any(result.errno in _UNSUPPORTED for result in pair):
            await _delete_by_program(address)
            continue
        for result in pair:
            if result.errno != errno.ENOENT:
                result.check(f"delete connections of {address}")


def _message(address: IPAddress, reply: bool) -> bytes:
    family = family_of(address)
    source = m.attribute(_V4_SRC if address.version == 4 else _V6_SRC, address.packed)
    which, place = (_TUPLE_REPLY, _FILTER_REPLY) if reply else (_TUPLE_ORIG, _FILTER_ORIG)
    body = struct.pack("=BBH", family, 0, 0)
    body += m.nest(which, m.nest(_TUPLE_IP, source))
    body += m.nest(_FILTER, m.u32(place, _BY_SOURCE))
    return m.message(_DELETE, 0, body)


async def _delete_by_program(address: IPAddress) -> None:
    family = "ipv4" if address.version == 4 else "ipv6"
    for option in ("--orig-src", "--reply-src"):
        try:
            await programs.run(
                ["conntrack", "--family", family, "--delete", option, str(address)]
            )
        except CommandError as error:
            if "0 flow entries" not in error.stderr:
                raise
