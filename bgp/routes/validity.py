"""Which learned prefixes are believed, from whom. Pure: facts and a path in, a reason out.

A node of the cluster may announce what the datastore says is its own (confirmed blocks,
single addresses of it, tunnel addresses among them) and addresses of services in configured
ranges, unless a node has them; a reflector what its nodes may, with their next hop. A configured
external peer may send a default route and other nodes' addresses: the operator named it. No peer
may attract traffic of this node's own or borrowed addresses, or link-local traffic.

What an external peer sends seldom on purpose needs a BGPFilter that accepts it (`doubt`): the
broadcast address, reserved addresses outside the pools, and host routes to neighbours. 10.0.0.2
is a neighbour where it is another node's, or the datastore's, and this node is in 10.0.0.0/24:
the link is the way to it. Where nodes are reached by 10.98.0.2 on their loopback interfaces, which
is on no link, the router's host routes are the only way.

  VAL-1  No path from a node of the cluster is a default route.
  VAL-2  No accepted path lies inside an own block, unless it is an address lent to another node.
  VAL-3  No path leads to this node itself.
felix checks pools and own addresses once more (`felix.calc.learned_routes`).
Tested in tests/bgp/test_validity.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from bgp.cluster.view import ClusterView
from bgp.routes.bestpath import Candidate
from bgp.routes.prefix_search import lies_in
from bgp.speaker.interface import IPAddress, IPNetwork

_NEVER = (
    (ip_network("169.254.0.0/16"), "link-local"),
    (ip_network("fe80::/10"), "link-local"),
    (ip_network("127.0.0.0/8"), "loopback"),
    (ip_network("::1/128"), "loopback"),
    (ip_network("224.0.0.0/4"), "multicast"),
    (ip_network("ff00::/8"), "multicast"),
)
_BROADCAST = ip_network("255.255.255.255/32")
_RESERVED = ip_network("240.0.0.0/4")
"""RFC 1112 section 4, RFC 8190; some networks use it, and then for pods, too."""


@dataclass(frozen=True)
class Facts:
    """The inputs of the acceptance of paths.

    `view` counts for its owners and affinities, which change in place; the rest is compared.
    `reflectors`: the nodes that reflect; if there are some, `addresses` are those of all nodes.
    `pools`: disabled ones too, whose pods run on. `neighbours`: see `neighbours_of`.
    """

    view: ClusterView
    services: tuple[IPNetwork, ...]
    reflectors: frozenset[str]
    own: frozenset[IPAddress]
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)
    pools: tuple[IPNetwork, ...] = ()
    neighbours: Mapping[IPAddress, str] = field(default_factory=dict)


def refusal(prefix: IPNetwork, path: Candidate, facts: Facts) -> str:
    """Why a path is not believed; empty if it is."""
    for network, word in _NEVER:
        if lies_in(prefix, network):
            return f"it is {word}"
    single = prefix.prefixlen == prefix.max_prefixlen
    if single and prefix.network_address in facts.own:
        return "it is an address of this node"
    if path.next_hop in facts.own:
        return "its next hop is this node"
    me = facts.view.me
    owners = facts.view.ownership.owners(prefix)
    if me in owners and (len(owners) == 1 or _in_own(prefix, facts)):
        return "it is an address of this node's, or lies inside a block of this node"
    if not path.source.in_cluster:
        return ""
    if prefix.prefixlen == 0:
        return "a node of the cluster may not announce a default route"
    if not owners and any(lies_in(prefix, network) for network in facts.services):
        return ""
    name = path.source.node
    if name in owners:
        return ""
    if owners and name in facts.reflectors and _next_hop_owns(path, owners | {name}, facts):
        return ""
    if not owners:
        return f"the datastore gives it to no node, so not to {name}"
    return f"the datastore gives it to {', '.join(sorted(owners))}, not to {name}"


def doubt(prefix: IPNetwork, path: Candidate, facts: Facts | None) -> str:
    """Why a path needs a BGPFilter that accepts it; empty if it does not.

    Without facts (the datastore has not spoken since the start) what stands in the kernel by
    earlier facts is not given up: only what no fact can change is doubted.
    """
    if path.source.in_cluster:
        return ""
    if prefix == _BROADCAST:
        return "it is the broadcast address"
    if facts is None:
        return ""
    if lies_in(prefix, _RESERVED) and not any(lies_in(prefix, pool) for pool in facts.pools):
        return f"it lies in {_RESERVED}, which is reserved, and in no IPPool"
    address = prefix.network_address
    if prefix.prefixlen == prefix.max_prefixlen and address in facts.neighbours:
        name = facts.neighbours[address]
        return f"it is the address of {name}, on a connected network of this node"
    return ""


def neighbours_of(
    view: ClusterView, connected: Collection[IPNetwork], datastore: Collection[IPAddress]
) -> dict[IPAddress, str]:
    """The addresses of other nodes, and the datastore's, on a connected network: whose they are."""
    known = dict.fromkeys(datastore, "the datastore")
    for name in sorted(view.nodes.keys() - {view.me}, reverse=True):
        known.update(dict.fromkeys(view.nodes[name].addresses, f"node {name}"))
    return {
        address: whose
        for address, whose in known.items()
        if any(address in network for network in connected)
    }


def _in_own(prefix: IPNetwork, facts: Facts) -> bool:
    return any(
        lies_in(prefix, cidr)
        for cidr, state in facts.view.affinities.items()
        if state == "confirmed"
    )


def _next_hop_owns(path: Candidate, names: Collection[str], facts: Facts) -> bool:
    """Whether the next hop is one of these nodes (RFC 4456: a reflector keeps it)."""
    return any(path.next_hop in facts.addresses.get(name, ()) for name in names)
