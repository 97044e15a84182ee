"""Address pools and nodes: what NAT, path checks and (later) encapsulation need of them.

Tested in tests/felix/test_calc_graph.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)

from libcalico.errors import InvalidValue
from libcalico.model import BGPConfiguration, IPPool, Node

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


_NO_TUNNEL = ("", "Never", None)


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool: its network, whether it is in use, whether its pods are masqueraded.

    `ipip` and `vxlan`: whether any of its traffic is to go through such a tunnel.
    """

    network: IPNetwork
    enabled: bool
    nat_outgoing: bool
    ipip: bool = False
    vxlan: bool = False


def pool_of(name: str, value: IPPool) -> Pool:
    """The facts of a stored pool. Raises `InvalidValue` when its cidr is none."""
    spec = value.spec
    try:
        return Pool(
            spec.network,
            not spec.disabled,
            spec.natOutgoing,
            ipip=spec.ipipMode not in _NO_TUNNEL,
            vxlan=spec.vxlanMode not in _NO_TUNNEL,
        )
    except ValueError as error:
        raise InvalidValue("spec.cidr", spec.cidr, str(error), f"IPPool({name})") from None


def node_addresses(value: Node) -> frozenset[IPAddress]:
    """A node's addresses, one a family: BGP's, else InternalIP, else ExternalIP (reference 1.7)."""
    spec = value.spec
    found: dict[int, IPAddress] = {}
    if spec.bgp is not None:
        for text in (spec.bgp.ipv4Address, spec.bgp.ipv6Address):
            _note(found, text)
    for kind in ("InternalIP", "ExternalIP"):
        for address in spec.addresses:
            if address.type == kind:
                _note(found, address.address)
    return frozenset(found.values())


def _note(found: dict[int, IPAddress], text: str) -> None:
    try:
        address = ip_interface(text).ip if "/" in text else ip_address(text)
    except ValueError:
        return
    found.setdefault(address.version, address)


def service_nets(value: BGPConfiguration | None) -> frozenset[IPNetwork]:
    """Where services have addresses. Raises `InvalidValue` for what is no network."""
    if value is None:
        return frozenset()
    found: set[IPNetwork] = set()
    for field in ("serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"):
        for block in getattr(value.spec, field):
            try:
                found.add(ip_network(block.cidr, strict=False))
            except ValueError:
                where = "BGPConfiguration(default)"
                raise InvalidValue(
                    f"spec.{field}", block.cidr, "must be a network", where
                ) from None
    return frozenset(found)


def member(network: IPNetwork | IPAddress) -> str:
    """A network as an ipset member: a host without its prefix length."""
    if isinstance(network, (IPv4Network, IPv6Network)) and (
        network.prefixlen == network.max_prefixlen
    ):
        return str(network.network_address)
    return str(network)


def members(version: int, networks: Iterable[IPNetwork | IPAddress]) -> frozenset[str]:
    """The ipset members of one family; a /0, which ipset cannot hold, as its two halves."""
    found: set[str] = set()
    for network in networks:
        if network.version != version:
            continue
        if isinstance(network, (IPv4Network, IPv6Network)) and network.prefixlen == 0:
            found.update(str(half) for half in network.subnets())
        else:
            found.add(member(network))
    return frozenset(found)
