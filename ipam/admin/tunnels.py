"""The addresses of a node's tunnels: keep, replace, take over or give up. A pure decision.

The Node changes in the transaction that assigns or releases the address, so that neither a
crash nor a rival leaves an address that no Node names.

Source: docs/reference/data-model.md#tunnel-addresses (order, eligibility, decision), 4.2 (handles
and attributes).
Tested in tests/ipam/test_tunnels.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_network

from ipam.admin.tunnel_decision import Action, asking, decide
from ipam.allocator.adoption import adopt
from ipam.allocator.facts import Facts, read_facts
from ipam.allocator.pending_requests import PendingRequest
from ipam.allocator.release import Release as ReleaseIP
from ipam.allocator.release import release_by_handle, release_ips
from ipam.allocator.requests import Allocate, Companion, Granted, Release, Request
from ipam.allocator.worker import Worker
from ipam.records import blocks, pools
from ipam.records.blocks import Allocation, IPAddress, parse_address
from ipam.records.errors import IPAMError
from ipam.records.pools import TUNNEL, Pool
from ipam.records.tunnel_kinds import IPIP, TUNNELS, VXLAN, VXLAN_V6, WIREGUARD, Tunnel
from libcalico.datastore.interface import Datastore, Entry, Put
from libcalico.model.keys import BlockKey, HandleKey, ResourceKey

__all__ = [
    "IPIP",
    "TUNNELS",
    "VXLAN",
    "VXLAN_V6",
    "WIREGUARD",
    "Tunnel",
    "ensure_tunnel_address",
    "ensure_tunnel_addresses",
    "withdraw_tunnel_address",
]


async def ensure_tunnel_addresses(
    store: Datastore, node: str, *, host_encryption: bool = False
) -> dict[Tunnel, IPAddress | None]:
    """Bring all tunnels of a node in order, in Calico's order; None where there is none."""
    addresses: dict[Tunnel, IPAddress | None] = {}
    for tunnel in TUNNELS:
        addresses[tunnel] = await ensure_tunnel_address(
            store, node, tunnel, host_encryption=host_encryption
        )
    return addresses


async def ensure_tunnel_address(
    store: Datastore,
    node: str,
    tunnel: Tunnel,
    *,
    host_encryption: bool = False,
    ready: Callable[[], bool] = lambda: True,
) -> IPAddress | None:
    """Bring one tunnel of a node in order; its address, or None where no pool asks for it.

    `ready` is asked last, when everything has been read: where it says no, no address is taken
    and none is told that the Node does not name already.
    Raises `IPAMError` when the node does not exist or its pools have no address.
    """
    entry = await store.get(ResourceKey("Node", node))
    if entry is None:
        raise IPAMError(f"node {node!r} does not exist: a tunnel address has nowhere to stand")
    known = await read_facts(store, node)
    asked = asking(tunnel, known.pools, entry.value, host_encryption)
    usable = asked.open
    recorded = tunnel.recorded(entry.value)
    holder = await _holder(store, recorded, known)
    await _mended(store, tunnel, node, holder, known)
    handle_id = tunnel.handle_id(node)
    worker = Worker(store, node)
    action = decide(tunnel, node, recorded, holder, asked)
    if action in (Action.RENEW, Action.ASSIGN, Action.ADOPT) and not ready():
        return None
    match action:
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
        case Action.ADOPT:
            address = parse_address(recorded)
            assert holder is not None
            # As it was seen: a pod may have it by now.
            await release_ips(store, [ReleaseIP(address, "", holder.sequence)])
            try:
                await _serve(worker, _request(tunnel, node, usable, (address,)), known, entry)
            except IPAMError:
                pass  # another writer was faster: another address will do
            else:
                return address
    granted = await _serve_another(worker, tunnel, usable, known, entry, holder)
    # A block that was made for it has what the Node named, for no handle counted that.
    left = await _mended(store, tunnel, node, await _holder(store, recorded, known), known)
    if left is not None and left.address not in granted.addresses:
        await release_ips(store, [ReleaseIP(left.address, handle_id, left.sequence)])
    return granted.addresses[0]


async def _serve_another(
    worker: Worker,
    tunnel: Tunnel,
    usable: Sequence[Pool],
    known: Facts,
    entry: Entry,
    holder: Allocation | None,
) -> Granted:
    """Another address than the one that the Node names; `holder` is that one's allocation."""
    node = entry.value.metadata.name
    # Calico lets what the handle holds lie where the Node names a foreign address (an old
    # Node applied again, say), and no later call finds it.
    request = _request(tunnel, node, usable)
    try:
        return await _serve(worker, request, known, entry)
    except IPAMError:
        if holder is not None and dict(holder.attributes) == tunnel.attributes(node):
            raise  # the recorded address is still this tunnel's
        # The last free addresses may be the handle's own, and the recorded one is not its own.
        release = Release(tunnel.handle_id(node), companion=_naming(tunnel, node, lambda _: ""))
        await _serve(worker, release, known, entry)
        return await _serve(worker, request, known, entry)


async def withdraw_tunnel_address(store: Datastore, node: str, tunnel: Tunnel) -> None:
    """Release what the tunnel's handle holds, and let the Node name no address of it.

    Raises `IPAMError` when the node does not exist.
    """
    entry = await store.get(ResourceKey("Node", node))
    if entry is None:
        raise IPAMError(f"node {node!r} does not exist: it has no tunnel address")
    known = await read_facts(store, node)
    holder = await _holder(store, tunnel.recorded(entry.value), known)
    await _mended(store, tunnel, node, holder, known)
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
        replaces=True,
    )


def _naming(tunnel: Tunnel, node: str, text: Callable[[Sequence[IPAddress]], str]) -> Companion:
    key = ResourceKey("Node", node)

    def change(current: Entry | None, addresses: Sequence[IPAddress]) -> Put | None:
        address = text(addresses)
        if not address and (current is None or not tunnel.recorded(current.value)):
            return None
        if current is None:
            raise IPAMError(f"node {node!r} was removed while its tunnel got an address")
        return Put(key, tunnel.written(current.value, address), current.revision, current)

    return Companion(key, change)


async def _serve(worker: Worker, request: Request, known: Facts, node: Entry) -> Granted:
    ticket = PendingRequest(request)
    worker.learn({node.key: node})
    await worker.serve([ticket], known)
    worker.tidy()
    return ticket.done.result()


async def _mended(
    store: Datastore, tunnel: Tunnel, node: str, holder: Allocation | None, known: Facts
) -> Allocation | None:
    """The allocation if it is of the tunnel's handle, which counts it from now on.

    An operator may have deleted the handle, and a block that is made again writes none.
    """
    handle_id = tunnel.handle_id(node)
    if holder is None or holder.handle_id != handle_id:
        return None
    key = _block_of(holder.address, known)
    assert key is not None
    await adopt(store, handle_id, tunnel.attributes(node), {key: [holder.address]})
    return holder


def _block_of(address: IPAddress, known: Facts) -> BlockKey | None:
    pool = pools.containing(known.pools, ip_network(address))
    if pool is None:
        return None
    return BlockKey(ip_network(f"{address}/{pool.block_size}", strict=False))


async def _holder(store: Datastore, recorded: str, known: Facts) -> Allocation | None:
    try:
        address = parse_address(recorded)
    except ValueError:
        return None
    key = _block_of(address, known)
    entry = await store.get(key) if key else None
    allocations_there = blocks.allocations(entry.value) if entry else ()
    return next((one for one in allocations_there if one.address == address), None)
