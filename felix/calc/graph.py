"""The calculation: every stored object that felix watches, in; what the node should have, out.

Pure: no clock, no socket. An object that cannot be understood counts as absent and is named
in `broken`, so one bad object never stops the rest. Nothing here may be programmed before
`ready`: the datastore has been read whole, and it says that it is initialised
(docs/reference/dataplane.md#restarts).

Invariants:
  CLC-1  `ready` is false until the snapshot is complete and while the datastore's own ready
         flag is unset: a felix that starts on an empty datastore removes nothing.
  CLC-2  The result depends on the set of objects only, not on the order they arrived in.
Tested in tests/felix/calc/test_graph.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, TypeVar

from felix.calc.blocks import blackholes, lent_addresses, own_blocks, unsettled
from felix.calc.changes import Changes
from felix.calc.cluster_facts import ClusterFacts
from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.learned_routes import PathFacts
from felix.calc.local_endpoints import LocalEndpoints
from felix.calc.node_grace import NodeTable
from felix.calc.nodes import facts_of as node_facts
from felix.calc.nodes import tunnel_addresses
from felix.calc.policy import KINDS as POLICY_KINDS
from felix.calc.policy import PolicyEngine
from felix.calc.pools import Pool, pool_of, service_nets
from felix.calc.sets.claimed_blocks import ClaimedBlocks
from felix.calc.standalone_blocks import StandaloneBlocks
from felix.calc.standing import NEWEST
from libcalico.datastore.interface import Selection
from libcalico.errors import InvalidValue
from libcalico.model import (
    AffinityKey,
    FelixConfiguration,
    Key,
    ResourceKey,
    WorkloadEndpoint,
)

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CLUSTER = ResourceKey("ClusterInformation", "default")


def selections() -> list[Selection]:
    """What felix watches: no block, which changes with each of its pods, and no pod that ended."""
    return [
        Selection("ClusterInformation"),
        Selection("FelixConfiguration"),
        Selection("IPPool"),
        Selection("Node"),
        Selection("BGPConfiguration"),
        Selection("BlockAffinity"),
        *(Selection(kind, live=kind == "WorkloadEndpoint") for kind in POLICY_KINDS),
    ]


_NO_INFORMATION = "does not exist (a calico-node that starts makes it again)"


class Calculator:
    """The state of the calculation for one node."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.policy = PolicyEngine(node)
        self.endpoints = LocalEndpoints(self.policy.put_local)
        self.pools: dict[str, Pool] = {}
        self._node_table = NodeTable(node)
        self.nodes = self._node_table.used
        self.service_nets: frozenset[IPNetwork] = frozenset()
        self.felix_configurations: dict[str, Mapping[str, Mapping[str, object]]] = {}
        self.broken: dict[Key, str] = {}
        self._datastore_ready = False
        self._information = False
        self.on_blocks: Callable[[], object] = lambda: None
        """Called when the owner of a block or the user of one of its addresses changed."""
        self.blocks = ClaimedBlocks(node, self.policy.places, self._block_changed)
        self._own: frozenset[IPNetwork] | None = None
        self.cluster_version = 0
        """Grows when a pool or a node changes, or a block without a pool."""
        self._standalone = StandaloneBlocks(self.pools, self.blocks.facts)
        self.cluster = ClusterRoutes(node, self.blocks.facts, self.nodes, self.pools)
        self._facts = ClusterFacts(node)
        self._wait: float | None = None

    @property
    def in_sync(self) -> bool:
        """Whether the datastore has been read whole; once true, policies are matched."""
        return self.policy.in_sync

    @in_sync.setter
    def in_sync(self, value: bool) -> None:
        if value:
            self.blocks.start()
            self.policy.start()

    @property
    def ready(self) -> bool:
        """Whether the result may be programmed (CLC-1)."""
        return self.in_sync and self._datastore_ready

    @property
    def held_up(self) -> str:
        """Why nothing new may be programmed though the datastore was read; empty where it may."""
        if not self.in_sync or self._datastore_ready:
            return ""
        why = "datastoreReady is false" if self._information else _NO_INFORMATION
        return f"{why}: nothing new is programmed, and no pod starts"

    def update(self, key: Key, value: Any, revision: int = NEWEST) -> bool:
        """Take one object, None for a deletion; returns whether anything that matters changed.

        `revision`: of the datastore, when it became so.
        """
        self.broken.pop(key, None)
        try:
            return self._update(key, value, revision)
        except InvalidValue as error:
            self.broken[key] = str(error)
            return self._update(key, None, revision)

    def _update(self, key: Key, value: Any, revision: int) -> bool:
        match key:
            case AffinityKey():
                return key.kind == "host" and self.blocks.claim(key.host, key.cidr, value)
            case ResourceKey(kind="WorkloadEndpoint"):
                return self._endpoint(key, value, revision)
            case ResourceKey(kind="IPPool"):
                pool = None if value is None else pool_of(key.name, value)
                changed = _put(self.pools, key.name, pool)
                if changed:
                    self.cluster_version += 1
                    self.cluster.pools_changed()
                    self._standalone.pools_changed()
                return changed
            case ResourceKey(kind="Node"):
                facts = node_facts(key.name, value) if value is not None else None
                return self._nodes_changed(self._node_table.store(key.name, facts))
            case ResourceKey(kind="BGPConfiguration", name="default"):
                before, self.service_nets = self.service_nets, service_nets(value)
                return before != self.service_nets
            case ResourceKey(kind="FelixConfiguration"):
                return _put(
                    self.felix_configurations, key.name, None if value is None else _sections(value)
                )
            case ResourceKey(kind="ClusterInformation"):
                was_ready = self._datastore_ready
                self._information = value is not None
                self._datastore_ready = bool(value is not None and value.spec.datastoreReady)
                return was_ready != self._datastore_ready
            case ResourceKey() if key.kind in POLICY_KINDS:
                return self.policy.update(key, value)
        return False

    def settling(self, now: float) -> Iterator[None]:
        """Do what is pending, in steps; `now` in seconds of a monotonic clock.

        What is only held for a moment goes when that is over (`felix.calc.node_grace`).
        """
        changed, self._wait = self._node_table.expire(now)
        self._nodes_changed(changed)
        yield from self.policy.settle()

    def take_changes(self, prefixes: tuple[str, ...] = ("",)) -> Changes:
        """What the data plane takes in one turn, as of now; ask for it after `settling`.

        `moved` and `unread` begin anew: only the main loop asks.
        """
        active, shadowed = self.endpoints.active(prefixes)
        return Changes(
            active=active,
            shadowed=shadowed,
            moved=frozenset(self.endpoints.take_moved()),
            endpoint=self.endpoints.get,
            policies=self.policy,
            cluster=self.facts,
            routes=self.cluster,
            blackholes=self.blackholes,
            paths=self.path_facts,
            wait=self._wait,
        )

    def unread(self, interface: str) -> bool:
        """Whether something was said of this interface since `take_changes` was asked."""
        return self.endpoints.awaits(interface)

    @property
    def facts(self) -> ClusterFacts:
        """Pools, nodes and services; the same object while nothing of them changed."""
        known = self._facts
        same = known.version == self.cluster_version and known.service_nets == self.service_nets
        if not same:
            self._facts = ClusterFacts(
                self.node,
                self.cluster_version,
                dict(self.pools),
                dict(self.nodes),
                self.routed,
                self.service_nets,
            )
        return self._facts

    def _nodes_changed(self, names: set[str]) -> bool:
        if names:
            self.cluster_version += 1
        for name in names:
            self.blocks.tunnels(name, tunnel_addresses(self.nodes.get(name)))
            self.cluster.node_changed(name)
        return bool(names)

    def _endpoint(self, key: ResourceKey, value: WorkloadEndpoint | None, revision: int) -> bool:
        if value is not None and value.spec.node == self.node:
            return self.endpoints.store(key, self.endpoints.read(key, value), revision)
        changed = self.endpoints.store(key, None, revision)
        # An offer may outlive the deletion of its predecessor.
        if value is not None or self.endpoints.get(key) is None:
            changed |= self.policy.update(key, value)
        return changed

    def _block_changed(self, cidr: IPNetwork) -> None:
        self._own = None
        self.cluster.block_changed(cidr)
        if self._standalone.block_changed(cidr):
            self.cluster_version += 1
        self.on_blocks()

    @property
    def own_blocks(self) -> frozenset[IPNetwork]:
        """The blocks of this node."""
        if self._own is None:
            self._own = own_blocks(self.node, self.blocks.facts)
        return self._own

    @property
    def unsettled_claims(self) -> Mapping[str, str]:
        """Claims that own pods lack, and what that means, by object."""
        pools = [pool.network for pool in self.pools.values()]
        return unsettled(self.node, self.blocks.facts, self.blocks.left, pools)

    @property
    def poolless(self) -> dict[str, str]:
        """The blocks without a pool in which pods of this node are, and what that means."""
        if not self.in_sync or not self._standalone.networks:
            return {}
        here = (standing.now for _, standing in self.endpoints.standings())
        return self._standalone.complaints(one.networks for one in here if one is not None)

    def blackholes(self) -> frozenset[IPNetwork]:
        """What to blackhole."""
        return blackholes(self.own_blocks)

    def path_facts(self, own_addresses: frozenset[IPAddress]) -> PathFacts:
        """What paths are checked against; own addresses are the kernel's word."""
        return PathFacts(
            routed=self.routed,
            own_blocks=self.own_blocks,
            lent=lent_addresses(self.node, self.own_blocks, self.blocks.facts),
            own_addresses=own_addresses,
            services=self.service_nets,
        )

    @property
    def routed(self) -> frozenset[IPNetwork]:
        """Where pods may have addresses: all pools, and the nodes' blocks in none (PLR-1)."""
        return frozenset(p.network for p in self.pools.values()) | self._standalone.networks


def _put(table: dict[K, V], key: K, value: V | None) -> bool:
    """Store a value, None removes it; returns whether it differs from before."""
    before = table.get(key)
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
    return before != value


def _sections(value: FelixConfiguration) -> Mapping[str, Mapping[str, object]]:
    return {"spec": value.spec.set_fields(), "annotations": dict(value.metadata.annotations)}
