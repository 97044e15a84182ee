"""What a link is, as a value: one interface as the kernel describes it, and its settings.

Tested in tests/linux/test_links.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from socket import AF_INET, AF_INET6

from linux import rtnl
from linux.netlink import wire as m

INFO = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, hardware type, index, flags, change mask."""
# Other kinds (bridges) report running timers there, so that two dumps would always differ.
_TUNNELS = ("vxlan", "ipip")

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
    attributes of a tunnel's kind. `queue`: the queueing discipline of what it sends.
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
    queue: str = ""

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
    _, _, index, flags, _ = INFO.unpack_from(body)
    return index, bool(flags & rtnl.IFF_UP)


def index_of(body: bytes) -> int:
    """Which link a message's body is about."""
    index: int = INFO.unpack_from(body)[2]
    return index


def decode(body: bytes) -> Link:
    """A link message's body."""
    _, _, index, flags, _ = INFO.unpack_from(body)
    attributes = m.parse_attributes(body, INFO.size)
    info = m.parse_attributes(attributes.get(rtnl.IFLA_LINKINFO, b""))
    families = m.parse_attributes(attributes.get(rtnl.IFLA_AF_SPEC, b""))
    netnsid = attributes.get(rtnl.IFLA_LINK_NETNSID)
    kind = m.as_text(info.get(rtnl.IFLA_INFO_KIND, b""))
    return Link(
        index=index,
        name=m.as_text(attributes.get(rtnl.IFLA_IFNAME, b"")),
        mac=rtnl.mac_text(attributes.get(rtnl.IFLA_ADDRESS, b"")),
        mtu=m.as_uint(attributes.get(rtnl.IFLA_MTU, b"")),
        up=bool(flags & rtnl.IFF_UP),
        running=bool(flags & rtnl.IFF_RUNNING),
        carrier=bool(flags & rtnl.IFF_LOWER_UP),
        loopback=bool(flags & rtnl.IFF_LOOPBACK),
        operstate=m.as_uint(attributes.get(rtnl.IFLA_OPERSTATE, b"")),
        kind=kind,
        master=m.as_uint(attributes.get(rtnl.IFLA_MASTER, b"")),
        peer_index=m.as_uint(attributes.get(rtnl.IFLA_LINK, b"")),
        peer_netnsid=m.as_uint(netnsid) if netnsid is not None else None,
        group=m.as_uint(attributes.get(rtnl.IFLA_GROUP, b"")),
        alias=m.as_text(attributes.get(rtnl.IFLA_IFALIAS, b"")),
        inet_conf=m.parse_attributes(families.get(AF_INET, b"")).get(rtnl.IFLA_INET_CONF, b""),
        inet6_conf=m.parse_attributes(families.get(AF_INET6, b"")).get(rtnl.IFLA_INET6_CONF, b""),
        info=info.get(rtnl.IFLA_INFO_DATA, b"") if kind in _TUNNELS else b"",
        queue=m.as_text(attributes.get(rtnl.IFLA_QDISC, b"")),
    )


def differing_conf(link: Link, desired: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The IPv4 settings of `desired` that the link does not have."""
    for name, value in desired.items():
        if link.inet(name) != value:
            yield name, value


def checked_name(name: str) -> str:
    """An interface name the kernel takes: 1 to 15 bytes, no "/", no white space, not a dot path."""
    if not 0 < len(name.encode()) < 16 or name in (".", "..") or set(name) & set("/ \t\n:"):
        raise ValueError(f"interface name {name!r}: want 1 to 15 bytes without '/', ':' or spaces")
    return name
