"""Which machines a lab has and how they are cabled: pure data, computed once from a few choices.

       rack 1: 10.99.1.0/24        rack 2: 10.99.2.0/24       management: 10.99.0.0/24
       node1   node2               node3 ...                  etcd 10.99.0.1:2379
         |       |                   |                          |
         +--r1---+-----(.254) router (.254)--r2--+     (.254)--mgmt
                        BIRD, AS 64500

`flat` puts every node in rack 1; the router stays. Node N has the address 10.99.R.N in its rack R
(and fd99:0:0:R::N). LAB-3: the underlay lies outside every pool that a document of the project
names. All addresses live in namespaces, so two labs may use the same ones.
Tested in tests/lab/test_topology.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Interface

from lab.errors import LabError

ROUTER = "router"
ETCD = "etcd"
ROUTER_AS = 64500
NODE_AS = 64512
ROUTER_HOST = 254
MOST_NODES = 200
TOPOLOGIES = ("racks", "flat")
NODES_IN_FIRST_RACK = 2


@dataclass(frozen=True)
class Segment:
    """One L2 network: a bridge in the router's namespace."""

    number: int

    @property
    def bridge(self) -> str:
        """Name of the bridge; the router's address lies on it."""
        return "mgmt" if self.number == 0 else f"rack{self.number}"

    def host(self, number: int) -> IPv4Interface:
        """Address of a machine on this segment."""
        return IPv4Interface(f"10.99.{self.number}.{number}/24")

    def host6(self, number: int) -> IPv6Interface:
        """IPv6 address of a machine on this segment."""
        return IPv6Interface(f"fd99:0:0:{self.number}::{number}/64")

    @property
    def gateway(self) -> IPv4Address:
        """The router's address."""
        return self.host(ROUTER_HOST).ip


MANAGEMENT = Segment(0)


@dataclass(frozen=True)
class Host:
    """A machine with one interface `eth0` on one segment."""

    name: str
    segment: Segment
    number: int

    @property
    def address(self) -> IPv4Interface:
        """IPv4 address and prefix of eth0."""
        return self.segment.host(self.number)

    @property
    def address6(self) -> IPv6Interface:
        """IPv6 address and prefix of eth0."""
        return self.segment.host6(self.number)

    @property
    def port(self) -> str:
        """The router's end of this machine's cable."""
        return f"to-{self.name}"


@dataclass(frozen=True)
class Plan:
    """Everything about a lab that does not change while it is up."""

    topology: str
    nodes: tuple[Host, ...]
    tls: bool = False

    @property
    def etcd(self) -> Host:
        """The datastore's machine."""
        return Host(ETCD, MANAGEMENT, 1)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Management first, then the racks in use."""
        racks = sorted({node.segment.number for node in self.nodes})
        return (MANAGEMENT, *(Segment(number) for number in racks))

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All machines that hang on the router."""
        return (self.etcd, *self.nodes)

    @property
    def etcd_endpoint(self) -> str:
        """URL of the datastore, reachable from every node through the router."""
        return f"{'https' if self.tls else 'http'}://{self.etcd.address.ip}:2379"

    def node(self, name: str) -> Host:
        """The node called `name`; LabError naming what exists."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"no node {name!r}; there are {', '.join(n.name for n in self.nodes)}")


def plan(nodes: int, topology: str, *, tls: bool = False) -> Plan:
    """Lay out `nodes` nodes, etcd with certificates if `tls`; LabError when it cannot be."""
    if topology not in TOPOLOGIES:
        raise LabError(f"topology {topology!r}: allowed are {', '.join(TOPOLOGIES)}")
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"nodes {nodes}: allowed are 1 to {MOST_NODES}")
    hosts = []
    for number in range(1, nodes + 1):
        rack = 1 if topology == "flat" or number <= NODES_IN_FIRST_RACK else 2
        hosts.append(Host(f"node{number}", Segment(rack), number))
    return Plan(topology, tuple(hosts), tls)
