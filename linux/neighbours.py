"""Neighbours: which MAC answers for an address on a link; permanent and proxy entries.

Tested in tests/linux/test_neighbours.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, AF_UNSPEC

from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.rtnl import (
    RTM_DELNEIGH,
    RTM_GETNEIGH,
    RTM_NEWNEIGH,
    IPAddress,
    address_from,
    family_of,
    mac_bytes,
    mac_text,
)

_MESSAGE = struct.Struct("=BxxxiHBB")  # family, index, state, flags, type
_DST, _LLADDR = 1, 2
_PROXY = 0x8
STALE, FAILED, PERMANENT = 0x4, 0x20, 0x80


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One entry. `state` is a NUD value; `mac` is "" where none is known (proxy entries)."""

    index: int
    address: IPAddress
    mac: str = ""
    state: int = PERMANENT
    proxy: bool = False

    @property
    def permanent(self) -> bool:
        """Whether the entry was set by hand and never ages."""
        return bool(self.state & PERMANENT)


def decode(body: bytes) -> Neighbour | None:
    """A neighbour message's body; None for entries that are not of IP (bridge tables)."""
    family, index, state, flags, _ = _MESSAGE.unpack_from(body)
    attributes = m.parse_attributes(body, _MESSAGE.size)
    packed = attributes.get(_DST, b"")
    # Entries of VXLAN devices name an address too, under the bridges' family (linux.vxlan).
    if family not in (AF_INET, AF_INET6) or len(packed) not in (4, 16):
        return None
    mac = mac_text(attributes.get(_LLADDR, b""))
    return Neighbour(index, address_from(packed), mac, state, bool(flags & _PROXY))


def dump(sock: Socket, *, index: int = 0) -> list[Neighbour]:
    """Entries of both families, of one link if given; those of proxies are not among them."""
    request = m.message(RTM_GETNEIGH, 0, _MESSAGE.pack(AF_UNSPEC, 0, 0, 0, 0))
    decoded = [decode(body) for _, body in sock.dump(request, "list neighbours")]
    return [n for n in decoded if n is not None and index in (0, n.index)]


def replace(index: int, address: IPAddress, mac: str, state: int = PERMANENT) -> bytes:
    """Sets an entry, permanent by default; an existing one is replaced."""
    body = _MESSAGE.pack(family_of(address), index, state, 0, 0)
    body += m.attribute(_DST, address.packed) + m.attribute(_LLADDR, mac_bytes(mac))
    return m.message(RTM_NEWNEIGH, m.NLM_F_CREATE | m.NLM_F_REPLACE, body)


def delete(index: int, address: IPAddress) -> bytes:
    """Removes an entry. ENOENT if there is none."""
    body = _MESSAGE.pack(family_of(address), index, 0, 0, 0)
    return m.message(RTM_DELNEIGH, 0, body + m.attribute(_DST, address.packed))
