"""From ways to next hops: which link and gateway a way to another node is now.

The calculation says "in VXLAN to that end"; here it becomes a hop on the device of that name,
as long as there is one. A gateway is reached on the link, not by routes (on-link): the
end of a tunnel lies in no network, and a neighbour's address in the one that the Node names.
Tested in tests/felix/dataplane/test_remote_next_hops.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from itertools import islice

from felix.calc.cluster_routes import ClusterRoutes
from felix.calc.nodes import NodeFacts, Vtep
from felix.calc.tunnels import Kind, RemoteHop, TunnelSupport
from felix.dataplane.devices.mtu import IPIP, VXLAN, VXLAN_V6
from felix.dataplane.devices.tunnel_links import holder
from felix.dataplane.devices.view import KernelView
from linux.prefixes import Prefix, pack, pack_host
from linux.routes import NextHop

IPNetwork = IPv4Network | IPv6Network
Links = dict[tuple[Kind, int], int]


def links_of(view: KernelView, me: NodeFacts) -> Links:
    """The index of the link of each kind of way and family; none where there is none."""
    by_kind: Links = {}
    for address in me.addresses:
        link = holder(view, address)
        if link is not None:
            by_kind[Kind.STRAIGHT, address.version] = link.index
    for kind, version, name in (
        (Kind.IPIP, 4, IPIP),
        (Kind.VXLAN, 4, VXLAN),
        (Kind.VXLAN, 6, VXLAN_V6),
    ):
        link = view.link_named(name)
        if link is not None:
            by_kind[kind, version] = link.index
    return by_kind


def hop_of(network: IPNetwork, way: RemoteHop, links: Links) -> NextHop | None:
    """The hop that a way is; None while its link is not there."""
    index = links.get((way.kind, network.version))
    return None if index is None else NextHop(way.via, index, onlink=way.via is not None)


@dataclass
class RemoteNextHops:
    """Next hops of the cluster's networks, kept up to date by what changed."""

    hops: dict[Prefix, tuple[NextHop, ...]] = field(default_factory=dict)
    pending: bool = False
    """Whether something waits for `settle`."""
    _links: Links = field(default_factory=dict)
    _ends: tuple[Mapping[str, Vtep], int] = ({}, 0)
    _pending: dict[IPNetwork, None] = field(default_factory=dict)
    _ways: dict[Prefix, NextHop] = field(default_factory=dict)
    _hosts: dict[Prefix, NextHop] = field(default_factory=dict)
    _shared: dict[NextHop, tuple[NextHop, ...]] = field(default_factory=dict)

    def settle(
        self,
        cluster: ClusterRoutes,
        means: TunnelSupport,
        view: KernelView,
        me: NodeFacts,
        ends: Mapping[str, Vtep],
        limit: int | None = None,
    ) -> list[Prefix]:
        """Bring the hops up to date, of so many networks at most; returns the prefixes whose hops
        differ now, those first over which others go. `ends`: the IPv6 ends of VXLAN elsewhere.
        """
        self._pending.update(dict.fromkeys(cluster.settle(means, limit)))
        links = links_of(view, me)
        moved = links != self._links
        if moved:
            self._links = links
            self._shared.clear()
            self._pending.update(dict.fromkeys(cluster.ways))
        asked = (ends, cluster.refused_version)
        touched: dict[Prefix, None] = {}
        if moved or asked[0] is not self._ends[0] or asked[1] != self._ends[1]:
            self._ends = asked
            touched = dict.fromkeys(self._settle_hosts(ends, cluster.refused))
        batch = list(islice(self._pending, limit))
        for network in batch:
            del self._pending[network]
            prefix = pack(network)
            way = cluster.ways.get(network)
            hop = hop_of(network, way, links) if way is not None else None
            _put(self._ways, prefix, hop)
            touched[prefix] = None
        self.pending = bool(self._pending) or cluster.pending
        return [prefix for prefix in touched if self._publish(prefix)]

    def _settle_hosts(self, ends: Mapping[str, Vtep], refused: Set[IPNetwork]) -> list[Prefix]:
        """IPv6 takes no gateway, on-link or not, that a route leads to by another link. The end
        of a tunnel lies in a block whose route may just do that, so it has a route of its own.
        """
        index = self._links.get((Kind.VXLAN, 6))
        ends_now = {pack_host(end.address) for end in ends.values()} if index is not None else set()
        ends_now -= {pack(network) for network in refused}
        changed = [*(ends_now - self._hosts.keys()), *(self._hosts.keys() - ends_now), *ends_now]
        for prefix in changed:
            hop = NextHop(None, index) if prefix in ends_now and index is not None else None
            _put(self._hosts, prefix, hop)
        return changed

    def _publish(self, prefix: Prefix) -> bool:
        """Whether a prefix's hops are others now."""
        hop = self._hosts.get(prefix) or self._ways.get(prefix)
        if hop is None:
            return self.hops.pop(prefix, None) is not None
        # Blocks of one node have the same hop: one object of it.
        hops = self._shared.setdefault(hop, (hop,))
        before = self.hops.get(prefix)
        self.hops[prefix] = hops
        return before != hops


def _put(table: dict[Prefix, NextHop], prefix: Prefix, hop: NextHop | None) -> None:
    if hop is None:
        table.pop(prefix, None)
    else:
        table[prefix] = hop
