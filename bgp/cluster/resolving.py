"""Whether the kernel has a way to a next hop: a route whose next hop cannot be resolved is not
used (RFC 4271 9.1.2.1).

The kernel knows more ways than felix tells of (static routes, a default route, other tables), so
the kernel itself is asked, as a connect(2) would ask it: no packet leaves, no right is needed.
A peer whose session is up needs no asking.

  NXH-1  A next hop counts as unresolved only after two looks in a row: an address that a DHCP
         client renews, or a default route that is written anew, moves no route.
  NXH-2  It counts as resolved from the first look that finds a way. What cannot be asked does.
Tested in tests/bgp/test_resolving.py.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping

from bgp.speaker.interface import IPAddress

LOOKS = 2
PAUSE = 2.0
"""Seconds between two looks, and one more for so many next hops:"""
HOPS_A_SECOND = 500
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL})
"""No route; a route of type unreachable; one of type blackhole (ip-route(8))."""
_DISCARD = 9


def kernel_way(address: IPAddress) -> bool:
    """Whether the kernel of this network namespace would send packets to this address."""
    if address.is_link_local:
        return True  # the interface is missing that would make it a question
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect((str(address), _DISCARD))
    except OSError as error:
        return error.errno not in _NO_WAY
    return True


def unresolved(hops: Iterable[IPAddress], paths: Mapping[IPAddress, int]) -> list[tuple[str, str]]:
    """Conditions for an operator: next hops that cannot be reached, and their paths."""
    return [
        (
            f"BGP next hop {hop}",
            f"the kernel has no way to it: {paths[hop]} paths are not used (RFC 4271 9.1.2.1)",
        )
        for hop in sorted(hops, key=str)
        if hop in paths
    ]


class Resolver:
    """Remembers which next hops have had no way for long enough."""

    def __init__(self, way: Callable[[IPAddress], bool] = kernel_way) -> None:
        self._way = way
        self._misses: dict[IPAddress, int] = {}
        self.unresolved: frozenset[IPAddress] = frozenset()

    def look(self, hops: Iterable[IPAddress]) -> bool:
        """Ask for these next hops, and forget all others; returns whether `unresolved` changed."""
        self._misses = {hop: self._misses.get(hop, 0) + 1 for hop in hops if not self._way(hop)}
        before = self.unresolved
        self.unresolved = frozenset(hop for hop, count in self._misses.items() if count >= LOOKS)
        return self.unresolved != before
