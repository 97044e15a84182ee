"""The rows of the simulated kernel's tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network


@dataclass
class Link:
    """A link. `oper`: the operational state that the kernel's worker last wrote."""

    index: int
    name: str
    mac: str
    mtu: int
    conf: dict[str, int] = field(default_factory=dict)
    up: bool = False
    peer_up: bool = False
    peer_index: int = 0
    kind: str = "veth"
    loopback: bool = False
    oper: int = 0
    had_carrier: bool = False
    leaving: bool = False
    alias: str = ""

    @property
    def carrier(self) -> bool:
        """Whether both ends are up."""
        return self.up and (self.had_carrier or self.loopback)

    @property
    def operstate(self) -> int:
        """As told: down (2) where it is not up at all."""
        return self.oper if self.up else 2

    @property
    def running(self) -> bool:
        """As told."""
        return self.up and self.oper in (0, 6)


@dataclass(frozen=True)
class Addr:
    """An address on a link."""

    index: int
    interface: IPv4Interface
    label: str


@dataclass(frozen=True)
class Route:
    """A route with at most one next hop."""

    dst: IPv4Network
    oif: int
    gateway: IPv4Address | None
    type: int
    table: int
    protocol: int
    scope: int
    metric: int
    prefsrc: IPv4Address | None = None

    @property
    def key(self) -> tuple[int, IPv4Network, int]:
        """Two routes of one key are one to `ip route replace`."""
        return self.table, self.dst, self.metric

    def by(self, oif: int) -> Route:
        """The same by another link."""
        return replace(self, oif=oif)


@dataclass(frozen=True)
class Neigh:
    """A neighbour entry."""

    index: int
    address: IPv4Address
    mac: str
    state: int
