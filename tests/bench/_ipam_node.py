"""One node service of `./run bench ipam` and of the acceptance test, as a process of its own.

Serves pods as the CNI daemon does: facts from memory, endpoint as companion. Prints one JSON
line at the end of each phase: latencies in seconds, transactions, requests to the store.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

from ipam.allocator.facts import read_facts
from ipam.allocator.requests import Allocate, Companion
from ipam.allocator.service import NodeAllocator
from ipam.records.naming import pod_attributes
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import ABSENT, Datastore, Entry, Put
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.keys import ResourceKey


def pod(node: str, name: str) -> Allocate:
    """What the CNI daemon asks for one pod: an address, and the endpoint that records it."""
    key = ResourceKey("WorkloadEndpoint", f"{node}-k8s-{name}-eth0", "bench")
    handle = f"k8s-pod-network.{name}"

    def change(current: Entry | None, addresses: Sequence[object]) -> Put:
        value = WorkloadEndpoint(
            metadata=Metadata(
                name=key.name,
                namespace="bench",
                labels={
                    "projectcalico.org/namespace": "bench",
                    "projectcalico.org/orchestrator": "k8s",
                    "app": "web",
                },
            ),
            spec=WorkloadEndpointSpec(
                orchestrator="k8s",
                workload=name,
                node=node,
                containerID=name,
                pod=name,
                endpoint="eth0",
                ipNetworks=[f"{address}/32" for address in addresses],
                profiles=["kns.bench", "ksa.bench.default"],
                interfaceName="cali0123456789a",
                mac="02:00:00:00:00:01",
            ),
        )
        return Put(key, value, current.revision if current else ABSENT, current)

    attributes = pod_attributes(node, "bench", name, time.time_ns())
    return Allocate(handle, attributes, companion=Companion(key, change))


async def serial(allocator: NodeAllocator, node: str, count: int, tag: str) -> list[float]:
    """One ADD after the other; seconds of each."""
    taken: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await allocator.perform(pod(node, f"{tag}-{number}"))
        taken.append(time.perf_counter() - began)
    return taken


async def bursts(
    allocator: NodeAllocator, node: str, count: int, width: int, tag: str
) -> list[float]:
    """Bursts of `width` at once until `count` are served; seconds of each request."""

    async def one(name: str) -> float:
        began = time.perf_counter()
        await allocator.perform(pod(node, name))
        return time.perf_counter() - began

    taken: list[float] = []
    for start in range(0, count, width):
        numbers = range(start, min(start + width, count))
        taken += await asyncio.gather(*(one(f"{tag}-{number}") for number in numbers))
    return taken


async def serve(endpoint: str, node: str, count: int, width: int, tag: str) -> dict[str, object]:
    """Allocate `count` addresses, `width` at once (1: serially)."""
    store: Datastore = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=30.0)
    )
    try:
        facts = await read_facts(store, node)
        allocator = NodeAllocator(store, node, lambda: facts)
        task = asyncio.create_task(allocator.run())
        await allocator.warm()
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        cpu, began = time.process_time(), time.time()
        if width == 1:
            latencies = await serial(allocator, node, count, tag)
        else:
            latencies = await bursts(allocator, node, count, width, tag)
        ended = time.time()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {
            "began": began,
            "ended": ended,
            "cpu_seconds": time.process_time() - cpu,
            "latencies": latencies,
            "transactions": allocator.transactions,
        }
    finally:
        await store.close()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    outcome = asyncio.run(
        serve(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]), arguments[4])
    )
    print(json.dumps(outcome), flush=True)
