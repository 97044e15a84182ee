"""A node service that will be killed: it gives out its share of addresses, and some it takes back.

What a container runtime would know it reads from its endpoints at the start, as pods outlive the
daemon: it counts them and makes up for what is missing. Ends when it has its share.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from ipam.facts import read_facts
from ipam.requests import Companion, Release
from ipam.service import NodeAllocator
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore, Delete, Selection
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from tests.bench._ipam_node import pod


def removal(node: str, name: str) -> Release:
    """The end of a pod: its address and its endpoint go together."""
    key = ResourceKey("WorkloadEndpoint", f"{node}-k8s-{name}-eth0", "bench")
    change = Companion(key, lambda current, _: Delete(key, current.revision) if current else None)
    return Release(f"k8s-pod-network.{name}", companion=change)


async def living(store: Datastore, node: str) -> set[str]:
    """The names of the pods that this node has."""
    listing = await store.list(Selection("WorkloadEndpoint", "bench", f"{node}-k8s-"))
    return {entry.value.spec.pod for entry in listing.entries}


async def serve(endpoint: str, node: str, share: int) -> None:
    """Until the node has `share` pods, at every moment ready to die."""
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=30.0)
    store = await connect(config)
    facts = await read_facts(store, node)
    allocator = NodeAllocator(store, node, lambda: facts)
    worker = asyncio.create_task(allocator.run())
    await allocator.warm()
    number = 0
    while len(names := await living(store, node)) < share:
        wanted = min(random.choice((1, 8, 64)), share - len(names))
        fresh = [f"{node}-{os.getpid()}-{number + i}" for i in range(wanted)]
        number += wanted
        leaving = random.sample(sorted(names), min(len(names), wanted // 8))
        answers = await asyncio.gather(
            *(allocator.perform(pod(node, name)) for name in fresh),
            *(allocator.perform(removal(node, name)) for name in leaving),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, MuslinError):
                raise answer
    worker.cancel()
    await store.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
