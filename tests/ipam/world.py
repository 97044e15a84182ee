"""Small builders for the allocator's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ipam.allocator.requests import Allocate, Companion, Release
from ipam.allocator.service import NodeAllocator
from ipam.records import blocks
from libcalico.datastore.interface import ABSENT, Datastore, Delete, Entry, Put
from libcalico.model import (
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)


async def put_pool(store: Datastore, name: str, cidr: str, size: int, **spec: Any) -> None:
    """Write an IP pool, whatever was there."""
    pool = IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(cidr=cidr, blockSize=size, **spec))
    await store.commit([Put(ResourceKey("IPPool", name), pool)])


async def put_node(store: Datastore, name: str, **labels: str) -> None:
    """Write a Node."""
    node = Node(metadata=Metadata(name=name, labels=labels))
    await store.commit([Put(ResourceKey("Node", name), node)])


def endpoint_companion(name: str, container: str) -> Companion:
    """An endpoint that records its addresses, as the CNI daemon's."""
    key = ResourceKey("WorkloadEndpoint", name, "default")

    def change(current: Entry | None, addresses: Sequence[blocks.IPAddress]) -> Put:
        value = WorkloadEndpoint(
            metadata=Metadata(name=name, namespace="default"),
            spec=WorkloadEndpointSpec(
                containerID=container, ipNetworks=[f"{a}/{a.max_prefixlen}" for a in addresses]
            ),
        )
        return Put(key, value, current.revision if current else ABSENT, current)

    def held(current: Entry | None) -> list[blocks.IPAddress]:
        if current is None or current.value.spec.containerID != container:
            return []
        return [blocks.parse_address(text) for text in current.value.spec.ipNetworks]

    return Companion(key, change, held)


def removal_companion(name: str, container: str) -> Companion:
    """Removes the endpoint of a container."""
    key = ResourceKey("WorkloadEndpoint", name, "default")

    def change(current: Entry | None, _: Sequence[blocks.IPAddress]) -> Delete | None:
        if current is None or current.value.spec.containerID != container:
            return None
        return Delete(key, current.revision)

    return Companion(key, change)


def allocate(name: str, **options: Any) -> Allocate:
    """A pod's request with its endpoint."""
    return Allocate(
        handle_id=f"net.{name}",
        attributes={"node": "n", "pod": name, "timestamp": "t"},
        companion=endpoint_companion(name, name),
        **options,
    )


def release(name: str) -> Release:
    """The pod's end."""
    return Release(f"net.{name}", companion=removal_companion(name, name))


@asynccontextmanager
async def serving(store: Datastore, host: str) -> AsyncIterator[NodeAllocator]:
    """An allocator whose worker runs."""
    allocator = NodeAllocator(store, host)
    task = asyncio.create_task(allocator.run())
    try:
        yield allocator
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
