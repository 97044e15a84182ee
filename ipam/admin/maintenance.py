"""What a removed node leaves: its pods' addresses, its tunnels' addresses, its claims.

Every step is guarded and idempotent; an interrupted command can simply be repeated. An address is
released only as the allocation that was read (handle and sequence number), and not if that names
another node: an endpoint that was left behind may name an address that another pod has now.
Source: docs/reference/data-model.md#side-effects-of-writes, #release. Tested in
tests/ipam/test_service.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipam.allocator.hosts import release_pool_affinities, remove_host
from ipam.allocator.release import Release, release_ips
from ipam.records import blocks
from ipam.records.blocks import IPAddress
from ipam.records.endpoints import addresses_of
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue
from libcalico.model.keys import ResourceKey

__all__ = ["release_addresses", "release_host", "release_pool_affinities"]


async def release_addresses(store: Datastore, addresses: Iterable[IPAddress]) -> list[IPAddress]:
    """Release addresses of any holder; returns those that were in use."""
    result = await release_ips(store, [Release(address) for address in addresses])
    return list(result.released)


async def release_host(store: Datastore, node: str) -> list[IPAddress]:
    """Release the addresses of a node's endpoints and tunnels, then all its claims.

    Blocks with addresses of others in them stay, without owner. Returns what was released.
    """
    endpoints = await store.list(Selection("WorkloadEndpoint"))
    addresses = {
        address
        for entry in endpoints.entries
        if entry.value.spec.node == node
        for address in addresses_of(entry)
    }
    stored = (await store.list(Selection("Block"))).entries
    allocations = [one for entry in stored for one in blocks.allocations(entry.value)]
    named = {one.attributes.get("node", "") for one in allocations if one.address in addresses}
    others = {one for one in named - {node, ""} if await _exists(store, one)}
    releases = [
        Release(one.address, one.handle_id or None, one.sequence)
        for one in allocations
        if (one.address in addresses and one.attributes.get("node") not in others)
        or (
            one.attributes.get("node") == node
            and one.attributes.get("type", "").endswith("TunnelAddress")
        )
    ]
    released = list((await release_ips(store, releases)).released)
    await remove_host(store, node)
    return released


async def _exists(store: Datastore, node: str) -> bool:
    """Whether there is such a Node; one that cannot be read is there."""
    try:
        return await store.get(ResourceKey("Node", node)) is not None
    except InvalidValue:
        return True
