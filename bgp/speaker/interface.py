"""What the agent needs from a BGP speaker: `configure`, `announce`, and a stream of events.

A speaker holds TCP sessions, negotiates, and moves routes over them. It decides nothing:
which peers there are, which routes are offered to whom and which path is best is decided
by pure code above it. Both methods are declarative: each call names the whole desired
state, and the speaker finds the difference.

Invariants (tests/bgp/test_speaker_contract.py runs them against every speaker):
  SPK-1  `configure` never disturbs the session of a peer whose definition did not change.
  SPK-2  On every `PeerUp` the speaker offers all announced routes of that peer, then sends
         End-of-RIB for each of its families: at once, or when `withhold` lets it.
  SPK-3  Events of one peer arrive in order: `PeerUp`, routes and End-of-RIB, `PeerDown`.
         There is one `PeerDown` for each `PeerUp`.
  SPK-4  When the speaker itself dies, its sessions end without NOTIFICATION and
         `SpeakerDown` comes in place of a `PeerDown` of each peer.
  SPK-5  Stopping a speaker sends no CEASE: peers keep our routes for the restart time.
  SPK-6  A session is by the definition that its `PeerUp` names, until an event ends it. A change
         that is undone before it was applied ends none.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Protocol

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

BGP_PORT = 179
DEFAULT_HOLD_TIME = 90
DEFAULT_RESTART_TIME = 120
DEFAULT_MAX_PREFIXES = 200_000
"""Paths taken of one peer: a cluster of 3,000 nodes with 16 blocks each, four times over."""


class Family(enum.Enum):
    """An address family that a session carries; the value is its usual spelling."""

    IPV4 = "ipv4 unicast"
    IPV6 = "ipv6 unicast"

    @staticmethod
    def of(what: IPAddress | IPNetwork) -> Family:
        return Family.IPV4 if what.version == 4 else Family.IPV6


@dataclass(frozen=True, slots=True)
class Peer:
    """One session to hold. Times are seconds.

    `passive`: never dial. `ttl_security`: hops allowed by GTSM (RFC 5082), 0 is off; off
    means any number of hops. `port` is where the peer listens, `listen_port` where we do.
    `keepalive` 0 is a third of the negotiated hold time. `max_prefixes` 0 is no limit; a peer
    that offers more paths loses its session (CEASE 6/1, RFC 4486), and gets another try after
    a pause that grows. `any_source`: the kernel chooses the source address when we dial, not
    `local_address`. `listen_any`: on every address of this host, not on `local_address` alone.
    `add_path`: take several paths for a prefix (RFC 7911).
    """

    address: IPAddress
    remote_as: int
    local_address: IPAddress
    local_as: int
    router_id: IPv4Address
    families: tuple[Family, ...]
    passive: bool = False
    port: int = BGP_PORT
    listen_port: int = BGP_PORT
    hold_time: int = DEFAULT_HOLD_TIME
    restart_time: int = DEFAULT_RESTART_TIME
    keepalive: int = 0
    ttl_security: int = 0
    max_prefixes: int = DEFAULT_MAX_PREFIXES
    any_source: bool = False
    listen_any: bool = False
    add_path: bool = True
    password: str = field(default="", repr=False)

    @property
    def internal(self) -> bool:
        """An iBGP session."""
        return self.remote_as == self.local_as


class Origin(enum.IntEnum):
    """The ORIGIN attribute; smaller is preferred (RFC 4271 9.1.2.2 b)."""

    IGP = 0
    EGP = 1
    INCOMPLETE = 2


@dataclass(frozen=True, slots=True)
class Route:
    """One route to offer. `next_hop` None means ourselves.

    `peers` limits it to sessions with these addresses; None offers it to every peer that
    carries its family. No two routes offer the same prefix to the same peer. `as_path` is the
    path without our own AS number, which the speaker puts in front of it towards an external
    peer (RFC 4271 5.1.2); it never sends `local_pref` to one (5.1.5). An extended community
    is 8 octets in hexadecimal, `0x0002fc0000000001`. `originator_id` and `cluster_list` are
    sent as they are (RFC 4456): a reflector puts its own identifier in front.
    """

    prefix: IPNetwork
    next_hop: IPAddress | None = None
    peers: frozenset[IPAddress] | None = None
    local_pref: int | None = None
    med: int | None = None
    communities: tuple[str, ...] = ()
    large_communities: tuple[str, ...] = ()
    as_path: tuple[int, ...] = ()
    origin: Origin = Origin.IGP
    extended_communities: tuple[str, ...] = ()
    originator_id: IPv4Address | None = None
    cluster_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attributes:
    """Path attributes that the decision process reads.

    `as_path` is the flat list of AS numbers for loop checks, `as_path_length` the length
    by RFC 4271 (a set counts one, confederation segments none).
    """

    origin: Origin = Origin.IGP
    as_path: tuple[int, ...] = ()
    as_path_length: int = 0
    local_pref: int | None = None
    med: int | None = None
    originator_id: IPv4Address | None = None
    cluster_list: tuple[str, ...] = ()
    communities: tuple[str, ...] = ()
    large_communities: tuple[str, ...] = ()
    extended_communities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Announced:
    """A path that a peer offers; `path_id` is 0 without ADD-PATH."""

    prefix: IPNetwork
    next_hop: IPAddress
    path_id: int = 0


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A path that a peer takes back."""

    prefix: IPNetwork
    path_id: int = 0


class DownReason(enum.Enum):
    """Why a session ended: graceful restart depends on it (RFC 4724 section 4.2)."""

    CLOSED = "closed"
    NOTIFICATION_RECEIVED = "notification received"
    NOTIFICATION_SENT = "notification sent"
    LIMIT = "prefix limit"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class PeerOpen:
    """The peer's OPEN. `restart_time` None: no graceful-restart capability.

    `restart_families` are those it lists in the capability, `forwarding` those whose
    forwarding-state bit it sets. `route_refresh`: it repeats its paths when asked (RFC 2918).
    `families` are those it carries (RFC 4760), `add_path` those it sends several paths of.
    """

    peer: IPAddress
    asn: int
    router_id: IPv4Address | None
    hold_time: int
    restart_time: int | None
    restart_families: frozenset[Family] = frozenset()
    forwarding: frozenset[Family] = frozenset()
    route_refresh: bool = False
    families: frozenset[Family] = frozenset()
    add_path: frozenset[Family] = frozenset()
    four_octet_as: bool = False


@dataclass(frozen=True, slots=True)
class PeerUp:
    """The session is Established, by this definition."""

    peer: IPAddress
    definition: Peer


@dataclass(frozen=True, slots=True)
class PeerDown:
    """An Established session ended; `detail` is the speaker's own words."""

    peer: IPAddress
    reason: DownReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """A session that is not Established made or lost ground: for people, not decisions."""

    peer: IPAddress
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PathsReceived:
    """One UPDATE: withdrawals apply before announcements."""

    peer: IPAddress
    attributes: Attributes
    announced: tuple[Announced, ...] = ()
    withdrawn: tuple[Withdrawn, ...] = ()


@dataclass(frozen=True, slots=True)
class EndOfRib:
    """The peer has sent all it has for the family."""

    peer: IPAddress
    family: Family


@dataclass(frozen=True, slots=True)
class SpeakerUp:
    """The speaker (re)started; every session starts from nothing."""


@dataclass(frozen=True, slots=True)
class SpeakerDown:
    """The speaker died with all its sessions; it comes back by itself.

    `attempts` counts the starts in a row that did not settle; `Speaker.conditions` names a
    speaker that stays dead. `idle`: it was ended on purpose, as there is no session to hold now.
    """

    detail: str = ""
    attempts: int = 0
    idle: bool = False


@dataclass(frozen=True, slots=True)
class SpeakerFailed:
    """A fault of ours that the speaker cannot mend: the agent should exit and be restarted."""


Event = (
    PeerOpen
    | PeerUp
    | PeerDown
    | PeerProgress
    | PathsReceived
    | EndOfRib
    | SpeakerUp
    | SpeakerDown
    | SpeakerFailed
)


class Speaker(Protocol):
    """A BGP speaker. Neither method waits for the network."""

    async def configure(self, peers: Collection[Peer]) -> None:
        """Hold sessions with exactly these peers. No peers: nothing listens, nothing runs."""

    async def announce(self, routes: Collection[Route]) -> None:
        """Offer exactly these routes."""

    def withhold(self, withheld: bool) -> None:
        """Whether End-of-RIB waits: what is offered is not all yet (RFC 4724 4.1). At first: no.

        False sends it, behind all that was announced, to the sessions that lack it.
        """

    def events(self) -> AsyncIterator[Event]:
        """The events, in order, for one reader."""

    def conditions(self) -> list[tuple[str, str]]:
        """Conditions for an operator: (object, reason)."""

    async def close(self) -> None:
        """End the sessions without NOTIFICATION and give everything back (SPK-5)."""
