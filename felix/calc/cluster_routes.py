"""Ways to the blocks and borrowed addresses of other nodes, as the datastore alone tells them.

A block's way leads to the node that owns it; an address of it that another node uses has a way
of its own (reference 1.7). What changed is evaluated again, nothing else: a cluster has
thousands of blocks, and one of them changes.

Invariants:
  CLR-1  The ways depend on the objects only, not on the order in which they came.
  CLR-2  Nothing of this node's own has a way: neither its blocks nor addresses that it uses.
Tested in tests/felix/test_calc_cluster_routes.py (hypothesis).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

from felix.calc.blocks import BlockFacts
from felix.calc.nodes import NodeFacts
from felix.calc.pools import Pool
from felix.calc.tunnels import Means, Way, way

IPNetwork = IPv4Network | IPv6Network
_UNKNOWN = NodeFacts()


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
        self.ways: dict[IPNetwork, Way] = {}
        self.waiting: dict[IPNetwork, tuple[str, str]] = {}
        """Networks without a way: (node, why)."""
        self._means = Means()
        self._of_block: dict[IPNetwork, tuple[IPNetwork, ...]] = {}
        self._blocks_of: dict[str, set[IPNetwork]] = defaultdict(set)
        self._users: dict[IPNetwork, frozenset[str]] = {}
        self._dirty: set[IPNetwork] = set()

    def block_changed(self, cidr: IPNetwork) -> None:
        """A block came, changed or went."""
        self._dirty.add(cidr)

    def node_changed(self, name: str) -> None:
        """A node came, changed or went; this one's network matters to all ways."""
        self._dirty |= self._blocks.keys() if name == self._node else self._blocks_of[name]

    def pools_changed(self) -> None:
        """A pool came, changed or went."""
        self._dirty |= self._blocks.keys()

    def settle(self, means: Means) -> set[IPNetwork]:
        """Bring the ways up to date; returns the networks whose way differs now."""
        if means != self._means:
            self._means = means
            self._dirty |= self._blocks.keys()
        dirty, self._dirty = self._dirty, set()
        changed: set[IPNetwork] = set()
        for cidr in dirty:
            changed |= self._evaluate(cidr)
        return changed

    def _evaluate(self, cidr: IPNetwork) -> set[IPNetwork]:
        facts = self._blocks.get(cidr)
        wanted = dict(self._targets(cidr, facts)) if facts is not None else {}
        self._remember(cidr, frozenset(wanted.values()))
        changed = set()
        for network in self._of_block.get(cidr, ()):
            if network not in wanted:
                self.waiting.pop(network, None)
                if self.ways.pop(network, None) is not None:
                    changed.add(network)
        pool = self._pool(cidr)
        for network, node in wanted.items():
            found = self._way(network, pool, node)
            self.waiting.pop(network, None)
            if isinstance(found, str):
                if found:
                    self.waiting[network] = (node, found)
                if self.ways.pop(network, None) is not None:
                    changed.add(network)
            elif self.ways.get(network) != found:
                self.ways[network] = found
                changed.add(network)
        if wanted:
            self._of_block[cidr] = tuple(wanted)
        else:
            self._of_block.pop(cidr, None)
        return changed

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

    def _way(self, network: IPNetwork, pool: Pool | None, node: str) -> Way | str:
        if pool is None:
            return ""
        me, other = self._nodes.get(self._node, _UNKNOWN), self._nodes.get(node)
        if other is None:
            return "there is no such node"
        return way(network, pool, me, other, self._means)

    def complaints(self) -> Mapping[str, str]:
        """What keeps addresses from being reached, node by node."""
        found: dict[str, set[str]] = defaultdict(set)
        counts: dict[str, int] = defaultdict(int)
        for node, why in self.waiting.values():
            found[node].add(why)
            counts[node] += 1
        return {
            f"Node({node})": f"{counts[node]} network(s) of it have no route from the datastore:"
            f" {_listed(whys)}"
            for node, whys in found.items()
        }


def _listed(whys: Iterable[str]) -> str:
    return "; ".join(sorted(whys))
