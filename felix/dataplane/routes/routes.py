"""The route table: pods, own blocks and remote networks, as one table of desired and actual.

Invariants:
  RTE-1  Only routes of protocol 109 in the main table are ever changed or removed here.
  RTE-2  Where a foreign route has the same destination and metric, ours is not written: a
         replace would take the foreign route's place. The conflict is named. A route of Calico's
         felix, by its number or as it leads a pod's address to a workload's interface, is what we
         replace in this way: packets never miss it (`predecessors`). But once:
         if it comes back it has a living writer, and two would replace each other for ever.
  RTE-3  Until `bgp`'s first snapshot is complete, no route to a remote network is removed.
  RTE-4  Of several wishes for one destination a local pod wins over a blackhole, both over the
         datastore's way to another node, and that over a path of `bgp`.
  RTE-5  Nothing is removed by a view that is to be read again, nor because the view has no link of
         a route's index: the kernel has, so links and routes are read again.
Tested in tests/felix/dataplane/test_dataplane_parts.py and, with a kernel, test_event_order.py and
test_repair.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.calc.endpoints import Endpoint
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.own_routes import (
    CALICO,
    IPAddress,
    IPNetwork,
    blackhole_route,
    is_pod_route,
    leads_to_workload,
    pod_route,
)
from felix.dataplane.routes.writing import Failures, Outcome, Writer
from linux import prefixes
from linux.delta_table import DeltaTable
from linux.links import Link
from linux.netlink import Result
from linux.prefixes import Prefix
from linux.routes import TABLE_MAIN, NextHop, Route, RouteKey, Shape

log = logging.getLogger(__name__)

MOST_WRITES = 1000
"""Routes written at once; more would keep the event loop from everything else."""


class RouteTable:
    """Desired and actual routes of felix.

    `generation` grows when the kernel's routes are found otherwise than we wrote them. `kept`
    are the kernel's routes by a gateway that no path asks for yet: they stay until the paths are
    known (RTE-3), and cost nothing while they wait. `touched` is told of the pods whose routes
    the kernel has otherwise than before.
    """

    def __init__(self, touched: DirtySet | None = None) -> None:
        self._touched = touched or DirtySet()
        self.table: DeltaTable[RouteKey, Route] = DeltaTable()
        self.conflicts: set[IPNetwork] = set()
        self.generation = 0
        self._endpoints: Mapping[str, Endpoint] | None = None
        self._seen: tuple[object, ...] = ()
        self._pods: dict[
            str, tuple[Endpoint, int | None, tuple[Route, ...], tuple[IPNetwork, ...]]
        ] = {}
        self._claims: dict[RouteKey, dict[str, Route]] = {}
        self._blackholes: dict[RouteKey, Route] = {}
        self._cluster: dict[RouteKey, Route] = {}
        self._mtus: Mapping[int, int] = {}
        self._remote: dict[RouteKey, Route] = {}
        self.kept: dict[RouteKey, Route] = {}
        self._remote_known = False
        # Keys of Calico's routes that ours replaced, and whether it was told that one came back.
        self._replaced: dict[RouteKey, bool] = {}
        self._unknown: set[Route] = set()

    def __len__(self) -> int:
        """How many routes of ours the kernel has."""
        return len(self.table.actual) + len(self.kept)

    @property
    def remote_known(self) -> bool:
        """Whether the paths of `bgp` are known (RTE-3)."""
        return self._remote_known

    def paths_known(self) -> None:
        """The paths of `bgp` are known from now on: what none of them asks for may go."""
        if self._remote_known:
            return
        self._remote_known = True
        kept, self.kept = self.kept, {}
        for key, route in kept.items():
            self.table.saw(key, route)

    def want_local(
        self,
        endpoints: Mapping[str, Endpoint],
        blackholes: frozenset[IPNetwork],
        view: KernelView,
        families: frozenset[int],
        floating: Mapping[str, tuple[IPNetwork, ...]] = MappingProxyType({}),
        about: Iterable[str] | None = None,
    ) -> None:
        """Pods whose interface is there and up, by interface, and own blocks.

        `floating`: what leads to a pod besides its own networks. Packets to it are translated
        before they are routed, but for those of the node itself, which need a route first.
        `about`: nothing but these pods is otherwise than before.
        """
        changed: set[RouteKey] = set()
        if about is None:
            seen = (view, view.links_version, blackholes, families, floating)
            if endpoints is self._endpoints and seen == self._seen:
                return
            self._endpoints, self._seen = endpoints, seen
            routes = [blackhole_route(n) for n in blackholes if n.version in families]
            before, self._blackholes = self._blackholes, {route.key: route for route in routes}
            changed = {key for key, _ in before.items() ^ self._blackholes.items()}
            about = [*(name for name in self._pods if name not in endpoints), *endpoints]
        for interface in about:
            endpoint, known = endpoints.get(interface), self._pods.get(interface)
            if endpoint is None:
                if known is not None:
                    changed |= self._claim(interface, self._pods.pop(interface)[2], ())
                continue
            link = view.link_named(interface)
            index = link.index if link is not None and link.up else None
            more = floating.get(interface, ())
            if known is not None and known[0] is endpoint and known[1:4:2] == (index, more):
                continue
            pods: tuple[Route, ...] = ()
            if index is not None:
                networks = (n for n in (*endpoint.networks, *more) if n.version in families)
                pods = tuple(pod_route(network, index) for network in networks)
            changed |= self._claim(interface, known[2] if known else (), pods)
            self._pods[interface] = (endpoint, index, pods, more)
        self._merge(changed)

    def _claim(
        self, interface: str, before: Iterable[Route], after: Iterable[Route]
    ) -> set[RouteKey]:
        """An interface's routes are others now; returns the keys that this concerns."""
        keys = set()
        for route in before:
            keys.add(route.key)
            claims = self._claims[route.key]
            claims.pop(interface, None)
            if not claims:
                del self._claims[route.key]
        for route in after:
            keys.add(route.key)
            self._claims.setdefault(route.key, {})[interface] = route
        return keys

    def _local(self, key: RouteKey) -> Route | None:
        claims = self._claims.get(key)
        return claims[min(claims)] if claims else self._blackholes.get(key)

    def want_remote(
        self,
        hops: Mapping[Prefix, tuple[NextHop, ...]],
        changed: Iterable[Prefix],
        families: frozenset[int],
    ) -> None:
        """Networks that `bgp` told of: the changed ones, as they are now."""
        self._want(self._remote, hops, changed, families)

    def want_cluster(
        self,
        hops: Mapping[Prefix, tuple[NextHop, ...]],
        changed: Iterable[Prefix],
        families: frozenset[int],
        mtus: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Networks of other nodes, of tunnels above all, as the datastore tells them.

        `mtus`: of the tunnels' links by index; a route into one says how large a packet may be.
        """
        if mtus != self._mtus:
            self._mtus, changed = mtus, [*changed, *hops]
        self._want(self._cluster, hops, changed, families)

    def _want(
        self,
        elsewhere: dict[RouteKey, Route],
        hops: Mapping[Prefix, tuple[NextHop, ...]],
        changed: Iterable[Prefix],
        families: frozenset[int],
    ) -> None:
        keys = []
        # Many paths have the same hops, and then the same object of them.
        shapes: dict[tuple[int, int], Shape] = {}
        for prefix in changed:
            version = prefixes.version(prefix)
            key = (TABLE_MAIN, prefix, ROUTE_METRIC)
            keys.append(key)
            way = hops.get(prefix)
            if way is None or version not in families:
                elsewhere.pop(key, None)
                continue
            shape = shapes.get((version, id(way)))
            if shape is None:
                mtu = self._mtus.get(way[0].oif, 0) if elsewhere is self._cluster else 0
                shape = shapes[version, id(way)] = Shape.of(
                    version, way, protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC, mtu=mtu
                )
            elsewhere[key] = Route.of(prefix, shape)
        self._merge(keys)

    def serves(self, interface: str) -> bool:
        """Whether the kernel has every route to the pod behind this interface."""
        known = self._pods.get(interface)
        if known is None or known[1] is None:
            return False
        return all(self.table.actual.get(route.key) == route for route in known[2])

    def link_left(self, interface: str) -> None:
        """Another program saw the kernel take this pod's link away, and its routes with it."""
        for route in self._pods[interface][2] if interface in self._pods else ():
            if self.table.actual.get(route.key) == route:
                self._differs(route.key)
                self.table.lost(route.key)

    def free(self, interface: str, network: IPNetwork, view: KernelView) -> bool:
        """Whether a pod's route may be written to this interface: no other endpoint claims it, and
        no foreign route has its place (RTE-2).
        """
        key = (TABLE_MAIN, prefixes.pack(network), ROUTE_METRIC)
        return key not in view.foreign and self._claims.get(key, {}).keys() <= {interface}

    def believed(self, link: Link) -> list[Route] | None:
        """The routes to this workload's link that the kernel is believed to have; None: of this
        link nothing is wanted, and what there is has to be looked for.
        """
        known = self._pods.get(link.name)
        if known is None or known[1] != link.index:
            return None
        return [route for route in known[2] if self.table.actual.get(route.key) == route]

    def confirm(self, route: Route, in_kernel: Route | None) -> bool:
        """A look-up of a pod's address found this route: if it is not ours, ours is gone."""
        if in_kernel is not None and in_kernel.key == route.key and in_kernel.oif == route.oif:
            return True
        self._differs(route.key)
        self.table.lost(route.key)
        return False

    def _differs(self, key: RouteKey) -> None:
        """What the kernel has under this key is not what it was."""
        self.generation += 1
        self._touched.mark(self._claims.get(key, ()))

    def _merge(self, keys: Iterable[RouteKey]) -> None:
        for key in keys:
            route = self._local(key) or self._cluster.get(key) or self._remote.get(key)
            if route is None:
                self.table.unwant(key)
                continue
            if self.kept and (known := self.kept.pop(key, None)) is not None:
                self.table.saw(key, known)
            self.table.want(key, route)

    def saw(self, changes: Mapping[RouteKey, Route | None]) -> None:
        """Own routes as the kernel told."""
        for key, route in changes.items():
            if self.table.actual.get(key, self.kept.get(key)) == route:
                continue
            self._differs(key)
            self.kept.pop(key, None)
            if route is None:
                self.table.lost(key)
            elif self._waits(key, route):
                self.table.lost(key)
                self.kept[key] = route
            else:
                self.table.saw(key, route)

    def replace_actual(self, routes: Mapping[RouteKey, Route]) -> None:
        """Own routes as a dump told."""
        self.generation += 1
        self._touched.mark_everything()
        self._unknown = {route for route in self._unknown if routes.get(route.key) == route}
        self.kept = {}
        if not self._remote_known:
            self.kept = {key: route for key, route in routes.items() if self._waits(key, route)}
            routes = {key: routes[key] for key in routes.keys() - self.kept.keys()}
        self.table.replace_actual(routes)

    def _waits(self, key: RouteKey, route: Route) -> bool:
        """Whether this may be the route of a path that was not received yet."""
        if self._remote_known or key in self.table.desired:
            return False
        hops = route.shape.next_hops
        return bool(hops) and not route.shape.direct

    def commit(
        self,
        writer: Writer,
        view: KernelView,
        *,
        held: frozenset[IPAddress],
        awaits: Callable[[str], bool],
        outcome: Outcome,
    ) -> Iterator[None]:
        """Write what differs, own pods first, with a pause for others after `MOST_WRITES`.

        `held`: addresses whose old connections are still being removed. `awaits`: whether
        something was said of the endpoint behind this interface that this turn does not know.
        Raises `KernelError` only when the socket fails; a refused route is in the outcome.
        """
        differing = self.table.outstanding()
        keys = list(differing)
        if len(keys) > MOST_WRITES:
            # Some are named twice then, and are right by the second time.
            keys[:0] = [k for k in (*self._claims, *self._blackholes) if k in differing]
        self.conflicts = set()
        for start in range(0, len(keys), MOST_WRITES):
            if start:
                yield
            upserts: list[Route] = []
            doomed: list[Route] = []
            for key in keys[start : start + MOST_WRITES]:
                self._choose(key, view, held, awaits, upserts, doomed)
            if upserts or doomed:
                self._write(writer, view, upserts, doomed, outcome)

    def _choose(
        self,
        key: RouteKey,
        view: KernelView,
        held: frozenset[IPAddress],
        awaits: Callable[[str], bool],
        upserts: list[Route],
        doomed: list[Route],
    ) -> None:
        """What is to be done about a key that differed when the commit began."""
        route, known = self.table.desired.get(key), self.table.actual.get(key)
        if route is None:
            self._replaced.pop(key, None)
            if known is not None and self._may_remove(known, view, awaits):
                doomed.append(known)
        elif key in view.foreign and not self._may_replace(view.foreign[key], view):
            self.conflicts.add(route.dst)
        elif route != known and not (
            held and is_pod_route(route) and route.dst.network_address in held
        ):
            upserts.append(route)

    def _may_replace(self, theirs: Route, view: KernelView) -> bool:
        of_pod = theirs.key in self._claims and leads_to_workload(theirs, view)
        if theirs.protocol != CALICO and not of_pod:
            return False
        warned = self._replaced.get(theirs.key)
        if warned is False:
            self._replaced[theirs.key] = True
            log.warning(
                "route of protocol %d came back after ours replaced it: is Calico still running?",
                theirs.protocol,
                extra={"object": str(theirs.dst)},
            )
        return warned is None

    def _may_remove(self, route: Route, view: KernelView, awaits: Callable[[str], bool]) -> bool:
        if view.outdated:
            return False
        if not route.next_hops:
            return True
        if route.oif and route.oif not in view.links:
            # The kernel has no route without its link: it is the view that lacks something. Once
            # for each, so that what is never found does not keep the loop busy.
            if route not in self._unknown:
                self._unknown.add(route)
                view.stale_all = view.stale_routes = True
            return False
        self._unknown.discard(route)
        if route.oif and self._newer(view.links[route.oif].name, awaits):
            return False
        return self._remote_known or (is_pod_route(route) and view.is_workload(route.oif))

    def _newer(self, interface: str, awaits: Callable[[str], bool]) -> bool:
        """Whether there is news of this endpoint that what is wanted does not follow yet.

        `cni` writes the route of a new pod itself. A turn that began for another pod may hear of
        that route, and of the link, before it looks at the new pod at all: the next turn does.
        """
        return awaits(interface) or self._touched.names(interface)

    def _write(
        self,
        writer: Writer,
        view: KernelView,
        upserts: list[Route],
        doomed: list[Route],
        outcome: Outcome,
    ) -> None:
        refused: list[tuple[Route, Result]] = []

        def account(failed: Failures) -> None:
            refused.extend(self._account(failed, view, upserts, doomed, outcome))

        writer.write(upserts, doomed, account)
        for route, result in refused:
            # By now the view knows which links have left: these need no route.
            left = route.oif and route.oif not in view.links
            if result.errno != errno.ENODEV or not left:
                outcome.failures[route.dst] = str(result.error(f"write route {route.dst}"))

    def _account(
        self,
        failed: Failures,
        view: KernelView,
        upserts: list[Route],
        doomed: list[Route],
        outcome: Outcome,
    ) -> Iterator[tuple[Route, Result]]:
        """Account for what was done; gives the routes that were not written."""
        for index, route in enumerate(upserts):
            if index in failed:
                yield route, failed[index]
                continue
            key = route.key
            if key in self.table.actual:
                # Another interface may have had it until now.
                self._differs(key)
            self.table.saw(key, route)
            if key in view.foreign:
                self._replaced[key] = False
            view.wrote(key, route)
            outcome.written += 1
            outcome.pods.update(self._claims.get(key, ()))
        for index, route in enumerate(doomed, len(upserts)):
            if index in failed and failed[index].errno != errno.ESRCH:
                error = failed[index].error(f"delete route {route.dst}")
                outcome.failures[route.dst] = str(error)
                continue
            self._differs(route.key)
            self.table.lost(route.key)
            view.wrote(route.key, None)
            outcome.deleted += 1
            if is_pod_route(route):
                outcome.departed.add(route.dst.network_address)
