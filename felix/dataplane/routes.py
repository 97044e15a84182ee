"""The route table: pods, own blocks and remote networks, as one table of desired and actual.

Invariants:
  RTE-1  Only routes of protocol 109 in the main table are ever changed or removed.
  RTE-2  Where a foreign route has the same destination and metric, ours is not written: a
         replace would take the foreign route's place. The conflict is named.
  RTE-3  Until `bgp`'s first snapshot is complete, no route to a remote network is removed.
  RTE-4  Of several wishes for one destination a local pod wins over a blackhole, and both
         over a remote route.
Tested in tests/felix/test_dataplane_parts.py and, with a kernel, test_repair.py.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.calc.endpoints import Endpoint
from felix.dataplane.view import KernelView
from linux import routes as kernel
from linux.netlink import Socket
from linux.routes import NextHop, Route, RouteKey
from linux.tables import DeltaTable

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
MOST_WRITES = 2000
"""Routes written in one turn; more would keep the event loop from everything else."""


def pod_route(network: IPNetwork, index: int) -> Route:
    """The route of a pod's address to its host-side interface."""
    return _route(network, (NextHop(None, index),))


def blackhole_route(network: IPNetwork) -> Route:
    """The route that ends what no pod of an own block takes."""
    return Route(network, (), "blackhole", protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)


def remote_route(network: IPNetwork, hops: tuple[NextHop, ...]) -> Route:
    """The route to a network elsewhere."""
    return _route(network, hops)


def _route(network: IPNetwork, hops: tuple[NextHop, ...]) -> Route:
    return Route(network, hops, protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)


def is_pod_route(route: Route) -> bool:
    """Whether a route of ours leads to a local pod."""
    return (
        route.type == "unicast"
        and route.dst.prefixlen == route.dst.max_prefixlen
        and len(route.next_hops) == 1
        and route.next_hops[0].gateway is None
    )


@dataclass
class Outcome:
    """What a commit did, and what it could not do. `more`: not all fitted one turn.

    `departed`: addresses of removed pod routes.
    """

    written: int = 0
    deleted: int = 0
    more: bool = False
    failures: dict[IPNetwork, str] = field(default_factory=dict)
    departed: set[IPAddress] = field(default_factory=set)


class RouteTable:
    """Desired and actual routes of felix.

    `generation` grows when the kernel's routes are found otherwise than we wrote them.
    """

    def __init__(self) -> None:
        self.table: DeltaTable[RouteKey, Route] = DeltaTable()
        self.conflicts: set[IPNetwork] = set()
        self.generation = 0
        self._endpoints: Mapping[str, Endpoint] | None = None
        self._seen: tuple[object, ...] = ()
        self._pods: dict[str, tuple[Endpoint, int | None, tuple[Route, ...]]] = {}
        self._claims: dict[RouteKey, dict[str, Route]] = {}
        self._blackholes: dict[RouteKey, Route] = {}
        self._remote: dict[RouteKey, Route] = {}

    def want_local(
        self,
        endpoints: Mapping[str, Endpoint],
        blackholes: frozenset[IPNetwork],
        view: KernelView,
        families: frozenset[int],
    ) -> None:
        """Pods whose interface is there and up, by interface, and own blocks."""
        seen = (view, view.links_version, blackholes, families)
        if endpoints is self._endpoints and seen == self._seen:
            return
        self._endpoints, self._seen = endpoints, seen
        routes = [blackhole_route(n) for n in blackholes if n.version in families]
        before, self._blackholes = self._blackholes, {route.key: route for route in routes}
        changed = {key for key, _ in before.items() ^ self._blackholes.items()}
        for interface in [name for name in self._pods if name not in endpoints]:
            changed |= self._claim(interface, self._pods.pop(interface)[2], ())
        for interface, endpoint in endpoints.items():
            link = view.link_named(interface)
            index = link.index if link is not None and link.up else None
            known = self._pods.get(interface)
            if known is not None and known[0] is endpoint and known[1] == index:
                continue
            pods: tuple[Route, ...] = ()
            if index is not None:
                networks = (n for n in endpoint.networks if n.version in families)
                pods = tuple(pod_route(network, index) for network in networks)
            changed |= self._claim(interface, known[2] if known else (), pods)
            self._pods[interface] = (endpoint, index, pods)
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
        hops: Mapping[IPNetwork, tuple[NextHop, ...]],
        changed: Iterable[IPNetwork],
        families: frozenset[int],
    ) -> None:
        """Remote networks: the changed ones, as they are now."""
        keys = []
        for network in changed:
            key = remote_route(network, ()).key
            keys.append(key)
            if network in hops and network.version in families:
                self._remote[key] = remote_route(network, hops[network])
            else:
                self._remote.pop(key, None)
        self._merge(keys)

    def serves(self, interface: str) -> bool:
        """Whether the kernel has every route to the pod behind this interface."""
        known = self._pods.get(interface)
        if known is None or known[1] is None:
            return False
        return all(self.table.actual.get(route.key) == route for route in known[2])

    def in_force(self, network: IPNetwork, index: int) -> bool:
        """Whether the kernel has the route of a pod's address to this link."""
        route = pod_route(network, index)
        return self.table.actual.get(route.key) == route

    def confirm(self, network: IPNetwork, index: int, found: Route | None) -> None:
        """A look-up of a pod's address found this route: if it is not ours, ours is gone."""
        route = pod_route(network, index)
        if found is None or found.key != route.key or found.oif != index:
            self.generation += 1
            self.table.lost(route.key)

    def _merge(self, keys: Iterable[RouteKey]) -> None:
        for key in keys:
            route = self._local(key) or self._remote.get(key)
            if route is None:
                self.table.unwant(key)
            else:
                self.table.want(key, route)

    def saw(self, changes: Mapping[RouteKey, Route | None]) -> None:
        """Own routes as the kernel told."""
        for key, route in changes.items():
            if self.table.actual.get(key) == route:
                continue
            self.generation += 1
            if route is None:
                self.table.lost(key)
            else:
                self.table.saw(key, route)

    def replace_actual(self, routes: Mapping[RouteKey, Route]) -> None:
        """Own routes as a dump told."""
        self.generation += 1
        self.table.replace_actual(routes)

    def commit(
        self, sock: Socket, view: KernelView, *, remote_known: bool, held: frozenset[IPAddress]
    ) -> Outcome:
        """Write what differs. `held`: addresses whose old connections are still being removed.

        Raises `KernelError` only when the socket fails; a refused route is in the outcome.
        """
        delta = self.table.delta()
        upserts: list[Route] = []
        self.conflicts = set()
        for key, route in delta.upserts.items():
            if key in view.foreign:
                self.conflicts.add(route.dst)
            elif not (is_pod_route(route) and route.dst.network_address in held):
                upserts.append(route)
        doomed = [self.table.actual[key] for key in delta.deletes]
        if not remote_known:
            doomed = [route for route in doomed if self._is_local(route, view)]
        outcome = Outcome(more=len(upserts) + len(doomed) > MOST_WRITES)
        upserts = upserts[:MOST_WRITES]
        doomed = doomed[: MOST_WRITES - len(upserts)]
        if upserts or doomed:
            self._write(sock, upserts, doomed, outcome)
        return outcome

    def _is_local(self, route: Route, view: KernelView) -> bool:
        if not route.next_hops:
            return True
        return is_pod_route(route) and (route.oif not in view.links or view.is_workload(route.oif))

    def _write(
        self, sock: Socket, upserts: list[Route], doomed: list[Route], outcome: Outcome
    ) -> None:
        messages = [kernel.replace(route) for route in upserts]
        messages += [kernel.delete(route) for route in doomed]
        results = sock.transact(messages)
        done = len(upserts)
        for route, result in zip(upserts, results[:done], strict=True):
            if result.ok:
                if route.key in self.table.actual:
                    # Another interface may have had it until now.
                    self.generation += 1
                self.table.saw(route.key, route)
                outcome.written += 1
            else:
                outcome.failures[route.dst] = str(result.error(f"write route {route.dst}"))
        for route, result in zip(doomed, results[done:], strict=True):
            if result.ok or result.errno == errno.ESRCH:
                self.table.lost(route.key)
                outcome.deleted += 1
                if is_pod_route(route):
                    outcome.departed.add(route.dst.network_address)
            else:
                outcome.failures[route.dst] = str(result.error(f"delete route {route.dst}"))
