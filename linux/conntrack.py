"""Forget connections of an address that left: all flows from it or to it."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address


async def delete_by_address(addresses: Iterable[IPv4Address | IPv6Address]) -> None:
    """Deletes flows whose original or reply source is one of the addresses.

    None found is fine. Raises `KernelError` naming the address.
    """
    raise NotImplementedError
