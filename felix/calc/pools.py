"""Address pools: what NAT, path checks and encapsulation need of them.

`disabled` is not among it: it stops new assignments from the pool only. Addresses that are in use
stay, with all that leads there.

Invariants:
  PLR-1  What leads to an address in use, and what is masqueraded on the way, does not depend on
         whether its pool is disabled.
Tested in tests/felix/calc/test_pools.py and test_graph.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)

from libcalico.errors import InvalidValue
from libcalico.model import BGPConfiguration, IPPool

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


NEVER, ALWAYS, CROSS_SUBNET = "Never", "Always", "CrossSubnet"


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool: its network, and whether its pods are masqueraded.

    `exported`: whether its addresses may be announced.
    """

    network: IPNetwork
    nat_outgoing: bool
    ipip_mode: str = NEVER
    vxlan_mode: str = NEVER
    exported: bool = True

    @property
    def ipip(self) -> bool:
        """Whether any of its traffic is to go through IP-in-IP."""
        return self.ipip_mode != NEVER

    @property
    def vxlan(self) -> bool:
        """Whether any of its traffic is to go through VXLAN."""
        return self.vxlan_mode != NEVER


def pool_of(name: str, value: IPPool) -> Pool:
    """The facts of a stored pool. Raises `InvalidValue` when its cidr is none."""
    spec = value.spec
    try:
        return Pool(
            spec.network,
            spec.natOutgoing,
            ipip_mode=spec.ipipMode or NEVER,
            vxlan_mode=spec.vxlanMode or NEVER,
            exported=not spec.disableBGPExport,
        )
    except InvalidValue as error:
        raise InvalidValue(error.field, error.value, error.rule, f"IPPool({name})") from None


def service_nets(value: BGPConfiguration | None) -> frozenset[IPNetwork]:
    """Where services have addresses. Raises `InvalidValue` for what is no network."""
    if value is None:
        return frozenset()
    nets: set[IPNetwork] = set()
    for field in ("serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs"):
        for block in getattr(value.spec, field):
            try:
                nets.add(ip_network(block.cidr, strict=False))
            except ValueError:
                where = "BGPConfiguration(default)"
                raise InvalidValue(
                    f"spec.{field}", block.cidr, "must be a network", where
                ) from None
    return frozenset(nets)


def member(network: IPNetwork | IPAddress) -> str:
    """A network as an ipset member: a host without its prefix length."""
    if isinstance(network, (IPv4Network, IPv6Network)) and (
        network.prefixlen == network.max_prefixlen
    ):
        return str(network.network_address)
    return str(network)


def members(version: int, networks: Iterable[IPNetwork | IPAddress]) -> frozenset[str]:
    """The ipset members of one family; a /0, which ipset cannot hold, as its two halves."""
    texts: set[str] = set()
    for network in networks:
        if network.version != version:
            continue
        if isinstance(network, (IPv4Network, IPv6Network)) and network.prefixlen == 0:
            texts.update(str(half) for half in network.subnets())
        else:
            texts.add(member(network))
    return frozenset(texts)
