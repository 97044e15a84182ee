"""Which machines a lab has and how they are cabled: pure data, computed once from a few choices.

       rack 1: 10.99.1.0/24        rack 2: 10.99.2.0/24       management: 10.99.0.0/24
       node1   node2               node3 ...                  etcd 10.99.0.1:2379
         |       |                   |                          |
         +--r1---+-----(.254) router (.254)--r2--+     (.254)--mgmt
                        BIRD, AS 64500

`flat` puts every node in rack 1; the router stays. In `tors` each rack has a router of its own,
tor1 and tor2 (AS 64501, 64502), which meet `router` on 10.99.9.0/24, and node N is AS 64600+N. In
`dual` every node has two cables, eth0 to tor1 and eth1 to tor2, and both default routes.
`loopbacks` is `tors` whose nodes are known by an address on their loopback interface, 10.99.250.N,
to which their router alone knows the way.
`reflectors` are further machines with BIRD on the management network, where no packet of a pod
passes. Node N has the address 10.99.R.N in its rack R (and fd99:0:0:R::N). All addresses
live in namespaces, so two labs may use the same ones.

Invariant LAB-3: the underlay lies outside every pool that a document of the project names.
Tested in tests/lab/test_topology.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

from lab.errors import LabError

ROUTER = "router"
ETCD = "etcd"
ROUTER_AS = 64500
NODE_AS = 64512
AS_OF_FIRST_NODE = 64601
ROUTER_HOST = 254
FIRST_REFLECTOR_HOST = 11
MOST_REFLECTORS = 9
MOST_NODES = 200
TOPOLOGIES = ("racks", "flat", "tors", "dual", "loopbacks")
LOOPBACKS = 250
"""The third number of the addresses that nodes have on their loopback interfaces, on no link."""
NODES_IN_FIRST_RACK = 2
_BRIDGES = {0: "mgmt", 9: "fabric"}


@dataclass(frozen=True)
class Segment:
    """One L2 network: a bridge in a router's namespace."""

    number: int

    @property
    def bridge(self) -> str:
        """Name of the bridge; the router's address lies on it."""
        return _BRIDGES.get(self.number, f"rack{self.number}")

    def host(self, number: int) -> IPv4Interface:
        """Address of a machine on this segment."""
        return IPv4Interface(f"10.99.{self.number}.{number}/24")

    def host6(self, number: int) -> IPv6Interface:
        """IPv6 address of a machine on this segment."""
        return IPv6Interface(f"fd99:0:0:{self.number}::{number}/64")

    def address(self, number: int, version: int) -> IPv4Address | IPv6Address:
        """The address of a machine on this segment, of a family."""
        return self.host(number).ip if version == 4 else self.host6(number).ip

    @property
    def gateway(self) -> IPv4Address:
        """The router's address."""
        return self.host(ROUTER_HOST).ip


MANAGEMENT = Segment(0)
FABRIC = Segment(9)


@dataclass(frozen=True)
class Host:
    """A machine with an interface `eth0` on one segment, and `eth1` on a second, if there is one.

    `as_number` is its AS as a BGP speaker. `loopback`: it is known by an address on no link.
    """

    name: str
    segment: Segment
    number: int
    second: Segment | None = None
    as_number: int = NODE_AS
    loopback: IPv4Interface | None = None

    @property
    def address(self) -> IPv4Interface:
        """IPv4 address and prefix of eth0."""
        return self.segment.host(self.number)

    @property
    def address6(self) -> IPv6Interface:
        """IPv6 address and prefix of eth0."""
        return self.segment.host6(self.number)

    @property
    def cables(self) -> tuple[tuple[str, Segment], ...]:
        """Its interfaces, each with the segment it hangs on."""
        first = ("eth0", self.segment)
        return (first,) if self.second is None else (first, ("eth1", self.second))

    @property
    def port(self) -> str:
        """The router's end of this machine's cable."""
        return f"to-{self.name}"


@dataclass(frozen=True)
class Switch:
    """A router with BIRD: the bridges that it has, and its AS."""

    name: str
    as_number: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Plan:
    """Everything about a lab that does not change while it is up.

    `ipv6_only`: no machine has an IPv4 address but its loopback's.
    """

    topology: str
    nodes: tuple[Host, ...]
    tls: bool = False
    reflectors: tuple[Host, ...] = ()
    ipv6_only: bool = False

    @property
    def etcd(self) -> Host:
        """The datastore's machine."""
        return Host(ETCD, MANAGEMENT, 1)

    @property
    def racks(self) -> tuple[Segment, ...]:
        """The segments that nodes are on."""
        racks = {segment.number for node in self.nodes for _, segment in node.cables}
        return tuple(Segment(number) for number in sorted(racks))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of them, by switch."""
        return tuple(segment for switch in self.switches for segment in switch.segments)

    @property
    def tors(self) -> tuple[Host, ...]:
        """The routers of racks, as the fabric between them sees them."""
        if self.topology not in ("tors", "dual", "loopbacks"):
            return ()
        return tuple(
            Host(f"tor{r.number}", FABRIC, r.number, as_number=ROUTER_AS + r.number)
            for r in self.racks
        )

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The routers: `router` has what no other has."""
        if not self.tors:
            return (Switch(ROUTER, ROUTER_AS, (MANAGEMENT, *self.racks)),)
        own = (
            Switch(tor.name, tor.as_number, (rack,))
            for tor, rack in zip(self.tors, self.racks, strict=True)
        )
        return (Switch(ROUTER, ROUTER_AS, (MANAGEMENT, FABRIC)), *own)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All machines that hang on a router."""
        return (self.etcd, *self.tors, *self.reflectors, *self.nodes)

    @property
    def machines(self) -> tuple[str, ...]:
        """All machines by name."""
        return (ROUTER, *(host.name for host in self.hosts))

    @property
    def versions(self) -> tuple[int, ...]:
        """The families of the underlay."""
        return (6,) if self.ipv6_only else (4, 6)

    @property
    def peering_version(self) -> int:
        """The family that BIRD speaks BGP over."""
        return 6 if self.ipv6_only else 4

    @property
    def etcd_endpoint(self) -> str:
        """URL of the datastore, reachable from every node through the router."""
        address = f"[{self.etcd.address6.ip}]" if self.ipv6_only else str(self.etcd.address.ip)
        return f"{'https' if self.tls else 'http'}://{address}:2379"

    def node(self, name: str) -> Host:
        """The node called `name`; LabError naming what exists."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"no node {name!r}; there are {', '.join(n.name for n in self.nodes)}")

    def switch_of(self, segment: Segment) -> Switch:
        """The router that has a segment."""
        return next(switch for switch in self.switches if segment in switch.segments)


def plan(
    nodes: int,
    topology: str,
    *,
    tls: bool = False,
    reflectors: int = 0,
    ipv6_only: bool = False,
) -> Plan:
    """Lay out `nodes` nodes, etcd with certificates if `tls`; LabError when it cannot be."""
    if topology not in TOPOLOGIES:
        raise LabError(f"topology {topology!r}: allowed are {', '.join(TOPOLOGIES)}")
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"nodes {nodes}: allowed are 1 to {MOST_NODES}")
    if not 0 <= reflectors <= MOST_REFLECTORS:
        raise LabError(f"reflectors {reflectors}: allowed are 0 to {MOST_REFLECTORS}")
    if tls and ipv6_only:
        raise LabError("tls without IPv4: the lab's certificates name IPv4 addresses only")
    hosts = []
    for number in range(1, nodes + 1):
        first = topology in ("flat", "dual") or number <= NODES_IN_FIRST_RACK
        hosts.append(
            Host(
                f"node{number}",
                Segment(1 if first else 2),
                number,
                Segment(2) if topology == "dual" else None,
                AS_OF_FIRST_NODE - 1 + number if topology in ("tors", "loopbacks") else NODE_AS,
                IPv4Interface(f"10.99.{LOOPBACKS}.{number}") if topology == "loopbacks" else None,
            )
        )
    further = (
        Host(f"reflector{number + 1}", MANAGEMENT, FIRST_REFLECTOR_HOST + number)
        for number in range(reflectors)
    )
    return Plan(topology, tuple(hosts), tls, tuple(further), ipv6_only)
