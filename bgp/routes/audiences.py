"""Sessions that are told alike: how a session is served, and which ones share that.

Tested in tests/bgp/test_export_policy.py.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from bgp.speaker.interface import Family, IPAddress


class NextHop(enum.Enum):
    """`nextHopMode`. Auto: kept inside the AS, ourselves towards external peers.

    The older `keepOriginalNextHop` keeps it towards external peers as well.
    """

    AUTO = "Auto"
    SELF = "Self"
    KEEP = "Keep"
    KEEP_EXTERNAL = "keepOriginalNextHop"


@dataclass(frozen=True, slots=True)
class Manner:
    """The properties of a session that its announcements depend on."""

    families: tuple[Family, ...]
    internal: bool
    client: bool = False
    filters: tuple[str, ...] = ()
    next_hop: NextHop = NextHop.AUTO


@dataclass(frozen=True, slots=True)
class Audience:
    """Sessions that get the same announcements."""

    manner: Manner
    peers: frozenset[IPAddress]


def audiences(sessions: Iterable[tuple[IPAddress, Manner]]) -> tuple[Audience, ...]:
    """Sessions grouped by their manner."""
    groups: dict[Manner, set[IPAddress]] = {}
    for address, manner in sessions:
        groups.setdefault(manner, set()).add(address)
    return tuple(Audience(manner, frozenset(peers)) for manner, peers in groups.items())
