"""Which addresses a host can have. Tested in tests/libcalico/test_host_address.py."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

A_HOST = "the address of a host: not unspecified, loopback, multicast or broadcast"
_BROADCAST = IPv4Address("255.255.255.255")


def is_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether packets to this address can reach exactly one other host."""
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not special and address != _BROADCAST
