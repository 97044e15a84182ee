"""One measurement of `./run bench datastore`, in this process: WAY ENDPOINT COUNT; prints JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd import keys
from libcalico.datastore.etcd.listing import PAGE
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.interface import Datastore, Selection
from libcalico.datastore.syncer import Syncer

ENDPOINTS = Selection("WorkloadEndpoint")
TICK = 0.002


class Stalls:
    """The longest time between two turns of a task that asks for one every tick.

    `busy` counts only what this thread itself computed, whatever else the machine does.
    """

    def __init__(self) -> None:
        self.longest = self.busy = 0.0

    async def run(self) -> None:
        """For ever."""
        while True:
            before, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK)
            self.busy = max(self.busy, time.thread_time() - cpu)
            self.longest = max(self.longest, time.perf_counter() - before - TICK)


def peak() -> float:
    """The process's peak memory, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def snapshot(store: Datastore, count: int, keep: bool) -> object:
    """Until the snapshot is complete; returns what an agent would go on to hold."""
    kept: dict[Any, Any] = {}
    seen = 0
    syncer = Syncer(store, [ENDPOINTS], resident=True)
    async with aclosing(syncer.batches()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            seen += len(batch.updates)
            if keep:
                for update in batch.updates:
                    assert update.entry is not None
                    kept[update.key] = update.entry.value
            if batch.in_sync:
                break
    assert seen == count
    return kept, syncer


async def events(store: Datastore, count: int) -> None:
    """Every change since the first revision."""
    seen = 0
    async for batch in store.watch([ENDPOINTS], 1):
        seen += len(batch)
        if seen >= count:
            return


async def raw_pages(store: Any, count: int) -> None:
    """Pages as large as the client's, not decoded."""
    first, end = keys.range_of(ENDPOINTS)
    seen, more = 0, True
    while more:
        request = pb.RangeRequest(key=first, range_end=end, limit=PAGE)
        answer = await store._connection.read(lambda link: link.range, request)
        seen, more = seen + len(answer.kvs), answer.more
        first = answer.kvs[-1].key + b"\0"
    assert seen == count


async def raw_events(store: Any, count: int) -> None:
    """Events, not decoded."""
    first, end = keys.range_of(ENDPOINTS)
    _, call = await store._connection.open_watch()
    create = pb.WatchCreateRequest(key=first, range_end=end, start_revision=2, prev_kv=True)
    await call.write(pb.WatchRequest(create_request=create))
    seen = 0
    while seen < count:
        seen += len((await call.read()).events)
    call.cancel()


async def measured(way: str, endpoint: str, count: int) -> dict[str, Any]:
    """The figures of one way."""
    config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=30)
    store: Any = await connect(config)
    await store.list(Selection("IPAMConfig"))
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "snapshot": lambda: snapshot(store, count, keep=False),
        "snapshot_kept": lambda: snapshot(store, count, keep=True),
        "events": lambda: events(store, count),
        "raw_pages": lambda: raw_pages(store, count),
        "raw_events": lambda: raw_events(store, count),
    }
    before = peak()
    stalls = Stalls()
    watcher = asyncio.create_task(stalls.run())
    await asyncio.sleep(0.05)
    stalls.longest = stalls.busy = 0.0
    start = time.perf_counter()
    held = await ways[way]()
    seconds = time.perf_counter() - start
    await asyncio.sleep(2 * TICK)
    longest, busy = stalls.longest, stalls.busy
    watcher.cancel()
    del held
    await store.close()
    return {
        "seconds": round(seconds, 2),
        "per_second": round(count / seconds),
        "memory_mib": round(peak() - before),
        "peak_rss_mib": round(peak()),
        "stall_ms": round(longest * 1000, 1),
        "busy_ms": round(busy * 1000, 1),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
