"""Which tunnels a node needs: what the pools ask for, and what the operator decided.

Every pool counts, a disabled one too: its pods are still there
(docs/reference/dataplane.md#synchronisation-and-configuration). The parameters IpInIpEnabled and
VXLANEnabled override the pools in both directions; without a value the pools decide. A pool that
asks for a tunnel that is switched off is named.
Tested in tests/felix/calc/test_encapsulation.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

IPNetwork = IPv4Network | IPv6Network


class PoolFacts(Protocol):
    """What counts of a pool: its network, and whether its modes are other than `Never`."""

    @property
    def network(self) -> IPNetwork: ...
    @property
    def ipip(self) -> bool: ...
    @property
    def vxlan(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """The tunnels that are needed. `refused`: pools that ask in vain, and for what."""

    ipip: bool = False
    vxlan: bool = False
    vxlan_v6: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)


def encapsulation(
    pools: Mapping[str, PoolFacts], *, ipip: bool | None = None, vxlan: bool | None = None
) -> Encapsulation:
    """What pools by name need; `ipip` and `vxlan` are the parameters, None: the pools decide."""
    refused = {}
    wants_ipip = wants_vxlan = wants_vxlan_v6 = False
    for name, pool in pools.items():
        version = pool.network.version
        # IPIP carries IPv4 only.
        wants_ipip |= pool.ipip and version == 4
        wants_vxlan |= pool.vxlan and version == 4
        wants_vxlan_v6 |= pool.vxlan and version == 6
        if pool.ipip and (ipip is False or version == 6):
            why = "IpInIpEnabled is false" if version == 4 else "IPIP carries IPv4 only"
            refused[name] = f"spec.ipipMode: {why}"
        if pool.vxlan and vxlan is False:
            refused[name] = "spec.vxlanMode: VXLANEnabled is false"
    return Encapsulation(
        ipip=wants_ipip if ipip is None else ipip,
        vxlan=wants_vxlan if vxlan is None else vxlan,
        vxlan_v6=wants_vxlan_v6 if vxlan is None else vxlan,
        refused=refused,
    )


class LastEncapsulation:
    """The same, worked out again when what it depends on is other than the last time."""

    def __init__(self) -> None:
        self._known: tuple[tuple[int, bool | None, bool | None], Encapsulation] | None = None

    def of(
        self,
        pools: Mapping[str, PoolFacts],
        version: int,
        ipip: bool | None,
        vxlan: bool | None,
    ) -> Encapsulation:
        """`version`: a number that differs when the pools do."""
        asked = (version, ipip, vxlan)
        if self._known is None or self._known[0] != asked:
            self._known = (asked, encapsulation(pools, ipip=ipip, vxlan=vxlan))
        return self._known[1]
