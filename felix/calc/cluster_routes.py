"""Ways to the blocks and borrowed addresses of other nodes, as the datastore alone tells them.

A block's way leads to the node that owns it; an address of it that another node uses has a way
of its own (docs/reference/dataplane.md#route-calculation). So has the address of a node's tunnel,
wherever a tunnel leads there: no longer prefix of another node may lead to it unwrapped. What
changed is evaluated again, nothing else: a cluster has thousands of blocks, and one of them
changes.

Invariants:
  CLR-1  The ways depend on the objects only, not on the order in which they came.
  CLR-2  Nothing of this node's own has a way: neither its blocks nor addresses that it uses.
  CLR-3  No node takes an address of a block of this node by calling it its tunnel's: only what is
         borrowed is led away, which this node does not use (CLB-2).
Tested in tests/felix/calc/test_cluster_routes.py (hypothesis).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeVar

from felix.calc.blocks import BlockFacts
from felix.calc.nodes import UNKNOWN, NodeFacts
from felix.calc.pools import Pool
from felix.calc.tunnels import RemoteHop, TunnelSupport, way, way_without_pool

IPNetwork = IPv4Network | IPv6Network
Source = IPNetwork | str
"""The source of a claim to a network: a block, or a node by its name."""

_LARGEST_BLOCK = 12
"""The bits of an address in a block, at most: /20 in IPv4, /116 in IPv6 (IPPool.blockSize)."""
T = TypeVar("T")


class ClusterRoutes:
    """The ways of one node, over tables that the calculation keeps.

    Tell what changed by `block_changed`, `node_changed` and `pools_changed`; `settle` brings
    the ways up to date.
    """

    def __init__(
        self,
        node: str,
        blocks: Mapping[IPNetwork, BlockFacts],
        nodes: Mapping[str, NodeFacts],
        pools: Mapping[str, Pool],
    ) -> None:
        self._node, self._blocks, self._nodes, self._pools = node, blocks, nodes, pools
        self.ways: dict[IPNetwork, RemoteHop] = {}
        self.waiting: dict[IPNetwork, tuple[str, str]] = {}
        """Networks without a way: (node, why)."""
        self.refused: set[IPNetwork] = set()
        """Addresses of tunnels that CLR-3 forbids; `refused_version` grows when they change."""
        self.refused_version = 0
        self._mine: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._means = TunnelSupport()
        self._of_source: dict[Source, dict[IPNetwork, str]] = {}
        self._claims: dict[IPNetwork, dict[Source, str]] = defaultdict(dict)
        self._blocks_of: dict[str, set[IPNetwork]] = defaultdict(set)
        self._users: dict[IPNetwork, frozenset[str]] = {}
        self._dirty: set[IPNetwork] = set()
        self._dirty_nodes: set[str] = set()

    def around(self, network: IPNetwork) -> Iterator[IPNetwork]:
        """The networks of other nodes that are there, which hold all of this one; also those to
        which no way is known.
        """
        smallest = network.max_prefixlen - _LARGEST_BLOCK
        for length in range(network.prefixlen, smallest - 1, -1):
            each = network.supernet(new_prefix=length)
            if any(node in self._nodes for node in self._claims.get(each, {}).values()):
                yield each

    def block_changed(self, cidr: IPNetwork) -> None:
        """A block came, changed or went."""
        self._dirty.add(cidr)

    def node_changed(self, name: str) -> None:
        """A node came, changed or went; this one's network matters to all ways."""
        if name == self._node:
            self.pools_changed()
        self._dirty |= self._blocks_of[name]
        self._dirty_nodes.add(name)

    def pools_changed(self) -> None:
        """A pool came, changed or went."""
        self._dirty |= self._blocks.keys()
        self._dirty_nodes |= self._nodes.keys()

    @property
    def pending(self) -> bool:
        """Whether something waits for `settle`."""
        return bool(self._dirty or self._dirty_nodes)

    def settle(self, means: TunnelSupport, limit: int | None = None) -> set[IPNetwork]:
        """Bring the ways up to date, of so many blocks and nodes at most; returns the networks
        whose way differs now.
        """
        if means != self._means:
            self._means = means
            self.pools_changed()
        dirty = _pop(self._dirty, limit)
        nodes = _pop(self._dirty_nodes, None if limit is None else limit - len(dirty))
        touched: set[IPNetwork] = set()
        for cidr in dirty:
            facts = self._blocks.get(cidr)
            targets = dict(self._targets(cidr, facts)) if facts is not None else {}
            self._remember(cidr, frozenset(targets.values()))
            touched |= self._claim(cidr, targets)
            mine = facts is not None and facts.owner == f"host:{self._node}"
            touched.update(self._owns(cidr, mine))
        for name in nodes:
            touched |= self._claim(name, dict(self._tunnels(name)))
        return {network for network in touched if self._evaluate(network)}

    def _owns(self, cidr: IPNetwork, mine: bool) -> Iterable[IPNetwork]:
        """Whether a block is this node's; returns the networks that this concerns."""
        size = cidr.max_prefixlen - cidr.prefixlen
        blocks, number = self._mine[cidr.version, size], int(cidr.network_address) >> size
        if mine == (number in blocks):
            return ()
        blocks ^= {number}
        if cidr.num_addresses > len(self._claims):
            return [n for n in self._claims if n.version == cidr.version and n[0] in cidr]
        return [n for address in cidr if (n := ip_network(address)) in self._claims]

    def _is_own(self, network: IPNetwork) -> bool:
        """Whether a network begins in a block of this node."""
        number, version = int(network.network_address), network.version
        return any(
            number >> size in blocks
            for (each, size), blocks in self._mine.items()
            if each == version
        )

    def _claim(self, source: Source, targets: dict[IPNetwork, str]) -> set[IPNetwork]:
        """Record the networks that a block or a node claims for nodes; returns all that changed."""
        before = self._of_source.pop(source, {})
        for network in before.keys() - targets.keys():
            claims = self._claims[network]
            del claims[source]
            if not claims:
                del self._claims[network]
        for network, node in targets.items():
            self._claims[network][source] = node
        if targets:
            self._of_source[source] = targets
        return {*before, *targets}

    def _tunnels(self, name: str) -> Iterator[tuple[IPNetwork, str]]:
        """(network, node) of the addresses of a node's tunnels that a tunnel leads to."""
        facts = self._nodes.get(name)
        if facts is None or name == self._node:
            return
        for address in (facts.ipip, *(end.address for end in facts.vteps)):
            if address is not None:
                network = ip_network(address)
                pool = self._pool(network)
                if pool is not None and (pool.ipip or pool.vxlan):
                    yield network, name

    def _evaluate(self, network: IPNetwork) -> bool:
        """Whether the way to a network is another one now."""
        claims = self._claims.get(network)
        self.waiting.pop(network, None)
        route: RemoteHop | str = ""
        foreign = False
        if claims:
            # A block's word counts before a node's own.
            source = min(claims, key=lambda source: (isinstance(source, str), str(source)))
            node = claims[source]
            if isinstance(source, str) and self._is_own(network):
                route = (
                    f"its tunnel's {network[0]} is of a block of this node, which did not lend it"
                )
                foreign = True
            else:
                route = self._way(network, self._pool(network), node)
            if isinstance(route, str) and route:
                self.waiting[network] = (node, route)
        if foreign != (network in self.refused):
            self.refused ^= {network}
            self.refused_version += 1
        if isinstance(route, str):
            return self.ways.pop(network, None) is not None
        before = self.ways.get(network)
        self.ways[network] = route
        return before != route

    def _targets(self, cidr: IPNetwork, facts: BlockFacts) -> Iterator[tuple[IPNetwork, str]]:
        """(network, node) of what of a block lies elsewhere; an address's user has the last say."""
        kind, _, owner = facts.owner.partition(":")
        if kind == "host" and owner and owner != self._node:
            yield cidr, owner
        for address, user in facts.users:
            if user != self._node:
                yield ip_network(address), user

    def _remember(self, cidr: IPNetwork, nodes: frozenset[str]) -> None:
        before = self._users.get(cidr, frozenset())
        for name in before - nodes:
            self._blocks_of[name].discard(cidr)
        for name in nodes - before:
            self._blocks_of[name].add(cidr)
        if nodes:
            self._users[cidr] = nodes
        else:
            self._users.pop(cidr, None)

    def _pool(self, cidr: IPNetwork) -> Pool | None:
        """The pool that a block lies in; of several the closest."""
        around = (
            pool
            for pool in self._pools.values()
            if pool.network.version == cidr.version
            and pool.network.prefixlen <= cidr.prefixlen
            and cidr.network_address in pool.network
        )
        return max(around, key=lambda pool: pool.network.prefixlen, default=None)

    def _way(self, network: IPNetwork, pool: Pool | None, node: str) -> RemoteHop | str:
        me, other = self._nodes.get(self._node, UNKNOWN), self._nodes.get(node)
        if other is None:
            return "there is no such node" if pool else ""
        if pool is None:
            return way_without_pool(network, me, other, self._means)
        return way(network, pool, me, other, self._means)

    def complaints(self) -> Mapping[str, str]:
        """What keeps addresses from being reached, node by node."""
        by_node: dict[str, list[str]] = defaultdict(list)
        for node, reason in self.waiting.values():
            by_node[node].append(reason)
        return {
            f"Node({node})": f"{len(reasons)} network(s) of it have no route from the datastore:"
            f" {'; '.join(sorted(set(reasons)))}"
            for node, reasons in by_node.items()
        }


def _pop(waiting: set[T], limit: int | None) -> list[T]:
    """Remove and return so many elements at most; None: all."""
    if limit is None or len(waiting) <= limit:
        # A set that is emptied element by element keeps its size, and each `pop` searches it.
        popped = list(waiting)
        waiting.clear()
        return popped
    return [waiting.pop() for _ in range(max(0, limit))]
