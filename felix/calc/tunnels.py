"""How a packet gets to another node: straight, in IP-in-IP, in VXLAN, or as `bgp` says.

Pure: pool, this node and the other one in, a way out. A pool's tunnel counts for its addresses
wherever they are; `CrossSubnet` spares it where the other node's address lies in the network
that this node's own Node resource names (the stored prefix, not the interface's;
docs/reference/dataplane.md#route-calculation). Addresses without a tunnel are bgp's to route,
unless bgp tells none: there is no speaker on this node, or the pool is kept from being announced.
Then the way is straight, between nodes of one network only: a router between knows nothing of pods
(flannel's host-gw, docs/reference/dataplane.md#host-gw).

Invariants:
  TUN-1  With mode Always every address of another node goes into the tunnel, with CrossSubnet
         exactly those of nodes outside the own network, with Never none.
  TUN-2  A way into a tunnel exists only when both ends of it are known.
Tested in tests/felix/calc/test_tunnels.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix.calc.nodes import NodeFacts
from felix.calc.pools import ALWAYS, CROSS_SUBNET, NEVER, Pool

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


class Kind(Enum):
    """What a packet is put into."""

    STRAIGHT = "straight"
    IPIP = "ipip"
    VXLAN = "vxlan"


@dataclass(frozen=True, slots=True)
class RemoteHop:
    """To the next hop `via`: the node's address, or the tunnel's at its end; None: the
    destination is that end itself.
    """

    kind: Kind
    via: IPAddress | None


@dataclass(frozen=True, slots=True)
class TunnelSupport:
    """What this node can do: tunnels that are wanted and that its kernel has, by family.

    `told`: whether a speaker tells this node ways to pools without a tunnel.
    """

    ipip: bool = True
    vxlan: frozenset[int] = frozenset({4, 6})
    told: bool = True


def way(
    network: IPNetwork,
    pool: Pool,
    me: NodeFacts,
    other: NodeFacts,
    means: TunnelSupport,
) -> RemoteHop | str:
    """How packets for a network of another node leave; or why there is no way ("": bgp tells)."""
    version = network.version
    node = other.address(version)
    if node is None:
        return f"it has no IPv{version} address"
    near = me.neighbours(node)
    straight = RemoteHop(Kind.STRAIGHT, node)
    for mode, into in ((pool.ipip_mode, _ipip), (pool.vxlan_mode, _vxlan)):
        if mode == ALWAYS or (mode == CROSS_SUBNET and not near):
            return into(network, node, me, other, means)
        if mode == CROSS_SUBNET:
            return straight
    if means.told and pool.exported:
        return ""
    if not near:
        return f"it lies outside this node's IPv{version} network, and no tunnel leads there"
    return straight


def way_without_pool(
    network: IPNetwork, me: NodeFacts, other: NodeFacts, means: TunnelSupport
) -> RemoteHop | str:
    """How packets for a network leave whose pool was removed before its pods: as `bgp` says.

    Without a speaker straight to neighbours, to others by VXLAN where other pools still ask for
    it: nothing says any more how the pool wanted it.
    """
    vxlan = CROSS_SUBNET if network.version in means.vxlan else NEVER
    if means.told:
        return ""
    return way(network, Pool(network, nat_outgoing=False, vxlan_mode=vxlan), me, other, means)


def _ipip(
    network: IPNetwork,
    node: IPAddress,
    me: NodeFacts,
    other: NodeFacts,
    means: TunnelSupport,
) -> RemoteHop | str:
    if network.version != 4 or not means.ipip:
        return ""
    if means.told and other.ipip is None:
        # It has not said that it unwraps; what bgp tells serves until it does.
        return ""
    return RemoteHop(Kind.IPIP, node)


def _vxlan(
    network: IPNetwork,
    node: IPAddress,
    me: NodeFacts,
    other: NodeFacts,
    means: TunnelSupport,
) -> RemoteHop | str:
    if network.version not in means.vxlan:
        return ""
    far = other.vtep(network.version)
    if far is None:
        return f"it has no VXLAN tunnel address for IPv{network.version} yet"
    if me.vtep(network.version) is None:
        # Said of this node once, not of every other (felix.dataplane.devices.tunnels).
        return ""
    host = network.prefixlen == network.max_prefixlen
    return RemoteHop(
        Kind.VXLAN, None if host and network.network_address == far.address else far.address
    )
