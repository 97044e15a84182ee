"""Prefixes packed into bytes: what a table of a hundred thousand routes can afford.

Problem: `ipaddress.ip_network` takes ten microseconds to make and two to look up in a dict; a
route is looked up a dozen times on its way to the kernel. So where there are many, a prefix is
its address's 4 or 16 bytes and one byte of length: hashed and compared by the interpreter
itself, and in the order of addresses.

PFX-1: `parse` takes and refuses exactly what `ipaddress.ip_network` does, with its words.
PFX-2: `unpack(pack(network)) == network`, and equal networks have equal bytes.
Tested in tests/linux/test_prefixes.py (hypothesis).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_pton
from typing import NewType

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
Prefix = NewType("Prefix", bytes)
"""Address bytes and one byte of length."""

_LENGTHS = {str(length): bytes((length,)) for length in range(129)}
_HOST_BITS = tuple((1 << bits) - 1 for bits in range(129))
_SIZE_4 = 5


def pack(network: IPNetwork) -> Prefix:
    """The packed prefix of a network."""
    return Prefix(network.network_address.packed + bytes((network.prefixlen,)))


def pack_host(address: IPAddress) -> Prefix:
    """The packed prefix of one address."""
    return Prefix(address.packed + bytes((address.max_prefixlen,)))


def host_bytes(address: str) -> bytes:
    """The 4 or 16 bytes of an address as `ipaddress` spells it. Raises `ValueError`."""
    try:
        return inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except OSError as error:
        raise ValueError(f"{address!r}: {error}") from None


def unpack(prefix: Prefix) -> IPNetwork:
    """The network of a packed prefix."""
    if len(prefix) == _SIZE_4:
        return IPv4Network((prefix[:4], prefix[4]))
    return IPv6Network((prefix[:16], prefix[16]))


def text(prefix: Prefix) -> str:
    """The usual spelling, such as 10.0.0.0/26."""
    return str(unpack(prefix))


def version(prefix: Prefix) -> int:
    """4 or 6."""
    return 4 if len(prefix) == _SIZE_4 else 6


def is_host(prefix: Prefix) -> bool:
    """Whether it is a single address."""
    return prefix[-1] == (len(prefix) - 1) << 3


def parse(spelled: str) -> Prefix:
    """The prefix of a text (PFX-1). Raises `ValueError`."""
    address, slash, bits = spelled.partition("/")
    length = _LENGTHS.get(bits)
    if slash and length is not None:
        try:
            packed = inet_pton(AF_INET6 if ":" in address else AF_INET, address)
        except (OSError, ValueError):
            packed = b""
        free = (len(packed) << 3) - length[0]
        if packed and free >= 0 and not int.from_bytes(packed, "big") & _HOST_BITS[free]:
            return Prefix(packed + length)
    # Rare spellings, and what is wrong in so many words.
    return pack(ip_network(spelled))


class Networks:
    """A set of networks; to find out what lies in one of them costs the number of lengths."""

    __slots__ = ("_sizes",)

    def __init__(self, prefixes: Iterable[Prefix]) -> None:
        sizes: dict[int, dict[int, set[int]]] = {}
        for prefix in prefixes:
            size = len(prefix) - 1
            value = int.from_bytes(prefix[:-1], "big") >> (size << 3) - prefix[-1]
            sizes.setdefault(size, {}).setdefault(prefix[-1], set()).add(value)
        self._sizes = {
            size: tuple((length, (size << 3) - length, lengths[length]) for length in lengths)
            for size, lengths in sizes.items()
        }

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def cover(self, prefix: Prefix) -> bool:
        """Whether a prefix is one of the networks or a part of one."""
        own = prefix[-1]
        value = -1
        for length, shift, networks in self._sizes.get(len(prefix) - 1, ()):
            if length <= own:
                if value < 0:
                    value = int.from_bytes(prefix[:-1], "big")
                if value >> shift in networks:
                    return True
        return False

    def hold(self, address: bytes) -> bool:
        """Whether an address of 4 or 16 bytes lies in one of the networks."""
        value = int.from_bytes(address, "big")
        return any(
            value >> shift in networks for _, shift, networks in self._sizes.get(len(address), ())
        )
