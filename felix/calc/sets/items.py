"""What selectors and sets need of an endpoint or a network set, and nothing more.

Every workload endpoint and network set of the cluster is reduced to this at the edge: labels,
profiles, members of sets in ipset's spelling, named ports.

Tested in tests/felix/calc/policy/test_items.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from felix.calc.endpoints import Endpoint
from felix.calc.labels import Labels, NamedPort, named_ports, workload_labels
from felix.calc.pools import member
from libcalico.model import GlobalNetworkSet, NetworkSet, ResourceKey, WorkloadEndpoint
from libcalico.policy_selectors import NAMESPACE_LABEL

IPNetwork = IPv4Network | IPv6Network
NAMESPACE_PROFILE = "kns."


@dataclass(frozen=True, slots=True)
class Item:
    """An endpoint or network set as the index holds it. `members` has no text twice."""

    labels: Labels
    profiles: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    ports: tuple[NamedPort, ...] = ()

    def contribution(self, port: tuple[str, str] | None) -> frozenset[str]:
        """Its members in a set: all, or for a (protocol, name) its `address,protocol:number`."""
        if port is None:
            return frozenset(self.members)
        return frozenset(
            f"{address},{own.protocol}:{own.number}"
            for own in self.ports
            if (own.protocol, own.name) == port
            for address in self.members
        )


def of_local(endpoint: Endpoint) -> Item:
    """A local endpoint, as `LocalEndpoints` decided it."""
    members = dict.fromkeys(member(network) for network in endpoint.networks)
    return Item(endpoint.labels, endpoint.profiles, tuple(members), endpoint.ports)


def of_remote(key: ResourceKey, value: WorkloadEndpoint) -> tuple[Item, str]:
    """Another node's endpoint, and what of it cannot be read."""
    members, trouble = host_members(value.spec.ipNetworks)
    item = Item(
        workload_labels(key, value),
        tuple(value.spec.profiles),
        members,
        named_ports(value.spec.ports),
    )
    return item, trouble


def host_members(texts: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """What another node's endpoint has in sets, and what of it cannot be read.

    Only host networks count (docs/reference/dataplane.md#calculation): a wider one would
    let a pod speak for others.
    """
    networks, bad = read_networks(texts)
    hosts = (n for n in networks if n.prefixlen == n.max_prefixlen)
    members = dict.fromkeys(member(network) for network in hosts)
    return tuple(members), _complaint("spec.ipNetworks", bad)


def of_network_set(key: ResourceKey, value: NetworkSet | GlobalNetworkSet) -> tuple[Item, str]:
    """A network set, and what of it cannot be read: the nets that can be still count."""
    networks, bad = read_networks(value.spec.nets)
    labels = dict(value.metadata.labels)
    profiles: tuple[str, ...] = ()
    if key.namespace:
        labels[NAMESPACE_LABEL] = key.namespace
        profiles = (NAMESPACE_PROFILE + key.namespace,)
    else:
        # What lies in no namespace must not claim to.
        labels.pop(NAMESPACE_LABEL, None)
    members = dict.fromkeys(text for network in networks for text in _spelled(network))
    item = Item(tuple(sorted(labels.items())), profiles, tuple(members))
    return item, _complaint("spec.nets", bad)


def read_networks(texts: Iterable[object]) -> tuple[list[IPNetwork], list[str]]:
    """The networks of texts, bits behind the mask cleared, and the texts that are none."""
    networks, bad = [], []
    for text in texts:
        try:
            networks.append(read_network(text))
        except ValueError:
            bad.append(str(text))
    return networks, bad


def read_network(text: object) -> IPNetwork:
    """A CIDR or address of either family. Raises ValueError."""
    if not isinstance(text, str) or "%" in text:
        raise ValueError(text)
    _, slash, length = text.partition("/")
    if slash and not (length.isascii() and length.isdigit()):
        raise ValueError(text)
    return ip_network(text, strict=False)


def _spelled(network: IPNetwork) -> tuple[str, ...]:
    # A set of networks cannot hold a /0; its two halves mean the same.
    parts = network.subnets() if network.prefixlen == 0 else (network,)
    return tuple(member(part) for part in parts)


def _complaint(field: str, bad: list[str]) -> str:
    if not bad:
        return ""
    return f"{field}: {', '.join(repr(text) for text in bad[:5])}: no network, left out"
