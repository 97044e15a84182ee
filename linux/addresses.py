"""Addresses of interfaces, IPv4 and IPv6 in one code path.

Tested in tests/linux/test_addresses.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from errno import ENODEV
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from socket import AF_INET6, AF_UNSPEC

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.rtnl import (
    RTM_DELADDR,
    RTM_GETADDR,
    RTM_NEWADDR,
    IPAddress,
    address_from,
    family_of,
)

IPInterface = IPv4Interface | IPv6Interface

_MESSAGE = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ADDRESS, _LOCAL, _FLAGS = 1, 2, 8
FLAG_NODAD = 0x2
SCOPE_UNIVERSE = 0


@dataclass(frozen=True, slots=True)
class Address:
    """One address on one link. `peer` is the far end's address where it differs."""

    index: int
    interface: IPInterface
    scope: int = SCOPE_UNIVERSE
    flags: int = 0
    peer: IPAddress | None = None


def decode(body: bytes) -> Address:
    """An address message's body."""
    _, prefix, flags, scope, index = _MESSAGE.unpack_from(body)
    attributes = m.parse_attributes(body, _MESSAGE.size)
    if _FLAGS in attributes:
        flags = m.as_uint(attributes[_FLAGS])
    far = attributes.get(_ADDRESS, b"")
    near = attributes.get(_LOCAL, far)
    return Address(
        index=index,
        interface=ip_interface((near, prefix)),
        scope=scope,
        flags=flags,
        peer=address_from(far) if far and far != near else None,
    )


def dump(sock: Socket, index: int = 0, family: int = AF_UNSPEC) -> list[Address]:
    """All addresses, or those of one link or family; a link that is gone has none.

    Raises `KernelError`.
    """
    request = m.message(RTM_GETADDR, 0, _MESSAGE.pack(family, 0, 0, 0, index))
    try:
        addresses = [decode(body) for _, body in sock.dump(request, "list addresses")]
    except KernelError as error:
        if index and error.errno == ENODEV:
            return []
        raise
    return [address for address in addresses if index in (0, address.index)]


def add(
    index: int,
    interface: IPInterface,
    *,
    scope: int = SCOPE_UNIVERSE,
    replace: bool = False,
) -> bytes:
    """Adds an address. IPv6 duplicate detection is off: nothing waits for it.

    EEXIST if it is there already, unless `replace`.
    """
    flags = m.NLM_F_CREATE | (m.NLM_F_REPLACE if replace else m.NLM_F_EXCL)
    return m.message(RTM_NEWADDR, flags, _body(index, interface, scope, FLAG_NODAD))


def delete(index: int, interface: IPInterface) -> bytes:
    """Removes an address. EADDRNOTAVAIL if it is not there."""
    return m.message(RTM_DELADDR, 0, _body(index, interface))


def _body(index: int, interface: IPInterface, scope: int = SCOPE_UNIVERSE, flags: int = 0) -> bytes:
    family, packed = family_of(interface.ip), interface.ip.packed
    body = _MESSAGE.pack(family, interface.network.prefixlen, 0, scope, index)
    body += m.attribute(_LOCAL, packed) + m.attribute(_ADDRESS, packed)
    return body + m.u32(_FLAGS, flags) if flags and family == AF_INET6 else body
