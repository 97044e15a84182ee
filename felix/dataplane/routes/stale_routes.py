"""What Calico left on a node that was taken over: routes, swept once ours stand in their stead,
and its ARP table (`felix.dataplane.rules.calico_arp`).

Calico's felix writes protocol 80 for tunnels and what `deviceRouteProtocol` says for pods, 3
(`boot`) by default, as `ip route add` and Calico's CNI plugin do; its BIRD writes 12. A pod's
route has metric 1024, before Calico 3.32 it has 0. One with the key of ours is replaced in one step
(RTE-2); others have another metric, 0 or 32, win over ours, and would lead astray as soon as
something moves, or do so already.

Invariants:
  PRE-1  A route goes only if it leads an address to a workload's interface, by no gateway, and ours
         of that address leads to a workload, too; its protocol number and the workload that it
         leads to do not matter. Otherwise only if it lies in an address pool: with 80 if ours to
         the same destination stands or none is to come (`awaited`), with 12 if ours stands.
  PRE-2  A route that comes back after it was swept has a living writer: it stays, and is named in
         the log and, as long as it lasts, in a condition (`living`).
Tested in tests/felix/dataplane/test_stale_routes.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from felix import ROUTE_METRIC
from felix.calc.pools import Pool
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.own_routes import CALICO, leads_to_workload
from felix.dataplane.routes.writing import Failures, Writer
from felix.dataplane.rules.calico_arp import ArpTable
from linux import prefixes
from linux.routes import TABLE_MAIN, Route, RouteKey

log = logging.getLogger(__name__)
IPNetwork = IPv4Network | IPv6Network

BIRD = 12
NUMBERS = frozenset({CALICO, BIRD})


class Cluster(Protocol):
    """What is known of other nodes; `felix.calc.cluster_routes.ClusterRoutes` is one."""

    def around(self, network: IPNetwork) -> Iterator[IPNetwork]:
        """The networks of other nodes that are there, which hold all of this one."""


def awaited(
    route: Route, desired: Collection[RouteKey], view: KernelView, cluster: Cluster
) -> bool:
    """Whether a route of ours that would take this one's packets is still to come. Pure.

    It is wanted but not written, or leads to another node, whose tunnel may not be ready.
    """
    if _key(route.dst) in desired:
        return True
    return any(_key(network) not in view.own for network in cluster.around(route.dst))


def _key(network: IPNetwork) -> RouteKey:
    return (TABLE_MAIN, prefixes.pack(network), ROUTE_METRIC)


def leftovers(
    view: KernelView, pools: Iterable[Pool], desired: Collection[RouteKey], cluster: Cluster
) -> Iterator[Route]:
    """The foreign routes that PRE-1 names. `desired`: keys of routes that are to be ours. Pure."""
    suspects = []
    for route in view.foreign.values():
        ours = view.own.get(_key(route.dst)) if leads_to_workload(route, view) else None
        if ours is not None and leads_to_workload(ours, view):
            yield route
        elif route.protocol in NUMBERS:
            suspects.append(route)
    networks = [pool.network for pool in pools] if suspects else []
    for route in suspects:
        inside = (
            route.dst.version == pool.version and route.dst.subnet_of(pool)  # type: ignore[arg-type]
            for pool in networks
        )
        if not any(inside):
            continue
        ours = view.own.get(_key(route.dst))
        if ours is not None or (
            route.protocol == CALICO and not awaited(route, desired, view, cluster)
        ):
            yield route


class StaleRoutes:
    """Sweeps; remembers what was swept. `living`: routes that came back."""

    def __init__(self) -> None:
        self._swept: set[RouteKey] = set()
        self.living: dict[RouteKey, Route] = {}
        self._arp = ArpTable()

    def sweep(
        self,
        writer: Writer,
        view: KernelView,
        pools: Iterable[Pool],
        desired: Collection[RouteKey],
        cluster: Cluster,
    ) -> None:
        """Remove what is left. Raises `KernelError` only when the socket fails."""
        self._arp.sweep(view)
        doomed, self.living = [], {}
        for route in leftovers(view, pools, desired, cluster):
            if route.key not in self._swept:
                doomed.append(route)
            else:
                self.living[route.key] = route
                log.warning(
                    "route of protocol %d came back after it was removed: is Calico still running?",
                    route.protocol,
                    extra={"object": str(route.dst)},
                )
        if not doomed or view.outdated:
            return
        writer.write((), doomed, lambda failed: self._account(failed, view, doomed))

    def _account(self, failed: Failures, view: KernelView, doomed: Iterable[Route]) -> None:
        for index, route in enumerate(doomed):
            if index in failed and failed[index].errno != errno.ESRCH:
                log.warning("%s", failed[index].error(f"delete route {route.dst}"))
                continue
            view.lose_foreign(route.key)
            if index in failed:
                continue  # another program removed it
            self._swept.add(route.key)
            log.info(
                "route of protocol %d, left by Calico, removed",
                route.protocol,
                extra={"object": str(route.dst)},
            )
