"""What to do about the address of a tunnel. Pure.

Tested in tests/ipam/test_tunnels.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_network

from ipam.records import pool_choice, pools
from ipam.records.blocks import Allocation, parse_address
from ipam.records.pools import TUNNEL, Pool
from ipam.records.tunnel_kinds import IPIP, VXLAN, VXLAN_V6, WIREGUARD, Tunnel
from libcalico.model import Node


class Action(Enum):
    """The action for one tunnel's address."""

    KEEP = "the recorded address is ours"
    RENEW = "give back what our handle holds and assign another"
    ASSIGN = "as RENEW; the recorded one belongs to another handle and stays so"
    ADOPT = "assign the recorded address again, under our handle"
    CLEAR = "no pool asks for this tunnel"
    NOTHING = "no pool asks for this tunnel, and none is recorded"


@dataclass(frozen=True, slots=True)
class Asking:
    """The pools that ask a node for a tunnel, sorted by name.

    `all`: the tunnel is needed as long as one does, for a disabled pool's pods live on. `open`:
    those of them that give addresses.
    """

    all: tuple[Pool, ...] = ()

    @property
    def open(self) -> tuple[Pool, ...]:
        """The pools from which this tunnel's address may come."""
        return tuple(pool for pool in self.all if not pool.disabled)


def asking(
    tunnel: Tunnel, known: Iterable[Pool], node: Node, host_encryption: bool = False
) -> Asking:
    """The pools that ask the node for this tunnel. Pure."""
    asking_pools = [
        pool
        for pool in known
        if pool.family == tunnel.family
        and TUNNEL in pool.allowed_uses
        and _asks(tunnel, pool, node, host_encryption)
        and pool_choice.selects_node(pool, node.metadata.labels)
    ]
    return Asking(tuple(sorted(asking_pools, key=lambda pool: pool.name)))


def _asks(tunnel: Tunnel, pool: Pool, node: Node, host_encryption: bool) -> bool:
    if tunnel is IPIP:
        return pool.ipip
    if tunnel in (VXLAN, VXLAN_V6):
        return pool.vxlan
    status = node.status
    if status is None or host_encryption:
        return False
    return bool(status.wireguardPublicKey if tunnel is WIREGUARD else status.wireguardPublicKeyV6)


def decide(
    tunnel: Tunnel, node: str, recorded: str, allocation: Allocation | None, asking: Asking
) -> Action:
    """The action for a tunnel; `allocation` is that of the recorded address, if any. Pure.

    An address of a disabled pool gives way to one of an open pool, as in Calico, so that the old
    pool runs empty. Without an open one it stays: Calico takes it away, and with it the way to
    all pods of the pool.
    """
    usable = asking.open
    if not usable:
        ours = allocation is not None and (
            dict(allocation.attributes) == tunnel.attributes(node)
            or not (allocation.attributes or allocation.handle_id)
        )
        if recorded and asking.all and ours:
            return Action.KEEP
        return Action.CLEAR if recorded else Action.NOTHING
    try:
        address = parse_address(recorded)
    except ValueError:
        return Action.RENEW
    if allocation is None:
        return Action.RENEW
    inside = pools.containing(usable, ip_network(address)) is not None
    if dict(allocation.attributes) == tunnel.attributes(node):
        return Action.KEEP if inside else Action.RENEW
    if not allocation.attributes and not allocation.handle_id:
        return Action.ADOPT if inside else Action.RENEW
    return Action.ASSIGN
