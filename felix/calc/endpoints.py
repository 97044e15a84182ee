"""A workload endpoint as felix sees it, made of a stored or offered resource.

Tested in tests/felix/calc/test_endpoints.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from felix.calc.labels import Labels, NamedPort, named_ports, workload_labels
from libcalico.conversion.traffic_limits import UNLIMITED, TrafficLimits, traffic_limits
from libcalico.errors import InvalidValue
from libcalico.model import IPNAT, ResourceKey, WorkloadEndpoint

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One interface of a local workload, as far as felix cares. `networks` are /32 and /128.

    `spoofable`: networks whose addresses it asks to use as its source besides.
    `floating`: pairs of a floating address, which is to lead to it, and its own.
    `uid`: of the stored object; two that are equal else may be two attempts at one pod.
    """

    key: ResourceKey
    container_id: str
    interface: str
    networks: tuple[IPNetwork, ...]
    mac: str
    profiles: tuple[str, ...]
    orchestrator: str
    workload: str
    endpoint: str
    labels: Labels = ()
    ports: tuple[NamedPort, ...] = ()
    spoofable: tuple[IPNetwork, ...] = ()
    floating: tuple[tuple[IPAddress, IPAddress], ...] = ()
    limits: TrafficLimits = UNLIMITED
    uid: str = field(default="", compare=False)

    @property
    def identity(self) -> tuple[str, str, str]:
        """What the reference orders claimants of one interface by."""
        return (self.orchestrator, self.workload, self.endpoint)

    @property
    def families(self) -> frozenset[int]:
        """Those of its addresses; both if it has none."""
        versions = frozenset(network.version for network in (*self.networks, *self.spoofable))
        return versions or frozenset({4, 6})


def from_resource(key: ResourceKey, value: WorkloadEndpoint) -> Endpoint:
    """The endpoint of a stored resource. Raises `InvalidValue` for what cannot be routed."""
    spec = value.spec
    if not _INTERFACE.fullmatch(spec.interfaceName):
        # No character of a name may break the text of the rules.
        allowed = "must be 1 to 15 letters, digits, dots, dashes or underscores"
        raise InvalidValue("spec.interfaceName", spec.interfaceName, allowed, str(key))
    workload = f"{key.namespace}/{spec.pod}" if spec.pod else spec.workload
    return Endpoint(
        key=key,
        container_id=spec.containerID,
        interface=spec.interfaceName,
        networks=tuple(_host_network(text, key) for text in spec.ipNetworks),
        mac=spec.mac,
        profiles=tuple(spec.profiles),
        orchestrator=spec.orchestrator,
        workload=workload,
        endpoint=spec.endpoint,
        labels=workload_labels(key, value),
        ports=named_ports(value.spec.ports),
        spoofable=tuple(_network(text, key) for text in spec.allowSpoofedSourcePrefixes),
        floating=tuple(_floating(nat, spec.ipNetworks, key) for nat in spec.ipNATs),
        limits=traffic_limits(spec.qosControls),
        uid=value.metadata.uid,
    )


def addresses(active: Mapping[str, Endpoint], interfaces: Iterable[str]) -> frozenset[IPAddress]:
    """All addresses of the endpoints of these interfaces."""
    return frozenset(
        network.network_address for name in interfaces for network in active[name].networks
    )


def _floating(nat: IPNAT, own: list[str], key: ResourceKey) -> tuple[IPAddress, IPAddress]:
    """A pair of floating and own address; it leads to no other endpoint's address."""
    try:
        outer, inner = ip_address(nat.externalIP), ip_address(nat.internalIP)
    except ValueError:
        raise InvalidValue("spec.ipNATs", nat.externalIP, "must be addresses", str(key)) from None
    if outer.version != inner.version or str(ip_network(inner)) not in own:
        rule = "must lead to an address of the endpoint, of the same family"
        raise InvalidValue("spec.ipNATs", nat.externalIP, rule, str(key))
    return outer, inner


def _network(text: str, key: ResourceKey) -> IPNetwork:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        field = "spec.allowSpoofedSourcePrefixes"
        raise InvalidValue(field, text, "must be a network", str(key)) from None


def _host_network(text: str, key: ResourceKey) -> IPNetwork:
    try:
        network = ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen != network.max_prefixlen:
        raise InvalidValue("spec.ipNetworks", text, "must be a /32 or /128", str(key))
    return network
