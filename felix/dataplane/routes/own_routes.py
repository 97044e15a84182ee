"""What routes of felix look like, and those of Calico's felix that they replace. Pure.

Tested in tests/felix/dataplane/test_dataplane_parts.py.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix import ROUTE_METRIC, ROUTE_PROTOCOL
from felix.dataplane.devices.view import KernelView
from linux.prefixes import is_host
from linux.route_values import PROTOCOL_KERNEL
from linux.routes import NextHop, Route

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
CALICO = 80
"""The protocol number of the routes of Calico's felix."""


def pod_route(network: IPNetwork, index: int) -> Route:
    """The route of a pod's address to its host-side interface."""
    return _route(network, (NextHop(None, index),))


def blackhole_route(network: IPNetwork) -> Route:
    """The route that ends what no pod of an own block takes."""
    return Route(network, (), "blackhole", protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)


def _route(network: IPNetwork, hops: tuple[NextHop, ...]) -> Route:
    return Route(network, hops, protocol=ROUTE_PROTOCOL, metric=ROUTE_METRIC)


def is_pod_route(route: Route) -> bool:
    """Whether a route of ours leads to a local pod."""
    return is_host(route.prefix) and route.shape.direct


def leads_to_workload(route: Route, view: KernelView) -> bool:
    """Whether this is what Calico's felix and its CNI plugin write for a pod, under any number
    that `deviceRouteProtocol` gives it: an address, by no gateway, to a workload's interface.
    """
    by_kernel = route.protocol == PROTOCOL_KERNEL
    return is_pod_route(route) and not by_kernel and view.is_workload(route.oif)
