"""The addresses of a node's tunnels: keep, replace, take over or give up. A pure decision.

The Node changes in the transaction that assigns or releases the address, so that neither a
crash nor a rival leaves an address that no Node names.

Source: data model 4.9 (order, eligibility, decision), 4.2 (handles and attributes).
Tested in tests/ipam/test_tunnels.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_network
from typing import Any

import msgspec

from ipam import blocks, pools
from ipam.blocks import Allocation, IPAddress, parse_address
from ipam.errors import IPAMError
from ipam.facts import Facts, read_facts
from ipam.pools import TUNNEL, Pool
from ipam.release import Release as ReleaseIP
from ipam.release import release_by_handle, release_ips
from ipam.requests import Allocate, Companion, Granted, Release, Request
from ipam.tickets import Ticket
from ipam.worker import Worker
from libcalico.datastore.interface import Datastore, Entry, Put, Selection
from libcalico.model import Node
from libcalico.model.keys import BlockKey, HandleKey, ResourceKey
from libcalico.model.node import NodeBGPSpec, NodeSpec, NodeWireguardSpec


@dataclass(frozen=True, slots=True)
class Tunnel:
    """One kind of tunnel: its attribute, the beginning of its handle, its field of the Node."""

    attribute: str
    handle_prefix: str
    family: int
    part: str
    field: str

    def handle_id(self, node: str) -> str:
        """The handle under which the node holds the address."""
        return f"{self.handle_prefix}{node}"

    def attributes(self, node: str) -> dict[str, str]:
        """What the allocation says of itself."""
        return {"node": node, "type": self.attribute}

    def recorded(self, node: Node) -> str:
        """What the Node says; empty where it says nothing."""
        holder = getattr(node.spec, self.part) if self.part else node.spec
        return getattr(holder, self.field, "") or "" if holder is not None else ""

    def written(self, node: Node, address: str) -> Node:
        """The Node with this address in the tunnel's field."""
        spec: NodeSpec = node.spec
        if self.part:
            empty = NodeBGPSpec() if self.part == "bgp" else NodeWireguardSpec()
            holder = getattr(spec, self.part) or empty
            changed: Any = msgspec.structs.replace(holder, **{self.field: address})
            if changed == NodeWireguardSpec():
                changed = None
            spec = msgspec.structs.replace(spec, **{self.part: changed})
        else:
            spec = msgspec.structs.replace(spec, **{self.field: address})
        return msgspec.structs.replace(node, spec=spec)


WIREGUARD = Tunnel(
    "wireguardTunnelAddress", "wireguard-tunnel-addr-", 4, "wireguard", "interfaceIPv4Address"
)
WIREGUARD_V6 = Tunnel(
    "wireguardV6TunnelAddress", "wireguard-v6-tunnel-addr-", 6, "wireguard", "interfaceIPv6Address"
)
IPIP = Tunnel("ipipTunnelAddress", "ipip-tunnel-addr-", 4, "bgp", "ipv4IPIPTunnelAddr")
VXLAN = Tunnel("vxlanTunnelAddress", "vxlan-tunnel-addr-", 4, "", "ipv4VXLANTunnelAddr")
VXLAN_V6 = Tunnel("vxlanV6TunnelAddress", "vxlan-v6-tunnel-addr-", 6, "", "ipv6VXLANTunnelAddr")
TUNNELS = (WIREGUARD, WIREGUARD_V6, IPIP, VXLAN, VXLAN_V6)


class Action(Enum):
    """What is to be done about one tunnel's address."""

    KEEP = "the recorded address is ours"
    RENEW = "give back what our handle holds and assign another"
    ASSIGN = "as RENEW; the recorded one is somebody else's and stays so"
    ADOPT = "assign the recorded address again, under our handle"
    CLEAR = "no pool asks for this tunnel"
    NOTHING = "no pool asks for this tunnel, and none is recorded"


def eligible(
    tunnel: Tunnel, resources: Iterable[Any], node: Node, host_encryption: bool = False
) -> list[Pool]:
    """The pools from which this tunnel's address may come, sorted by name. Pure."""
    found: list[Pool] = []
    for resource in resources:
        pool = pools.from_resource(resource)
        usable = not pool.disabled and pool.family == tunnel.family and TUNNEL in pool.allowed_uses
        asked = usable and _asks(tunnel, resource, node, host_encryption)
        if asked and pools.selects_node(pool, node.metadata.labels):
            found.append(pool)
    return sorted(found, key=lambda pool: pool.name)


def _asks(tunnel: Tunnel, resource: Any, node: Node, host_encryption: bool) -> bool:
    if tunnel is IPIP:
        return (resource.spec.ipipMode or "Never") != "Never"
    if tunnel in (VXLAN, VXLAN_V6):
        return (resource.spec.vxlanMode or "Never") != "Never"
    status = node.status
    if status is None or host_encryption:
        return False
    return bool(status.wireguardPublicKey if tunnel is WIREGUARD else status.wireguardPublicKeyV6)


def decide(
    tunnel: Tunnel, node: str, recorded: str, allocation: Allocation | None, usable: Sequence[Pool]
) -> Action:
    """What to do; `allocation` is who holds the recorded address, if anybody does. Pure."""
    if not usable:
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


async def ensure_tunnel_addresses(
    store: Datastore, node: str, *, host_encryption: bool = False
) -> dict[Tunnel, IPAddress | None]:
    """Bring all tunnels of a node in order, in Calico's order; None where there is none."""
    found: dict[Tunnel, IPAddress | None] = {}
    for tunnel in TUNNELS:
        found[tunnel] = await ensure_tunnel_address(
            store, node, tunnel, host_encryption=host_encryption
        )
    return found


async def ensure_tunnel_address(
    store: Datastore, node: str, tunnel: Tunnel, *, host_encryption: bool = False
) -> IPAddress | None:
    """Bring one tunnel of a node in order; its address, or None where no pool asks for it.

    Raises `IPAMError` when the node does not exist or its pools have no address.
    """
    entry = await store.get(ResourceKey("Node", node))
    if entry is None:
        raise IPAMError(f"node {node!r} does not exist: a tunnel address has nowhere to stand")
    resources = [one.value for one in (await store.list(Selection("IPPool"))).entries]
    known = await read_facts(store, node)
    usable = eligible(tunnel, resources, entry.value, host_encryption)
    recorded = tunnel.recorded(entry.value)
    holder = await _holder(store, recorded, known)
    handle_id = tunnel.handle_id(node)
    worker = Worker(store, node)
    match decide(tunnel, node, recorded, holder, usable):
        case Action.KEEP:
            return parse_address(recorded)
        case Action.NOTHING:
            if await store.get(HandleKey(handle_id)) is not None:
                await release_by_handle(store, handle_id)
            return None
        case Action.CLEAR:
            release = Release(handle_id, companion=_naming(tunnel, node, lambda _: ""))
            await _serve(worker, release, known, entry)
            return None
        case Action.RENEW | Action.ASSIGN:
            # Calico lets what the handle holds lie where the Node names somebody else's address
            # (an old Node applied again, say): nobody would ever find it.
            await _serve(worker, Release(handle_id), known, entry)
        case Action.ADOPT:
            address = parse_address(recorded)
            await release_ips(store, [ReleaseIP(address)])
            try:
                await _serve(worker, _request(tunnel, node, usable, (address,)), known, entry)
            except IPAMError:
                pass  # somebody was faster: another one will do
            else:
                return address
    granted = await _serve(worker, _request(tunnel, node, usable), known, entry)
    return granted.addresses[0]


async def withdraw_tunnel_address(store: Datastore, node: str, tunnel: Tunnel) -> None:
    """Release what the tunnel's handle holds, and let the Node name no address of it.

    Raises `IPAMError` when the node does not exist.
    """
    entry = await store.get(ResourceKey("Node", node))
    if entry is None:
        raise IPAMError(f"node {node!r} does not exist: it has no tunnel address")
    known = await read_facts(store, node)
    release = Release(tunnel.handle_id(node), companion=_naming(tunnel, node, lambda _: ""))
    await _serve(Worker(store, node), release, known, entry)


def _request(
    tunnel: Tunnel, node: str, usable: Sequence[Pool], fixed: tuple[IPAddress, ...] = ()
) -> Allocate:
    return Allocate(
        tunnel.handle_id(node),
        tunnel.attributes(node),
        families=(tunnel.family,),
        requested={tunnel.family: [pool.name for pool in usable]},
        use=TUNNEL,
        companion=_naming(tunnel, node, lambda addresses: str(addresses[0])),
        fixed=fixed,
    )


def _naming(tunnel: Tunnel, node: str, text: Callable[[Sequence[IPAddress]], str]) -> Companion:
    key = ResourceKey("Node", node)

    def change(current: Entry | None, addresses: Sequence[IPAddress]) -> Put | None:
        address = text(addresses)
        if current is None and not address:
            return None
        if current is None:
            raise IPAMError(f"node {node!r} was removed while its tunnel got an address")
        return Put(key, tunnel.written(current.value, address), current.revision, current)

    return Companion(key, change)


async def _serve(worker: Worker, request: Request, known: Facts, node: Entry) -> Granted:
    ticket = Ticket(request)
    worker.learn({node.key: node})
    await worker.serve([ticket], known)
    worker.tidy()
    return ticket.done.result()


async def _holder(store: Datastore, recorded: str, known: Facts) -> Allocation | None:
    try:
        address = parse_address(recorded)
    except ValueError:
        return None
    pool = pools.containing(known.pools, ip_network(address))
    if pool is None:
        return None
    key = BlockKey(ip_network(f"{address}/{pool.block_size}", strict=False))
    entry = await store.get(key)
    held = blocks.allocations(entry.value) if entry else ()
    return next((one for one in held if one.address == address), None)
