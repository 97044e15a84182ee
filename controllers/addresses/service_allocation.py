"""Addresses of load-balancer services in IPAM: taken, and looked up by their handle.

Tested in tests/controllers/test_load_balancers.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from controllers.addresses.service_addresses import Steps
from ipam.allocator.adoption import adopt
from ipam.allocator.library_assign import AssignRequest, assign_ip, auto_assign
from ipam.records import blocks, handles
from ipam.records.blocks import IPAddress
from ipam.records.errors import IPAMError
from ipam.records.naming import go_timestamp
from ipam.records.pools import SERVICE
from libcalico.datastore.interface import Datastore
from libcalico.kubernetes.names import Name
from libcalico.model.keys import BlockKey, HandleKey

HOST = "load-balancer"


async def take_missing(
    store: Datastore,
    name: Name,
    handle: str,
    steps: Steps,
    pools: Mapping[int, Sequence[str]],
    wrote: Callable[[int], None],
) -> str:
    """Take the addresses that a service lacks, and return why one was not taken.

    `wrote` is called with how many were taken, each time some were.
    """
    attributes = {
        "namespace": name.namespace,
        "service": name.name,
        "timestamp": go_timestamp(time.time_ns()),
        "type": SERVICE,
    }
    short = []
    for address in steps.take:
        try:
            await assign_ip(
                store, address, HOST, handle_id=handle, attributes=attributes, use=SERVICE
            )
            wrote(1)
        except IPAMError as error:
            short.append(str(error))
    if steps.choose:
        request = AssignRequest(
            HOST,
            handle,
            attributes,
            num4=int(4 in steps.choose),
            num6=int(6 in steps.choose),
            pools4=pools.get(4, ()),
            pools6=pools.get(6, ()),
            use=SERVICE,
        )
        try:
            result = await auto_assign(store, request)
        except IPAMError as error:
            short.append(str(error))
        else:
            wrote(len(result.ipv4) + len(result.ipv6))
            short += result.shortfall.values()
    return "; ".join(short)


async def held_by(store: Datastore, handle: str) -> list[IPAddress]:
    """The addresses of a handle."""
    entry = await store.get(HandleKey(handle))
    if entry is None:
        return []
    entries = await store.get_many(handles.block_keys(entry.value))
    return [
        one.address
        for block in entries.values()
        if block is not None
        for one in blocks.allocations(block.value)
        if one.handle_id == handle
    ]


async def mend_handles(
    store: Datastore, given: Mapping[str, Mapping[BlockKey, Sequence[IPAddress]]]
) -> None:
    """Write the handles again that lack addresses which the blocks give to them.

    Who gives an address back asks its handle, and an operator may have deleted that.
    """
    keys = [HandleKey(handle) for handle in given]
    known = await store.get_many(keys) if keys else {}
    for key in keys:
        by_block, entry = given[key.handle_id], known[key]
        counts = (entry.value.block or {}) if entry else {}
        if any(counts.get(str(one.cidr)) != len(there) for one, there in by_block.items()):
            await adopt(store, key.handle_id, {}, by_block)
