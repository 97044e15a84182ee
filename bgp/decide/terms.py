"""The terms of import and export, from the datastore and the plan. Pure.

Tested in tests/bgp/test_agent_routing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from bgp.cluster import services
from bgp.cluster.services import Ranges, ServiceView
from bgp.cluster.view import ClusterView
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.peering import reflectors
from bgp.peering.planned import PlannedPeer
from bgp.routes import filters, local_routes
from bgp.routes.audiences import audiences
from bgp.routes.communities import Tags
from bgp.routes.export_policy import Terms
from bgp.routes.filters import Rules
from bgp.routes.local_routes import Kind
from bgp.routes.validity import Facts, neighbours_of
from bgp.speaker.interface import IPAddress, IPNetwork
from libcalico.model.resources.bgpfilter import BGPFilterSpec


class FilterTable:
    """The BGPFilters, compiled once each: equal specs give the same object."""

    def __init__(self) -> None:
        self._specs: dict[str, BGPFilterSpec] = {}
        self.rules: dict[str, Rules] = {}

    def update(self, specs: Mapping[str, BGPFilterSpec]) -> bool:
        """The filters are these now; returns whether any differs. Unusable ones are left out."""
        if specs == self._specs:
            return False
        rules = {}
        for name, spec in specs.items():
            if name in self.rules and self._specs.get(name) == spec:
                rules[name] = self.rules[name]
                continue
            try:
                rules[name] = filters.compiled(name, spec)
            except ValueError:
                continue  # the peerings that name it are refused with the reason
        self._specs, self.rules = dict(specs), rules
        return True


def of_export(
    view: ClusterView,
    peers: Iterable[PlannedPeer],
    rules: Mapping[str, Rules],
    tags: Tags,
    interface: Callable[[IPAddress | IPNetwork], str],
    handover: MakeBeforeBreak,
) -> Terms:
    """The terms of export."""
    me = view.nodes.get(view.me)
    normal = {
        4: view.defaults.ipv4NormalRoutePriority,
        6: view.defaults.ipv6NormalRoutePriority,
    }
    priorities = {version: value for version, value in normal.items() if value is not None}
    ranges = services.ranges(view)
    return Terms(
        audiences=audiences((each.peer.address, each.manner) for each in peers),
        pools=tuple(pool for _, pool in sorted(view.pools.items())),
        filters=rules,
        tags=tags,
        cluster_id=reflectors.cluster_ids(view).get(view.me, ""),
        services=(*ranges.load_balancer, *ranges.external),
        priorities=priorities,
        draining=me is not None and me.draining,
        interface=interface,
        leaving=frozenset(handover.kept),
        successors=handover.successors,
    )


def of_import(
    view: ClusterView,
    ranges: Ranges,
    own: frozenset[IPAddress],
    connected: Collection[IPNetwork] = (),
    datastore: Collection[IPAddress] = (),
) -> Facts:
    """The facts that learned paths are checked against."""
    chosen = frozenset(reflectors.cluster_ids(view))
    addresses = {node.name: node.addresses for node in view.nodes.values()} if chosen else {}
    networks = (*ranges.cluster, *ranges.external, *ranges.load_balancer)
    pools = tuple(pool.cidr for _, pool in sorted(view.pools.items()))
    neighbours = neighbours_of(view, connected, datastore)
    return Facts(view, networks, chosen, own, addresses, pools, neighbours)


def own_routes(
    view: ClusterView,
    ranges: Ranges,
    known: Iterable[ServiceView],
    connected: Iterable[IPNetwork],
    remembered: frozenset[IPNetwork] = frozenset(),
) -> dict[IPNetwork, Kind]:
    """The routes that this node has itself. `remembered`: addresses of services of before."""
    chosen: frozenset[IPNetwork] = frozenset()
    if not services.excluded(view):
        chosen = services.announced(view.me, ranges, known) | services.within(ranges, remembered)
    return local_routes.originated(view.affinities, view.mine, chosen, connected)
