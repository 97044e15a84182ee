"""VXLAN devices and their forwarding tables: which host unwraps for which MAC.

A device without learning forwards by what stands in its FDB alone: an entry names the host
behind a MAC. (linux/if_link.h, IFLA_VXLAN_*; neighbour messages of family AF_BRIDGE with
NTF_SELF.)

VXL-1: `decode` of a device made with `create(name, vxlan)` equals `vxlan`.
Tested in tests/linux/test_vxlan.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from linux import links
from linux.link_values import Link
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.rtnl import (
    RTM_DELNEIGH,
    RTM_GETNEIGH,
    RTM_NEWNEIGH,
    IPAddress,
    address_from,
    mac_bytes,
    mac_text,
)

KIND = "vxlan"
_ID, _GROUP, _LINK, _LOCAL, _LEARNING = 1, 2, 3, 4, 7
_L2MISS, _PORT, _GROUP6, _LOCAL6, _GBP, _METADATA = 13, 15, 16, 17, 23, 25
_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # family, index, state, flags, type
_DST, _LLADDR = 1, 2
_AF_BRIDGE, _SELF, _PERMANENT = 7, 0x2, 0x80


@dataclass(frozen=True, slots=True)
class Vxlan:
    """What makes a device: network identifier, UDP port, own outer address, parent link's index.

    `plain` is false for a device that learns, sends to a group, asks for misses or has metadata.
    """

    vni: int
    port: int
    local: IPAddress
    parent: int
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Forward:
    """One FDB entry: frames for `mac` go to the host `dst`."""

    index: int
    mac: str
    dst: IPAddress
    permanent: bool = True


def create(name: str, vxlan: Vxlan, *, mac: str, mtu: int) -> bytes:
    """A device that is not up yet. EOPNOTSUPP where the kernel has no VXLAN.

    The kernel echoes nothing of it: look it up by its name.
    """
    local = vxlan.local
    kind = _LOCAL if isinstance(local, IPv4Address) else _LOCAL6
    data = (
        m.u32(_ID, vxlan.vni)
        + m.u32(_LINK, vxlan.parent)
        + m.attribute(kind, local.packed)
        + m.u8(_LEARNING, 0)
        + m.attribute(_PORT, struct.pack(">H", vxlan.port))
    )
    return links.create(name, KIND, data=data, mtu=mtu, mac=mac)


def decode(link: Link) -> Vxlan | None:
    """How a device was made; None for a link of another kind."""
    if link.kind != KIND:
        return None
    attributes = m.parse_attributes(link.info)
    packed = attributes.get(_LOCAL) or attributes.get(_LOCAL6) or bytes(4)
    odd = (_GROUP, _GROUP6, _LEARNING, _L2MISS, _METADATA, _GBP)
    return Vxlan(
        vni=m.as_uint(attributes.get(_ID, b"")),
        port=int.from_bytes(attributes.get(_PORT, b""), "big"),
        local=address_from(packed),
        parent=m.as_uint(attributes.get(_LINK, b"")),
        # GBP is a flag: it is there, without a value, or it is not.
        plain=not any(any(attributes[each]) or each == _GBP for each in odd if each in attributes),
    )


def decode_forward(body: bytes) -> Forward | None:
    """A neighbour message's body; None for what is no entry of a VXLAN device."""
    family, index, state, _, _ = _NEIGHBOUR.unpack_from(body)
    attributes = m.parse_attributes(body, _NEIGHBOUR.size)
    packed = attributes.get(_DST, b"")
    if family != _AF_BRIDGE or len(packed) not in (4, 16):
        return None
    mac = mac_text(attributes.get(_LLADDR, b""))
    return Forward(index, mac, address_from(packed), bool(state & _PERMANENT))


def forwards(sock: Socket, index: int) -> list[Forward]:
    """The FDB of a device. Raises `KernelError`."""
    request = m.message(RTM_GETNEIGH, 0, _NEIGHBOUR.pack(_AF_BRIDGE, index, 0, 0, 0))
    decoded = [decode_forward(body) for _, body in sock.dump(request, "list FDB entries")]
    return [one for one in decoded if one is not None and one.index == index]


def replace_forward(index: int, mac: str, dst: IPAddress) -> bytes:
    """Frames for `mac` go to `dst` alone."""
    return m.message(RTM_NEWNEIGH, m.NLM_F_CREATE | m.NLM_F_REPLACE, _entry(index, mac, dst))


def delete_forward(index: int, mac: str, dst: IPAddress) -> bytes:
    """Removes an entry. ENOENT if there is none."""
    return m.message(RTM_DELNEIGH, 0, _entry(index, mac, dst))


def _entry(index: int, mac: str, dst: IPAddress) -> bytes:
    body = _NEIGHBOUR.pack(_AF_BRIDGE, index, _PERMANENT, _SELF, 0)
    return body + m.attribute(_LLADDR, mac_bytes(mac)) + m.attribute(_DST, dst.packed)
