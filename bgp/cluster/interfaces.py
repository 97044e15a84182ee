"""The node's connected networks, as felix tells them: which interface leads where. Pure.

BGPFilters match interfaces; `ignoredInterfaces` keeps networks of some from being this
node's own. Interfaces of pods and of kube-proxy never count
(docs/reference/dataplane.md#global-settings-of-bgp).
Tested in tests/bgp/test_interfaces.py.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from bgp.speaker.interface import IPAddress, IPNetwork

PODS = "cali"
"""What a way to a pod of this node leaves by: `cali` and something; filters match `cali*`."""
LOOPBACK = "lo"
_NEVER = ("cali*", "kube-ipvs*")


@dataclass(frozen=True)
class Interfaces:
    """Connected networks and their interfaces; `mine` are addresses of this node's pods."""

    networks: Mapping[IPNetwork, str] = field(default_factory=dict)

    @staticmethod
    def of(names: Mapping[str, str]) -> Interfaces:
        """From felix's words: network -> interface. What is no network is left out."""
        networks: dict[IPNetwork, str] = {}
        for text, name in names.items():
            try:
                networks[ip_network(text, strict=False)] = name
            except ValueError:
                continue
        return Interfaces(networks)

    def own(self, ignored: Iterable[str]) -> tuple[IPNetwork, ...]:
        """The networks that count as this node's own; `ignored` are patterns with `*`."""
        patterns = (*_NEVER, *ignored)
        return tuple(
            network
            for network, name in self.networks.items()
            if not network.is_link_local
            and not network.is_loopback
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        )

    @property
    def links(self) -> tuple[IPNetwork, ...]:
        """The networks in which others are reached without a router."""
        return tuple(
            network
            for network, name in self.networks.items()
            if network.prefixlen < network.max_prefixlen and name != LOOPBACK
        )

    def towards(self, what: IPAddress | IPNetwork) -> str:
        """The interface of a next hop, or of an own network; single pod addresses: `cali`."""
        name = self.networks.get(what) if what in self.networks else None  # type: ignore[arg-type]
        if name is not None:
            return str(name)
        net = ip_network(what)
        around = [
            network
            for network in self.networks
            if network.version == net.version and net.subnet_of(network)  # type: ignore[arg-type]
        ]
        if around:
            return self.networks[max(around, key=lambda network: network.prefixlen)]
        single_network = not isinstance(what, IPAddress) and net.prefixlen == net.max_prefixlen
        return PODS if single_network else ""
