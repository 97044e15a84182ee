"""Routes that Calico left on a node that was taken over: swept once ours stand in their stead.

Calico's felix writes protocol 80, its BIRD 12, releases before 3.0 wrote 3 (`boot`), which is also
what `ip route add` writes: so the less a number says, the more a route must look like Calico's.
One with the key of ours is replaced in one step (RTE-2); others have another metric, 0 or 32, win
over ours, and would lead astray as soon as something moves.

Invariants:
  PRE-1  A route goes only if it lies in an address pool and has one of the three numbers; with 80
         only if ours to the same destination stands or none is to come (`awaited`), with 12 only
         if ours stands, with 3 only if ours leads to the same pod.
  PRE-2  A route that comes back after it was swept has a living writer: it is named, and stays.
Tested in tests/felix/test_predecessors.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from felix import ROUTE_METRIC
from felix.calc.pools import Pool
from felix.dataplane.routes import CALICO
from felix.dataplane.view import KernelView
from linux import prefixes
from linux import routes as kernel
from linux.netlink import Socket
from linux.prefixes import is_host
from linux.routes import TABLE_MAIN, Route, RouteKey

log = logging.getLogger(__name__)
IPNetwork = IPv4Network | IPv6Network

BIRD, BOOT = 12, 3
NUMBERS = frozenset({CALICO, BIRD, BOOT})


class Cluster(Protocol):
    """What is known of other nodes; `felix.calc.cluster_routes.ClusterRoutes` is one."""

    def around(self, network: IPNetwork) -> Iterator[IPNetwork]:
        """The networks of other nodes that are there, which hold all of this one."""


def awaited(route: Route, wanted: Collection[RouteKey], view: KernelView, cluster: Cluster) -> bool:
    """Whether a route of ours that would take this one's packets is still to come. Pure.

    It is wanted but not written, or leads to another node, whose tunnel may not be ready.
    """
    if _key(route.dst) in wanted:
        return True
    return any(_key(network) not in view.own for network in cluster.around(route.dst))


def _key(network: IPNetwork) -> RouteKey:
    return (TABLE_MAIN, prefixes.pack(network), ROUTE_METRIC)


def leftovers(
    view: KernelView, pools: Iterable[Pool], wanted: Collection[RouteKey], cluster: Cluster
) -> Iterator[Route]:
    """The foreign routes that PRE-1 names. `wanted`: keys of routes that are to be ours. Pure."""
    suspects = [route for route in view.foreign.values() if route.protocol in NUMBERS]
    networks = [pool.network for pool in pools] if suspects else []
    for route in suspects:
        inside = (
            route.dst.version == pool.version and route.dst.subnet_of(pool)  # type: ignore[arg-type]
            for pool in networks
        )
        if not any(inside):
            continue
        ours = view.own.get(_key(route.dst))
        same_pod = (
            ours is not None
            and is_host(route.prefix)
            and view.is_workload(route.oif)
            and ours.oif == route.oif
        )
        if (
            (route.protocol in (CALICO, BIRD) and ours is not None)
            or (route.protocol == CALICO and not awaited(route, wanted, view, cluster))
            or (route.protocol == BOOT and same_pod)
        ):
            yield route


class Predecessors:
    """Sweeps; remembers what was swept."""

    def __init__(self) -> None:
        self._swept: set[RouteKey] = set()

    def sweep(
        self,
        sock: Socket,
        view: KernelView,
        pools: Iterable[Pool],
        wanted: Collection[RouteKey],
        cluster: Cluster,
    ) -> None:
        """Remove what is left. Raises `KernelError` only when the socket fails."""
        doomed = []
        for route in leftovers(view, pools, wanted, cluster):
            if route.key not in self._swept:
                doomed.append(route)
            else:
                log.warning(
                    "route of protocol %d came back after it was removed: is Calico still running?",
                    route.protocol,
                    extra={"object": str(route.dst)},
                )
        if not doomed:
            return
        failed = sock.transact_all([kernel.delete(route) for route in doomed])
        for index, route in enumerate(doomed):
            if index in failed and failed[index].errno != errno.ESRCH:
                log.warning("%s", failed[index].error(f"delete route {route.dst}"))
                continue
            view.lose_foreign(route.key)
            if index in failed:
                continue  # somebody else removed it
            self._swept.add(route.key)
            log.info(
                "route of protocol %d, left by Calico, removed",
                route.protocol,
                extra={"object": str(route.dst)},
            )
