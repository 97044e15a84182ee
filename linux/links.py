"""Links: reading them, and the messages that make, change and remove them.

Builders return messages for `Socket.transact`, so that a whole interface is one send. A link is
named by index (int) or by name (str) wherever `Which` stands. What a link is:
linux/link_values.py.

LINK-1: a veth is born with its peer in the other namespace: nothing is moved afterwards, and both
        indexes are known (`made`).
LINK-2: the peer is brought up in its own namespace, later: the kernel refuses to raise it while
        the two ends are not joined yet (ENOTCONN).
Tested in tests/linux/test_links.py.
"""

from __future__ import annotations

import errno
import fcntl
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from socket import AF_INET, AF_UNSPEC

from linux import rtnl
from linux.errors import KernelError
from linux.link_values import INET_CONF, INFO, checked_name, index_of
from linux.link_values import Link as Link
from linux.link_values import decode as decode
from linux.link_values import differing_conf as differing_conf
from linux.netlink import wire as m
from linux.netlink.socket import Socket

Which = int | str

_VETH_PEER = 1
_MAKE = m.NLM_F_CREATE | m.NLM_F_EXCL | m.NLM_F_ECHO | m.NLM_F_ACK
_SKIP_STATS = 8
_IFREQ, _SIOCGIFINDEX = struct.Struct("=16s24x"), 0x8933
_NDTA_NAME, _NDTA_PARMS, _NDTPA_IFINDEX, _NDTPA_PROXY_DELAY = 1, 6, 1, 13


def dump(sock: Socket) -> list[Link]:
    """All links of the socket's namespace, without counters. Raises `KernelError`."""
    body = INFO.pack(AF_UNSPEC, 0, 0, 0, 0) + m.u32(rtnl.IFLA_EXT_MASK, _SKIP_STATS)
    answers = sock.dump(m.message(rtnl.RTM_GETLINK, 0, body), "list links")
    return [decode(answer) for _, answer in answers]


def get(sock: Socket, which: Which) -> Link | None:
    """One link by index or name, None if there is none. Raises `KernelError`."""
    result = sock.transact([request(which)])[0]
    if result.errno == errno.ENODEV:
        return None
    result.check(f"look up link {which}")
    return decode(result.answers[0][1])


def is_there(sock: Socket, name: str) -> bool:
    """Whether the socket's namespace has a link of this name (netdevice(7), SIOCGIFINDEX).

    One call of the kernel, without its lock of all links. A kernel that cannot be asked in this way
    counts as "yes": a caller that believes a name to be free may remove the link that has it.
    """
    try:
        fcntl.ioctl(sock.fileno(), _SIOCGIFINDEX, _IFREQ.pack(checked_name(name).encode()))
    except OSError as error:
        return error.errno != errno.ENODEV
    return True


def request(which: Which) -> bytes:
    """Asks for one link; the answer's body is for `decode`. ENODEV if there is none."""
    return m.message(rtnl.RTM_GETLINK, 0, _head(which) + m.u32(rtnl.IFLA_EXT_MASK, _SKIP_STATS))


def _head(which: Which, flags: int = 0, mask: int = 0) -> bytes:
    if isinstance(which, int):
        return INFO.pack(AF_UNSPEC, 0, which, flags, mask)
    return INFO.pack(AF_UNSPEC, 0, 0, flags, mask) + m.text(rtnl.IFLA_IFNAME, checked_name(which))


def create_veth(
    name: str,
    *,
    mac: str | None,
    mtu: int,
    peer_name: str,
    peer_mac: str | None,
    peer_netns_fd: int | None,
    queues: int = 1,
    host_up: bool = True,
) -> bytes:
    """A veth pair; this end in the socket's namespace, the peer in `peer_netns_fd` (LINK-1).

    Send it with `made` to have both indexes. EEXIST if either name is taken.
    """
    tail = m.attribute(rtnl.IFLA_ADDRESS, rtnl.mac_bytes(peer_mac)) if peer_mac is not None else b""
    if peer_netns_fd is not None:
        tail += m.u32(rtnl.IFLA_NET_NS_FD, peer_netns_fd)
    flags = rtnl.IFF_UP if host_up else 0
    body = _head(name, flags, flags) + _ends(queues, mtu)
    if mac is not None:
        body += m.attribute(rtnl.IFLA_ADDRESS, rtnl.mac_bytes(mac))
    body += _before_tail(peer_name, queues, mtu, len(tail)) + tail
    return m.message(rtnl.RTM_NEWLINK, _MAKE, body)


@lru_cache(maxsize=16)
def _ends(queues: int, mtu: int) -> bytes:
    return (
        m.u32(rtnl.IFLA_NUM_TX_QUEUES, queues)
        + m.u32(rtnl.IFLA_NUM_RX_QUEUES, queues)
        + m.u32(rtnl.IFLA_MTU, mtu)
    )


@lru_cache(maxsize=64)
def _before_tail(peer_name: str, queues: int, mtu: int, tail: int) -> bytes:
    """All that stands before the last `tail` bytes of a peer: the same for nearly all pods."""
    peer = _head(peer_name) + _ends(queues, mtu) + bytes(tail)
    data = m.nest(rtnl.IFLA_INFO_DATA, m.nest(_VETH_PEER, peer))
    whole = m.nest(rtnl.IFLA_LINKINFO, m.text(rtnl.IFLA_INFO_KIND, "veth"), data)
    return whole[: len(whole) - tail]


def create(
    name: str,
    kind: str,
    *,
    data: bytes = b"",
    mtu: int | None = None,
    mac: str | None = None,
    up: bool = False,
) -> bytes:
    """A link of any kind ("dummy", "bridge", "vxlan", ...); `data` are packed kind attributes.

    Send it with `made` to have its index.
    """
    flags = rtnl.IFF_UP if up else 0
    body = _head(name, flags, flags)
    if mtu is not None:
        body += m.u32(rtnl.IFLA_MTU, mtu)
    if mac is not None:
        body += m.attribute(rtnl.IFLA_ADDRESS, rtnl.mac_bytes(mac))
    details = m.nest(rtnl.IFLA_INFO_DATA, data) if data else b""
    body += m.nest(rtnl.IFLA_LINKINFO, m.text(rtnl.IFLA_INFO_KIND, kind), details)
    return m.message(rtnl.RTM_NEWLINK, _MAKE, body)


@dataclass(frozen=True, slots=True)
class Made:
    """A link that was just made; `peer_index` of a veth's other end, in its namespace."""

    index: int
    peer_index: int


def made(sock: Socket, message: bytes, name: str) -> Made:
    """Sends a create message.

    Kernels before 6.2 echo nothing: there the link is looked up by its name. Raises `KernelError`
    if it was not made.
    """
    (result,) = sock.transact([message])
    result.check("create link")
    for kind, body in result.answers:
        if kind == rtnl.RTM_NEWLINK:
            peer = m.parse_attributes(body, INFO.size).get(rtnl.IFLA_LINK, b"")
            return Made(index_of(body), m.as_uint(peer))
    link = get(sock, name)
    if link is None:
        raise KernelError(errno.ENODEV, f"find the link {name!r} that was just made")
    return Made(link.index, link.peer_index)


def _change(which: Which, attributes: bytes, flags: int = 0, mask: int = 0) -> bytes:
    return m.message(rtnl.RTM_SETLINK, 0, _head(which, flags, mask) + attributes)


def set_up(which: Which) -> bytes:
    """Brings a link up."""
    return _change(which, b"", rtnl.IFF_UP, rtnl.IFF_UP)


def set_down(which: Which) -> bytes:
    """Takes a link down."""
    return _change(which, b"", 0, rtnl.IFF_UP)


def set_mac(which: Which, mac: str) -> bytes:
    """Changes the hardware address."""
    return _change(which, m.attribute(rtnl.IFLA_ADDRESS, rtnl.mac_bytes(mac)))


def set_alias(which: Which, alias: str) -> bytes:
    """Changes the free text that a link carries (at most 255 bytes)."""
    return _change(which, m.attribute(rtnl.IFLA_IFALIAS, alias.encode()))


def set_mtu(which: Which, mtu: int) -> bytes:
    """Changes the MTU, in bytes."""
    return _change(which, m.u32(rtnl.IFLA_MTU, mtu))


def set_group(which: Which, group: int) -> bytes:
    """Puts a link into a group, so that `delete_group` removes many at the price of one."""
    return _change(which, m.u32(rtnl.IFLA_GROUP, group))


def delete(which: Which) -> bytes:
    """Removes a link (a veth's peer goes with it). About 20 ms of waiting in the kernel."""
    return m.message(rtnl.RTM_DELLINK, 0, _head(which))


def delete_group(group: int) -> bytes:
    """Removes all links of a group. The default group 0 is refused: it holds everything."""
    if group == 0:
        raise ValueError("link group 0 holds every link of the host")
    body = INFO.pack(AF_UNSPEC, 0, 0, 0, 0) + m.u32(rtnl.IFLA_GROUP, group)
    return m.message(rtnl.RTM_DELLINK, 0, body)


def set_inet_conf(index: int, settings: Mapping[str, int]) -> bytes:
    """Changes IPv4 settings of an existing link (names of `INET_CONF`), like its sysctls."""
    return _change(index, _inet_conf(tuple(settings.items())))


@lru_cache(maxsize=64)
def _inet_conf(settings: tuple[tuple[str, int], ...]) -> bytes:
    values = [m.u32(INET_CONF[name], value) for name, value in settings]
    return m.nest(rtnl.IFLA_AF_SPEC, m.nest(AF_INET, m.nest(rtnl.IFLA_INET_CONF, *values)))


def set_proxy_delay(index: int, milliseconds: int, family: int = AF_INET) -> bytes:
    """How long the link waits before it answers for others (proxy ARP, or NDP for AF_INET6)."""
    table = "arp_cache" if family == AF_INET else "ndisc_cache"
    parameters = m.u32(_NDTPA_IFINDEX, index) + m.u64(_NDTPA_PROXY_DELAY, milliseconds)
    body = struct.pack("=Bxxx", family) + m.text(_NDTA_NAME, table)
    return m.message(rtnl.RTM_SETNEIGHTBL, 0, body + m.nest(_NDTA_PARMS, parameters))


def by_name(links: Iterable[Link]) -> dict[str, Link]:
    """Links by their name."""
    return {link.name: link for link in links}
