"""Whether a route fits into one UPDATE: 4096 octets with its header (RFC 4271 4.1, 4.3). Pure.

One that does not must not be advertised, and the speaker may say so (9.2). ExaBGP leaves it out
without a word, so it is decided here, before: the route is not offered, and a condition names it
(`bgp.decide.routing`). Filters and communities that are read from the datastore are checked one by
one where they are read; what they and a learned path make together is known only here.

Tested in tests/bgp/test_message_size.py.
"""

from __future__ import annotations

from bgp.speaker.interface import Route

ROOM = 4096 - 19 - 4
"""Octets of an UPDATE for attributes and one prefix."""
_FIXED = 4 + 7 + 7 + 7 + 7 + 60
"""ORIGIN, NEXT_HOP, MED, LOCAL_PREF, ORIGINATOR_ID, and MP_REACH_NLRI with a prefix of IPv6."""
_HEADER = 4
_SEGMENT = 255


def octets(route: Route) -> int:
    """How much an UPDATE for this route takes at most: written for a peer with AS numbers of two
    octets, which gets the path twice (RFC 6793), and with our own AS number in front."""
    hops = len(route.as_path) + 1
    return (
        _FIXED
        + 2 * _HEADER
        + 6 * hops
        + 4 * (hops // _SEGMENT + 1)
        + _list(route.communities, 4)
        + _list(route.large_communities, 12)
        + _list(route.extended_communities, 8)
        + _list(route.cluster_list, 4)
    )


def _list(values: tuple[str, ...], size: int) -> int:
    return _HEADER + size * len(values) if values else 0
