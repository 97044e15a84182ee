"""Which addresses of services this node announces. Pure: services, settings in; prefixes out.

Calico's rules (docs/reference/dataplane.md#services). The configured ranges go out whole, from
every node. Single addresses go out for a service that is chosen: by an entry of one address; by
`externalTrafficPolicy: Local` on the nodes that have a ready endpoint; or one by one where
ranges of load balancers are not aggregated.

  SVA-1  Nothing outside the configured ranges is ever announced, also if a Service claims it, and
         never a default route, also if a range is one.
Where services come from is a seam, `ServiceSource`: the Kubernetes API knows them.
Tested in tests/bgp/test_services.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Protocol

from bgp.cluster.view import ClusterView
from bgp.speaker.interface import IPAddress, IPNetwork

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address behind a service: on which node, of which IP version. Ready ones only."""

    node: str
    version: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    """The fields of a Service that BGP needs.

    `local`: its externalTrafficPolicy is Local. `sliced`: it has an EndpointSlice, with ready
    endpoints or without.
    """

    type: str
    cluster_ips: tuple[IPAddress, ...] = ()
    external_ips: tuple[IPAddress, ...] = ()
    load_balancer_ips: tuple[IPAddress, ...] = ()
    local: bool = False
    endpoints: frozenset[Endpoint] = frozenset()
    sliced: bool = True


ServiceKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class ServiceBatch:
    """Changes (None: gone), and whether all services have been told by now."""

    changes: tuple[tuple[ServiceKey, ServiceView | None], ...]
    in_sync: bool = True


class ServiceSource(Protocol):
    """A source of services and their endpoints."""

    @property
    def problem(self) -> str:
        """Why there is no news now; empty if all is well."""

    def require(self) -> None:
        """Read the services from now on: some range of them is announced."""

    def batches(self) -> AsyncIterator[ServiceBatch]:
        """All services, then changes, for ever; after a new list also those that are gone."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The configured ranges. `single`: entries of one address, of external and LB ranges."""

    cluster: tuple[IPNetwork, ...] = ()
    external: tuple[IPNetwork, ...] = ()
    load_balancer: tuple[IPNetwork, ...] = ()
    aggregate: bool = True

    @property
    def whole(self) -> frozenset[IPNetwork]:
        """The ranges that are announced as they are, and that no node routes to another."""
        wide = {net for net in self.external if not _single(net)}
        if self.aggregate:
            wide |= {net for net in self.load_balancer if not _single(net)}
        # "All addresses" as a range allows services of any address; no node is the way to all.
        return frozenset(net for net in wide | set(self.cluster) if net.prefixlen)

    @property
    def single(self) -> frozenset[IPNetwork]:
        """Entries of one address: chosen services only announce them."""
        return frozenset(net for net in self.external + self.load_balancer if _single(net))


def ranges(view: ClusterView, cluster: str = "") -> Ranges:
    """The ranges of BGPConfiguration; `cluster` (CALICO_ADVERTISE_CLUSTER_IPS) overrides one.

    What is no network is left out: it can announce nothing.
    """
    override = [text.strip() for text in cluster.split(",") if text.strip()]
    return Ranges(
        _networks(override or [each.cidr for each in view.defaults.serviceClusterIPs]),
        _networks([each.cidr for each in view.defaults.serviceExternalIPs]),
        _networks([each.cidr for each in view.defaults.serviceLoadBalancerIPs]),
        view.defaults.serviceLoadBalancerAggregation != "Disabled",
    )


def announced(node: str, ours: Ranges, services: Iterable[ServiceView]) -> frozenset[IPNetwork]:
    """The prefixes of services that `node` announces (a node that is excluded: ask not)."""
    prefixes = set(ours.whole)
    for service in services:
        if service.type in _TYPES and service.cluster_ips and service.sliced:
            for version in (4, 6):
                if _chosen(node, version, ours, service):
                    prefixes |= {net for net in _addresses(ours, service) if net.version == version}
    return frozenset(prefixes)


def within(ours: Ranges, remembered: Iterable[IPNetwork]) -> frozenset[IPNetwork]:
    """Those addresses of an earlier life that lie in the ranges of now (SVA-1)."""
    allowed = (*ours.cluster, *ours.external, *ours.load_balancer)
    single = (net.network_address for net in remembered if _single(net))
    return frozenset(_inside(tuple(single), allowed))


def excluded(view: ClusterView) -> bool:
    """Whether this node takes no traffic of services from outside."""
    me = view.nodes.get(view.me)
    return me is not None and me.labels.get(EXCLUDED) == "true"


def _chosen(node: str, version: int, ours: Ranges, service: ServiceView) -> bool:
    if service.local:
        return Endpoint(node, version) in service.endpoints
    mine = {ip_network(each) for each in service.external_ips + service.load_balancer_ips}
    if mine & ours.single:
        return True
    return not ours.aggregate and any(each.version == version for each in service.endpoints)


def _addresses(ours: Ranges, service: ServiceView) -> Iterable[IPNetwork]:
    if ours.cluster:
        yield from _inside(service.cluster_ips, ours.cluster)
    yield from _inside(service.external_ips, ours.external)
    yield from _inside(service.load_balancer_ips, ours.load_balancer)


def _inside(addresses: Iterable[IPAddress], networks: tuple[IPNetwork, ...]) -> list[IPNetwork]:
    return [
        ip_network(address)
        for address in addresses
        if any(address.version == net.version and address in net for net in networks)
    ]


def _networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            continue
    return tuple(dict.fromkeys(networks))


def _single(net: IPNetwork) -> bool:
    return net.prefixlen == net.max_prefixlen
