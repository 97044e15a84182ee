"""Routes of another IPAM plugin that say more than where they lead (ADD-13).

`mtu`, `advmss`, `priority`, `table` and `scope` of a result's route (CNI 1.1.0) are installed as
they stand. Such a route leads through the host like every other; one of link scope has no gateway.
Tested in tests/cni_conformance/test_delegates.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from cni.request.result import Result, Route
from cni.veth.pod_end import GATEWAYS
from libcalico.model.keys import IPNetwork
from linux import routes
from linux.netlink import Socket
from linux.route_values import SCOPE_LINK


def special(result: Result) -> tuple[Route, ...]:
    """The routes of a result that have attributes."""
    return tuple(
        route
        for route in result.routes
        if route.mtu or route.advmss or route.priority or route.table is not None
        or route.scope is not None
    )  # fmt: skip


def plain(destinations: Sequence[IPNetwork], result: Result) -> tuple[IPNetwork, ...]:
    """The destinations without those of the special routes."""
    if not result.routes:
        return tuple(destinations)
    taken = {route.dst.network for route in special(result)}
    return tuple(network for network in destinations if network not in taken)


def install(pod: Socket, index: int, result: Result) -> None:
    """Install them on link `index` of the container. Raises KernelError."""
    for extra in special(result):
        network = ip_network(extra.dst.network)
        gateway = None if extra.scope == SCOPE_LINK else GATEWAYS[network.version]
        route = routes.Route(
            network,
            (routes.NextHop(gateway, index),),
            table=routes.TABLE_MAIN if extra.table is None else extra.table,
            scope=extra.scope,
            metric=extra.priority,
            mtu=extra.mtu,
        )
        result_of = pod.transact([routes.replace(route, advmss=extra.advmss)])[0]
        result_of.check(f"install the route to {network} in the container")
