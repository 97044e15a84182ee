"""What the calculation knows of pools, nodes and services, as one value that does not change.

Tested in tests/felix/calc/test_graph.py and test_pools.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from felix.calc.nodes import UNKNOWN, NodeFacts
from felix.calc.pools import Pool, members

IPNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster as one node sees it.

    `node`: this node's name. `version`: grows when a pool or a node changes, or a block without a
    pool. `routed`: where pods may have addresses, which is all pools and the nodes' blocks in none
    (PLR-1). `service_nets`: what BGP advertises for services.
    """

    node: str
    version: int = 0
    pools: Mapping[str, Pool] = field(default_factory=dict)
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    routed: frozenset[IPNetwork] = frozenset()
    service_nets: frozenset[IPNetwork] = frozenset()

    @property
    def me(self) -> NodeFacts:
        """This node; without any address where the datastore has no such Node."""
        return self.nodes.get(self.node, UNKNOWN)

    def pool_members(self, version: int) -> frozenset[str]:
        """Members of the set of all pools: wherever pods may have addresses."""
        return members(version, self.routed)

    def masqueraded_members(self, version: int) -> frozenset[str]:
        """Members of the set of pools with `natOutgoing`."""
        pools = self.pools.values()
        return members(version, (pool.network for pool in pools if pool.nat_outgoing))

    def host_members(self, version: int) -> frozenset[str]:
        """Members of the set of all nodes' addresses."""
        return members(version, (a for node in self.nodes.values() for a in node.addresses))

    def vtep_members(self, version: int) -> frozenset[str]:
        """Members of the set of nodes that may send VXLAN to this node: all others.

        Not only those whose tunnel address is known here: they may know ours before.
        """
        others = (node for name, node in self.nodes.items() if name != self.node)
        return members(version, (address for node in others for address in node.addresses))
