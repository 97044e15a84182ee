"""A node service that dies: it gives out its share of addresses, and some it takes back.

What a container runtime would know it reads from its endpoints at the start, as pods outlive the
daemon: it counts them and makes up for what is missing. Ends when it has its share, or dies by
SIGKILL at a named point of its n-th write (`dies`), which comes on every machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ipam.allocator.facts import read_facts
from ipam.allocator.requests import Companion, Release
from ipam.allocator.service import NodeAllocator
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Change, Datastore, Delete, Selection
from libcalico.errors import MuslinError
from libcalico.model.keys import ResourceKey
from tests.bench._ipam_node import pod

POINTS = ("before", "sent", "stored")
"""Before a write leaves, while its answer is under way, once it is stored and before it counts."""


class Mortal:
    """A datastore whose n-th write kills this process at a point of it; 0 for never."""

    def __init__(self, store: Datastore, point: str, number: int) -> None:
        self._store, self._point, self._left = store, point, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> int:
        """The write, or the end of this process."""
        self._left -= 1
        if self._left == 0:
            writing = asyncio.ensure_future(self._store.commit(changes))
            if self._point == "before":
                writing.cancel()
            elif self._point == "sent":
                await asyncio.sleep(0)  # it goes out
            else:
                await asyncio.wait([writing])
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._store.commit(changes)


def removal(node: str, name: str) -> Release:
    """The end of a pod: its address and its endpoint go together."""
    key = ResourceKey("WorkloadEndpoint", f"{node}-k8s-{name}-eth0", "bench")
    change = Companion(key, lambda current, _: Delete(key, current.revision) if current else None)
    return Release(f"k8s-pod-network.{name}", companion=change)


async def living(store: Datastore, node: str) -> set[str]:
    """The names of the pods that this node has."""
    listing = await store.list(Selection("WorkloadEndpoint", "bench", f"{node}-k8s-"))
    return {entry.value.spec.pod for entry in listing.entries}


async def serve(endpoint: str, node: str, share: int, point: str, number: int) -> None:
    """Until the node has `share` pods, or until the point of its `number`-th write."""
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=30.0)
    store = await connect(config)
    facts = await read_facts(store, node)
    mortal: Any = Mortal(store, point, number)
    allocator = NodeAllocator(mortal, node, lambda: facts)
    worker = asyncio.create_task(allocator.run())
    await allocator.warm()
    made = 0
    while len(names := await living(store, node)) < share:
        wanted = min(random.choice((1, 8, 64)), share - len(names))
        fresh = [f"{node}-{os.getpid()}-{made + i}" for i in range(wanted)]
        made += wanted
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
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
