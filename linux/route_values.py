"""What a route is, as a value: a destination and a shape that many routes share.

Problem: a node holds tens of thousands of routes that differ in their destination alone. So a
`Route` is a packed prefix and a `Shape`, and there is one object of each shape: routes are
hashed and compared by the interpreter itself, and written and read by what they share.

ROUTE-3: two routes are equal exactly if their fields are.
The kernel's key of a route is (table, destination, metric): `Route.key`. Another metric is
another route. IPv6: metric 0 means 1024; blackholes hang on the loopback device.
Tested in tests/linux/test_route_values.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Literal
from weakref import WeakValueDictionary

from linux.prefixes import Prefix, pack, unpack
from linux.rtnl import IPAddress, IPNetwork

RouteType = Literal[
    "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable",
    "prohibit", "throw", "other",
]  # fmt: skip
HOPLESS = frozenset({"blackhole", "unreachable", "prohibit", "throw"})
"""Types without next hops."""

TABLE_MAIN = 254
PROTOCOL_KERNEL, PROTOCOL_BOOT = 2, 3
SCOPE_UNIVERSE, SCOPE_LINK, SCOPE_NOWHERE = 0, 253, 255

_IPV6_METRIC = 1024
RouteKey = tuple[int, Prefix, int]
"""(table, prefix, metric)."""


@dataclass(frozen=True, slots=True, order=False)
class NextHop:
    """One way out: `gateway` (None: the destination is on the link) through link `oif`.

    `onlink`: take the gateway as reachable though no route says so. `weight` 1 to 256. The
    gateway may be of the other family (IPv4 via IPv6).
    """

    gateway: IPAddress | None
    oif: int
    onlink: bool = False
    weight: int = 1

    def _order(self) -> tuple[bytes, int, bool, int]:
        return (self.gateway.packed if self.gateway else b"", self.oif, self.onlink, self.weight)


class Shape:
    """All of a route but its destination; `Route` says what the fields mean.

    Routes by one router differ in their destination alone. There is one object of each shape
    (`Shape.of`), so routes are compared without looking inside (ROUTE-3).
    """

    __slots__ = (
        "__weakref__", "fields", "metric", "mtu", "next_hops", "oif", "prefsrc", "protocol",
        "scope", "table", "tail", "type", "version",
    )  # fmt: skip

    fields: ShapeFields
    version: int
    next_hops: tuple[NextHop, ...]
    type: RouteType
    table: int
    protocol: int
    scope: int | None
    metric: int
    prefsrc: IPAddress | None
    mtu: int
    oif: int
    tail: bytes | None
    """The attributes behind the destination's, once such a route was written."""

    @staticmethod
    def of(
        version: int,
        next_hops: tuple[NextHop, ...] = (),
        type: RouteType = "unicast",
        table: int = TABLE_MAIN,
        protocol: int = PROTOCOL_BOOT,
        scope: int | None = None,
        metric: int = 0,
        prefsrc: IPAddress | None = None,
        mtu: int = 0,
    ) -> Shape:
        """The shape of these fields, in the form in which the kernel reads it back (ROUTE-1)."""
        hops = () if type in HOPLESS else tuple(sorted(next_hops, key=NextHop._order))
        if len(hops) == 1 and hops[0].weight != 1:
            hops = (NextHop(hops[0].gateway, hops[0].oif, hops[0].onlink),)
        if version == 6:
            metric, scope = metric or _IPV6_METRIC, SCOPE_UNIVERSE
        elif scope is None:
            direct = type == "unicast" and all(hop.gateway is None for hop in hops)
            scope = SCOPE_LINK if direct else SCOPE_UNIVERSE
        fields = (version, hops, type, table, protocol, scope, metric, prefsrc, mtu)
        with _SHAPES_LOCK:
            shape = _SHAPES.get(fields)
            if shape is None:
                shape = _SHAPES[fields] = Shape()
                shape.fields = fields
                shape.version, shape.next_hops, shape.type, shape.table = fields[:4]
                shape.protocol, shape.scope, shape.metric = fields[4:7]
                shape.prefsrc, shape.mtu = fields[7:]
                shape.oif = hops[0].oif if hops else 0
                shape.tail = None
        return shape

    @property
    def direct(self) -> bool:
        """Whether it leads to one link, by no gateway."""
        hops = self.next_hops
        return self.type == "unicast" and len(hops) == 1 and hops[0].gateway is None


ShapeFields = tuple[
    int, tuple[NextHop, ...], RouteType, int, int, int | None, int, IPAddress | None, int
]
_SHAPES: WeakValueDictionary[ShapeFields, Shape] = WeakValueDictionary()
_SHAPES_LOCK = Lock()
"""Dumps run in threads of their own."""


class Route(tuple[Prefix, Shape]):
    """One route in the kernel's read-back form (ROUTE-1): a packed prefix and a shape.

    `next_hops` is empty for types without one; their order carries no meaning and is canonical.
    `scope` None means the usual: link for a route without gateway, universe otherwise.
    `mtu` 0 leaves it to the link. `metric` of IPv6: 0 becomes 1024.
    """

    __slots__ = ()

    def __new__(
        cls,
        dst: IPNetwork,
        next_hops: tuple[NextHop, ...] = (),
        type: RouteType = "unicast",
        table: int = TABLE_MAIN,
        protocol: int = PROTOCOL_BOOT,
        scope: int | None = None,
        metric: int = 0,
        prefsrc: IPAddress | None = None,
        mtu: int = 0,
    ) -> Route:
        """A route of ordinary values."""
        shape = Shape.of(dst.version, next_hops, type, table, protocol, scope, metric, prefsrc, mtu)
        return tuple.__new__(cls, (pack(dst), shape))

    @staticmethod
    def of(prefix: Prefix, shape: Shape) -> Route:
        """A route of a packed prefix and a shape of its family: the way that costs nothing."""
        return tuple.__new__(Route, (prefix, shape))

    def __repr__(self) -> str:
        _, hops, kind, *rest = self.shape.fields
        return f"Route({self.dst}, {hops}, {kind}, {', '.join(map(repr, rest))})"

    @property
    def prefix(self) -> Prefix:
        """The destination, packed."""
        return self[0]

    @property
    def shape(self) -> Shape:
        """The rest."""
        return self[1]

    @property
    def dst(self) -> IPNetwork:
        """The destination."""
        return unpack(self[0])

    @property
    def next_hops(self) -> tuple[NextHop, ...]:
        """The next hops, in canonical order."""
        return self[1].next_hops

    @property
    def type(self) -> RouteType:
        """What becomes of a packet."""
        return self[1].type

    @property
    def table(self) -> int:
        """The routing table."""
        return self[1].table

    @property
    def protocol(self) -> int:
        """The origin of the route (rtnetlink(7), rtm_protocol)."""
        return self[1].protocol

    @property
    def scope(self) -> int | None:
        """How far it reaches."""
        return self[1].scope

    @property
    def metric(self) -> int:
        """The smaller, the better."""
        return self[1].metric

    @property
    def prefsrc(self) -> IPAddress | None:
        """The source of what the host sends itself."""
        return self[1].prefsrc

    @property
    def mtu(self) -> int:
        """The largest packet, 0: the link's."""
        return self[1].mtu

    @property
    def key(self) -> RouteKey:
        """(table, prefix, metric): what makes it one route to the kernel."""
        prefix, shape = self
        return (shape.table, prefix, shape.metric)

    @property
    def oif(self) -> int:
        """The link of the first next hop, 0 without any."""
        return self[1].oif

    @property
    def gateway(self) -> IPAddress | None:
        """The gateway of the first next hop."""
        hops = self[1].next_hops
        return hops[0].gateway if hops else None
