"""What BGP needs of the datastore, reduced at the edge to small frozen values.

No block is read, which changes with each of its pods: affinities say whose it is, and felix which
addresses nodes use out of each other's (`lend`). `ClusterView.apply` takes one change and says
which decisions (peering, export, import) it may have changed. For import it also collects the
networks concerned. Tested in tests/bgp/test_peering.py.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bgp.cluster.nodes import NodeView, node_view
from bgp.cluster.ownership import CONFIRMED, Ownership
from bgp.speaker.interface import IPAddress, IPNetwork
from libcalico.errors import InvalidValue
from libcalico.model.keys import AffinityKey, Key, ResourceKey
from libcalico.model.resources.bgp import BGPConfigurationSpec, BGPPeerSpec
from libcalico.model.resources.bgpfilter import BGPFilterSpec
from libcalico.model.resources.pool import IPPool

K = TypeVar("K")
V = TypeVar("V")

AUTOMATIC_REFLECTORS = "muslin/automatic-reflectors"

_NO_CONFIGURATION = BGPConfigurationSpec()


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as far as export goes, which is the same while it is disabled (`ipam.records.pools`
    alone asks that). `tunnelled`: packets to other subnets go in a tunnel.
    """

    cidr: IPNetwork
    exported: bool
    tunnelled: bool = False


class Changed(enum.Flag):
    """Which decision a change may have altered."""

    NOTHING = 0
    PEERING = enum.auto()
    EXPORT = enum.auto()
    IMPORT = enum.auto()
    FILTERS = enum.auto()
    """What filters say, for both directions."""


@dataclass
class ClusterView:
    """The cluster as the datastore describes it, for the node `me`."""

    me: str
    nodes: dict[str, NodeView] = field(default_factory=dict)
    configurations: dict[str, BGPConfigurationSpec] = field(default_factory=dict)
    peers: dict[str, BGPPeerSpec] = field(default_factory=dict)
    pools: dict[str, PoolView] = field(default_factory=dict)
    affinities: dict[IPNetwork, str] = field(default_factory=dict)
    mine: dict[IPNetwork, tuple[IPAddress, ...]] = field(default_factory=dict)
    """The addresses that this node borrowed, by the block they lie in."""
    filters: dict[str, BGPFilterSpec] = field(default_factory=dict)
    automatic: str = ""
    """The annotation that asks for reflectors chosen automatically (`bgp.peering.reflectors`)."""
    former: dict[str, str] = field(default_factory=dict)
    """Nodes that reflected a moment ago, by `bgp.decide.former_reflectors`: their cluster ids."""
    fresh: set[str] = field(default_factory=set)
    """Nodes that reflect only since a moment ago, by the same."""
    ownership: Ownership = field(default_factory=Ownership)
    touched: set[IPNetwork] = field(default_factory=set)
    """Networks whose owners changed since the reader cleared it."""
    broken: dict[str, str] = field(default_factory=dict)

    def apply(self, key: Key, value: Any | None) -> Changed:
        """Apply one change (None: deleted). An object that cannot be read is left out and named."""
        self.broken.pop(str(key), None)
        try:
            return self._take(key, value)
        except (ValueError, InvalidValue) as error:
            self.broken[str(key)] = str(error)
            return self._take(key, None)

    def _take(self, key: Key, value: Any | None) -> Changed:
        if isinstance(key, ResourceKey):
            return self._resource(key, value)
        if isinstance(key, AffinityKey):
            return self._affinity(key, value)
        return Changed.NOTHING

    def _resource(self, key: ResourceKey, value: Any | None) -> Changed:
        if key.kind == "Node":
            what = Changed.PEERING | Changed.EXPORT
            return _put(self.nodes, key.name, value and node_view(value), what)
        if key.kind == "IPPool":
            return _put(self.pools, key.name, value and _pool(value), Changed.EXPORT)
        if key.kind == "BGPConfiguration":
            if key.name == "default":
                annotations = value.metadata.annotations if value else {}
                self.automatic = annotations.get(AUTOMATIC_REFLECTORS, "")
            spec = value and value.spec
            _put(self.configurations, key.name, spec, Changed.PEERING)
            return Changed.PEERING | Changed.EXPORT | Changed.FILTERS
        if key.kind == "BGPFilter":
            what = Changed.PEERING | Changed.FILTERS
            return _put(self.filters, key.name, value and value.spec, what)
        if key.kind == "BGPPeer":
            return _put(self.peers, key.name, value and value.spec, Changed.PEERING)
        return Changed.NOTHING

    def _affinity(self, key: AffinityKey, value: Any | None) -> Changed:
        if key.kind != "host":
            return Changed.NOTHING
        state = None if value is None or value.deleted else value.state or CONFIRMED
        changed = Changed.NOTHING
        if self.ownership.claim(key.host, key.cidr, state):
            self.touched.add(key.cidr)
            changed = Changed.IMPORT
        if key.host != self.me:
            return changed
        return changed | _put(self.affinities, key.cidr, state, Changed.EXPORT)

    def lend(self, block: IPNetwork, users: Mapping[IPAddress, str]) -> Changed:
        """The addresses of a block that are not used on its owner's node are these now."""
        if not self.ownership.lend(block, dict(users)):
            return Changed.NOTHING
        self.touched.add(block)
        mine = tuple(sorted((a for a, node in users.items() if node == self.me), key=int))
        return Changed.IMPORT | _put(self.mine, block, mine or None, Changed.EXPORT)

    def owner(self, address: IPAddress) -> NodeView | None:
        """The node that has an address for its sessions; of several the first by name."""
        names = (node.name for node in self.nodes.values() if address in node.addresses)
        name = min(names, default=None)
        return None if name is None else self.nodes[name]

    @property
    def defaults(self) -> BGPConfigurationSpec:
        """The BGPConfiguration of the cluster; an empty one where there is none."""
        return self.configurations.get("default", _NO_CONFIGURATION)


def _put(table: dict[K, V], name: K, value: V | None, what: Changed) -> Changed:
    if table.get(name) == value:
        return Changed.NOTHING
    if value is None:
        del table[name]
    else:
        table[name] = value
    return what


def _pool(pool: IPPool) -> PoolView:
    spec = pool.spec
    tunnelled = any(mode not in (None, "", "Never") for mode in (spec.ipipMode, spec.vxlanMode))
    return PoolView(spec.network, not spec.disableBGPExport, tunnelled)
