"""Links: reading them, and the messages that make, change and remove them.

Builders return messages for `Socket.transact`, so that a whole interface is one send. A link is
named by index (int) or by name (str) wherever `Which` stands.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from socket import AF_INET, AF_INET6, AF_UNSPEC

from linux.errors import KernelError
from linux.netlink import wire as m
from linux.netlink.socket import Socket
from linux.rtnl import (
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_NEWLINK,
    RTM_SETLINK,
    RTM_SETNEIGHTBL,
    mac_bytes,
    mac_text,
)

Which = int | str

_INFO = struct.Struct("=BxHiII")  # family, hardware type, index, flags, change mask
_ADDRESS, _IFNAME, _MTU, _LINK, _MASTER, _OPERSTATE = 1, 3, 4, 5, 10, 16
_LINKINFO, _IFALIAS, _AF_SPEC, _GROUP, _NET_NS_FD = 18, 20, 26, 27, 28
_EXT_MASK, _NUM_TX, _NUM_RX, _LINK_NETNSID = 29, 31, 32, 37
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
# Other kinds (bridges) report running timers there, so that two dumps would always differ.
_TUNNELS = ("vxlan", "ipip")
_SKIP_STATS = 8
_IFREQ, _SIOCGIFINDEX = struct.Struct("=16s24x"), 0x8933
_UP, _LOOPBACK, _RUNNING, _LOWER_UP = 0x1, 0x8, 0x40, 0x10000
_INET_CONF, _INET6_CONF = 1, 2
_NDTA_NAME, _NDTA_PARMS, _NDTPA_IFINDEX, _NDTPA_PROXY_DELAY = 1, 6, 1, 13

# Places in the kernel's table of per-interface IPv4 settings (linux/ip.h), from 1.
INET_CONF = {
    "forwarding": 1,
    "mc_forwarding": 2,
    "proxy_arp": 3,
    "accept_redirects": 4,
    "secure_redirects": 5,
    "send_redirects": 6,
    "rp_filter": 8,
    "accept_source_route": 9,
    "log_martians": 11,
    "arp_filter": 13,
    "arp_announce": 18,
    "arp_ignore": 19,
    "arp_accept": 21,
    "accept_local": 23,
    "proxy_arp_pvlan": 25,
    "route_localnet": 26,
}
# The same for IPv6 (linux/ipv6.h), from 0; they are read here and written by `linux.sysctl`.
INET6_CONF = {
    "forwarding": 0,
    "hop_limit": 1,
    "mtu": 2,
    "accept_ra": 3,
    "accept_redirects": 4,
    "autoconf": 5,
    "dad_transmits": 6,
    "proxy_ndp": 22,
    "disable_ipv6": 26,
    "accept_dad": 27,
}


@dataclass(frozen=True, slots=True)
class Link:
    """One interface. `up` is the administrative state, `running` the operational one.

    `peer_index` is the other end of a veth (or the parent device), in the namespace that
    `peer_netnsid` names; 0 if none. `mac` is "" where the device has none. `info`: the packed
    attributes of a tunnel's kind.
    """

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    running: bool
    carrier: bool
    loopback: bool
    operstate: int
    kind: str
    master: int
    peer_index: int
    peer_netnsid: int | None
    group: int
    alias: str
    inet_conf: bytes
    inet6_conf: bytes
    info: bytes = b""

    def inet(self, setting: str) -> int | None:
        """An IPv4 setting of the interface (`INET_CONF`), None if the kernel sent none."""
        return _setting(self.inet_conf, INET_CONF[setting] - 1)

    def inet6(self, setting: str) -> int | None:
        """An IPv6 setting of the interface (`INET6_CONF`), None if the kernel sent none."""
        return _setting(self.inet6_conf, INET6_CONF[setting])


def _setting(table: bytes, place: int) -> int | None:
    if 4 * place + 4 > len(table):
        return None
    value: int = struct.unpack_from("=i", table, 4 * place)[0]
    return value


def index_and_state(body: bytes) -> tuple[int, bool]:
    """Which link a message's body is about, and whether it is up."""
    _, _, index, flags, _ = _INFO.unpack_from(body)
    return index, bool(flags & _UP)


def index_of(body: bytes) -> int:
    """Which link a message's body is about."""
    index: int = _INFO.unpack_from(body)[2]
    return index


def decode(body: bytes) -> Link:
    """A link message's body."""
    _, _, index, flags, _ = _INFO.unpack_from(body)
    attributes = m.parse_attributes(body, _INFO.size)
    info = m.parse_attributes(attributes.get(_LINKINFO, b""))
    families = m.parse_attributes(attributes.get(_AF_SPEC, b""))
    netnsid = attributes.get(_LINK_NETNSID)
    kind = m.as_text(info.get(_INFO_KIND, b""))
    return Link(
        index=index,
        name=m.as_text(attributes.get(_IFNAME, b"")),
        mac=mac_text(attributes.get(_ADDRESS, b"")),
        mtu=m.as_uint(attributes.get(_MTU, b"")),
        up=bool(flags & _UP),
        running=bool(flags & _RUNNING),
        carrier=bool(flags & _LOWER_UP),
        loopback=bool(flags & _LOOPBACK),
        operstate=m.as_uint(attributes.get(_OPERSTATE, b"")),
        kind=kind,
        master=m.as_uint(attributes.get(_MASTER, b"")),
        peer_index=m.as_uint(attributes.get(_LINK, b"")),
        peer_netnsid=m.as_uint(netnsid) if netnsid is not None else None,
        group=m.as_uint(attributes.get(_GROUP, b"")),
        alias=m.as_text(attributes.get(_IFALIAS, b"")),
        inet_conf=m.parse_attributes(families.get(AF_INET, b"")).get(_INET_CONF, b""),
        inet6_conf=m.parse_attributes(families.get(AF_INET6, b"")).get(_INET6_CONF, b""),
        info=info.get(_INFO_DATA, b"") if kind in _TUNNELS else b"",
    )


def dump(sock: Socket) -> list[Link]:
    """All links of the socket's namespace, without counters. Raises `KernelError`."""
    body = _INFO.pack(AF_UNSPEC, 0, 0, 0, 0) + m.u32(_EXT_MASK, _SKIP_STATS)
    return [
        decode(answer) for _, answer in sock.dump(m.message(RTM_GETLINK, 0, body), "list links")
    ]


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
    return m.message(RTM_GETLINK, 0, _head(which) + m.u32(_EXT_MASK, _SKIP_STATS))


def _head(which: Which, flags: int = 0, mask: int = 0) -> bytes:
    if isinstance(which, int):
        return _INFO.pack(AF_UNSPEC, 0, which, flags, mask)
    return _INFO.pack(AF_UNSPEC, 0, 0, flags, mask) + m.text(_IFNAME, checked_name(which))


def checked_name(name: str) -> str:
    """An interface name the kernel takes: 1 to 15 bytes, no "/", no white space, not a dot path."""
    if not 0 < len(name.encode()) < 16 or name in (".", "..") or set(name) & set("/ \t\n:"):
        raise ValueError(f"interface name {name!r}: want 1 to 15 bytes without '/', ':' or spaces")
    return name


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
    tail = m.attribute(_ADDRESS, mac_bytes(peer_mac)) if peer_mac is not None else b""
    if peer_netns_fd is not None:
        tail += m.u32(_NET_NS_FD, peer_netns_fd)
    flags = _UP if host_up else 0
    body = _INFO.pack(AF_UNSPEC, 0, 0, flags, flags) + m.text(_IFNAME, checked_name(name))
    body += _ends(queues, mtu)
    if mac is not None:
        body += m.attribute(_ADDRESS, mac_bytes(mac))
    body += _before_tail(peer_name, queues, mtu, len(tail)) + tail
    return m.message(RTM_NEWLINK, m.NLM_F_CREATE | m.NLM_F_EXCL | m.NLM_F_ECHO | m.NLM_F_ACK, body)


@lru_cache(maxsize=16)
def _ends(queues: int, mtu: int) -> bytes:
    return m.u32(_NUM_TX, queues) + m.u32(_NUM_RX, queues) + m.u32(_MTU, mtu)


@lru_cache(maxsize=64)
def _before_tail(peer_name: str, queues: int, mtu: int, tail: int) -> bytes:
    """All that stands before the last `tail` bytes of a peer: the same for nearly all pods."""
    peer = _INFO.pack(AF_UNSPEC, 0, 0, 0, 0) + m.text(_IFNAME, checked_name(peer_name))
    peer += _ends(queues, mtu) + bytes(tail)
    data = m.nest(_INFO_DATA, m.nest(_VETH_PEER, peer))
    whole = m.nest(_LINKINFO, m.text(_INFO_KIND, "veth"), data)
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
    flags = _UP if up else 0
    body = _INFO.pack(AF_UNSPEC, 0, 0, flags, flags) + m.text(_IFNAME, checked_name(name))
    if mtu is not None:
        body += m.u32(_MTU, mtu)
    if mac is not None:
        body += m.attribute(_ADDRESS, mac_bytes(mac))
    parts = [m.text(_INFO_KIND, kind)] + ([m.nest(_INFO_DATA, data)] if data else [])
    body += m.nest(_LINKINFO, *parts)
    return m.message(RTM_NEWLINK, m.NLM_F_CREATE | m.NLM_F_EXCL | m.NLM_F_ECHO | m.NLM_F_ACK, body)


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
        if kind == RTM_NEWLINK:
            peer = m.first_attribute(body, _LINK, _INFO.size)
            return Made(index_of(body), m.as_uint(peer or b""))
    link = get(sock, name)
    if link is None:
        raise KernelError(errno.ENODEV, f"find the link {name!r} that was just made")
    return Made(link.index, link.peer_index)


def _change(which: Which, attributes: bytes, flags: int = 0, mask: int = 0) -> bytes:
    return m.message(RTM_SETLINK, 0, _head(which, flags, mask) + attributes)


def set_up(which: Which) -> bytes:
    """Brings a link up."""
    return _change(which, b"", _UP, _UP)


def set_down(which: Which) -> bytes:
    """Takes a link down."""
    return _change(which, b"", 0, _UP)


def set_mac(which: Which, mac: str) -> bytes:
    """Changes the hardware address."""
    return _change(which, m.attribute(_ADDRESS, mac_bytes(mac)))


def set_alias(which: Which, alias: str) -> bytes:
    """Changes the free text that a link carries (at most 255 bytes)."""
    return _change(which, m.attribute(_IFALIAS, alias.encode()))


def set_mtu(which: Which, mtu: int) -> bytes:
    """Changes the MTU, in bytes."""
    return _change(which, m.u32(_MTU, mtu))


def set_group(which: Which, group: int) -> bytes:
    """Puts a link into a group, so that `delete_group` removes many at the price of one."""
    return _change(which, m.u32(_GROUP, group))


def delete(which: Which) -> bytes:
    """Removes a link (a veth's peer goes with it). About 20 ms of waiting in the kernel."""
    return m.message(RTM_DELLINK, 0, _head(which))


def delete_group(group: int) -> bytes:
    """Removes all links of a group. The default group 0 is refused: it holds everything."""
    if group == 0:
        raise ValueError("link group 0 holds every link of the host")
    body = _INFO.pack(AF_UNSPEC, 0, 0, 0, 0) + m.u32(_GROUP, group)
    return m.message(RTM_DELLINK, 0, body)


def set_inet_conf(index: int, settings: Mapping[str, int]) -> bytes:
    """Changes IPv4 settings of an existing link (names of `INET_CONF`), like its sysctls."""
    return _change(index, _inet_conf(tuple(settings.items())))


@lru_cache(maxsize=64)
def _inet_conf(settings: tuple[tuple[str, int], ...]) -> bytes:
    values = [m.u32(INET_CONF[name], value) for name, value in settings]
    return m.nest(_AF_SPEC, m.nest(AF_INET, m.nest(_INET_CONF, *values)))


def set_proxy_delay(index: int, milliseconds: int, family: int = AF_INET) -> bytes:
    """How long the link waits before it answers for others (proxy ARP, or NDP for AF_INET6)."""
    table = "arp_cache" if family == AF_INET else "ndisc_cache"
    parameters = m.u32(_NDTPA_IFINDEX, index) + m.u64(_NDTPA_PROXY_DELAY, milliseconds)
    body = struct.pack("=Bxxx", family) + m.text(_NDTA_NAME, table)
    return m.message(RTM_SETNEIGHTBL, 0, body + m.nest(_NDTA_PARMS, parameters))


def by_name(links: Iterable[Link]) -> dict[str, Link]:
    """Links by their name."""
    return {link.name: link for link in links}


def differing_conf(link: Link, desired: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The IPv4 settings of `desired` that the link does not have."""
    for name, value in desired.items():
        if link.inet(name) != value:
            yield name, value
