"""Numbers of rtnetlink (linux/rtnetlink.h, if_link.h, neighbour.h, if_addr.h) and IP helpers.

Tested in tests/linux/test_neighbours.py and tests/linux/test_routes.py.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from socket import AF_INET, AF_INET6

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_SETNEIGHTBL = 67
RTM_NEWNETCONF, RTM_DELNETCONF = 80, 81

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_QDISC = 1, 3, 4, 5, 6
IFLA_MASTER, IFLA_OPERSTATE, IFLA_LINKINFO, IFLA_IFALIAS = 10, 16, 18, 20
IFLA_AF_SPEC, IFLA_GROUP, IFLA_NET_NS_FD, IFLA_EXT_MASK = 26, 27, 28, 29
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES, IFLA_LINK_NETNSID = 31, 32, 37
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_INET_CONF, IFLA_INET6_CONF = 1, 2
IFF_UP, IFF_LOOPBACK, IFF_RUNNING, IFF_LOWER_UP = 0x1, 0x8, 0x40, 0x10000

GROUP_LINK, GROUP_NEIGH = 1, 3
GROUP_IPV4_ADDRESS, GROUP_IPV4_ROUTE = 5, 7
GROUP_IPV6_ADDRESS, GROUP_IPV6_ROUTE = 9, 11
GROUP_IPV4_NETCONF, GROUP_IPV6_NETCONF = 24, 25


def family_of(address: IPAddress | IPNetwork) -> int:
    """AF_INET or AF_INET6."""
    return AF_INET if address.version == 4 else AF_INET6


def address_from(packed: bytes) -> IPAddress:
    """The address of 4 or 16 bytes."""
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)


def mac_bytes(mac: str) -> bytes:
    """Six bytes of "aa:bb:cc:dd:ee:ff". Raises `ValueError`."""
    try:
        packed = bytes.fromhex(mac.replace(":", ""))
    except ValueError:
        packed = b""
    if len(packed) != 6:
        raise ValueError(f"MAC address {mac!r}: want six hexadecimal bytes joined by ':'")
    return packed


def mac_text(packed: bytes) -> str:
    """The usual spelling, lower case; empty for no address."""
    return packed.hex(":") if packed else ""
