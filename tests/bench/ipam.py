"""`./run bench ipam`: addresses per second, and what they cost the datastore.

One etcd on this machine (without fsync: the disk is not what is measured), node services as
processes of their own, each ADD with its handle and endpoint. In the same run a peer: how many
transactions of the same three puts etcd itself takes, one after the other and 64 at once.
Figures mean something as ratios.

JSON: `results.<case>` = {rate, p50_ms, p99_ms, transactions_per_allocation, revisions_per_allocation,
n}; `peer`; `store` = size of a node in the datastore, and 5,000 nodes extrapolated.
"""  # noqa: E501

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from libcalico.datastore.interface import ABSENT, Change, Datastore, Put, Selection
from libcalico.model import Handle, IPPool, IPPoolSpec, Metadata, Node
from libcalico.model.keys import HandleKey, ResourceKey
from tests.bench._reporting import add_arguments, conclude
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
CASES = ("one_serial", "one_burst64", "sixteen_burst64", "one_burst64_block20")
CLUSTER_NODES = 5000
PODS_PER_NODE = 110


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def percentile(samples: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of samples that are not empty. Pure."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(outcomes: Sequence[dict[str, Any]], wall: float, revisions: int) -> dict[str, Any]:
    """What is told of one case; latencies in milliseconds. Pure."""
    latencies = [sample for outcome in outcomes for sample in outcome["latencies"]]
    transactions = sum(outcome["transactions"] for outcome in outcomes)
    return {
        "rate": round(len(latencies) / wall),
        "p50_ms": round(percentile(latencies, 0.5) * 1000, 2),
        "p99_ms": round(percentile(latencies, 0.99) * 1000, 2),
        "transactions_per_allocation": round(transactions / len(latencies), 4),
        "revisions_per_allocation": round(revisions / len(latencies), 4),
        "n": len(latencies),
    }


def run_nodes(etcd: Etcd, nodes: Sequence[str], count: int, width: int, tag: str) -> dict[str, Any]:
    """Start a process for each node, let them go at once, and gather what they say."""
    base = [sys.executable, "-m", "tests.bench._ipam_node", etcd.endpoint]
    processes = [
        subprocess.Popen(
            [*base, node, str(count), str(width), tag],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in nodes
    ]
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a node service did not start")
    revision = etcd.revision()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [json.loads(process.communicate()[0]) for process in processes]
    wall = max(o["ended"] for o in outcomes) - min(o["began"] for o in outcomes)
    return figures(outcomes, wall, etcd.revision() - revision)


async def prepare(etcd: Etcd, cidr: str, size: int, nodes: Sequence[str]) -> None:
    """An empty datastore with one pool and the nodes."""
    etcd.delete("")
    async with etcd.connect() as store:
        pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(cidr=cidr, blockSize=size))
        await store.commit([Put(ResourceKey("IPPool", "p"), pool)])
        for node in nodes:
            await store.commit([Put(ResourceKey("Node", node), Node(metadata=Metadata(name=node)))])


async def peer(etcd: Etcd, count: int) -> dict[str, Any]:
    """Bare transactions of three small puts: what this etcd and this client can do."""

    async def one(store: Datastore, number: int) -> float:
        began = time.perf_counter()
        keys = [HandleKey(f"peer-{number}-{part}") for part in range(3)]
        value = Handle(block={"10.0.0.0/26": 1})
        changes: list[Change] = [Put(key, value, ABSENT) for key in keys]
        await store.commit(changes)
        return time.perf_counter() - began

    etcd.delete("")
    async with etcd.connect() as store:
        began = time.perf_counter()
        serial = [await one(store, number) for number in range(count)]
        serial_seconds = time.perf_counter() - began
        began = time.perf_counter()
        for start in range(0, count, 64):
            await asyncio.gather(*(one(store, count + start + i) for i in range(64)))
        at_once = -(-count // 64) * 64 / (time.perf_counter() - began)
    return {
        "txn_serial_rate": round(count / serial_seconds),
        "txn_serial_p50_ms": round(percentile(serial, 0.5) * 1000, 2),
        "txn_64_at_once_rate": round(at_once),
    }


async def store_load(etcd: Etcd, allocations: int, revisions: float) -> dict[str, Any]:
    """Bytes and keys that the allocations left, extrapolated to a large cluster."""
    async with etcd.connect() as store:
        sizes = {
            family: [len(entry.raw) for entry in (await store.list(Selection(family))).entries]
            for family in ("Block", "BlockAffinity", "Handle", "WorkloadEndpoint")
        }
    per_pod = sum(map(sum, sizes.values())) / allocations
    keys = sum(map(len, sizes.values())) / allocations
    pods = CLUSTER_NODES * PODS_PER_NODE
    return {
        "bytes_per_pod": round(per_pod),
        "keys_per_pod": round(keys, 2),
        "cluster_pods": pods,
        "cluster_megabytes": round(per_pod * pods / 1e6),
        "cluster_keys": round(keys * pods),
        "revisions_for_all_pods_in_bursts": round(revisions * pods),
    }


def measure(scale: float) -> dict[str, Any]:
    """All cases on one etcd."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(Path(folder)).start()
        try:
            say("peer")
            compared = asyncio.run(peer(etcd, int(640 * scale)))
            for case in CASES:
                say(case)
                nodes = [f"n{i:02}" for i in range(16 if case.startswith("sixteen") else 1)]
                size = 20 if case.endswith("20") else 26
                asyncio.run(prepare(etcd, "10.0.0.0/14", size, nodes))
                count = 256 if len(nodes) > 1 else 500 if case.endswith("serial") else 1216
                width = 1 if case.endswith("serial") else 64
                results[case] = run_nodes(etcd, nodes, int(count * scale), width, "x")
                if case == "one_burst64":
                    done, revisions = results[case]["n"], results[case]["revisions_per_allocation"]
                    load = asyncio.run(store_load(etcd, done, revisions))
        finally:
            etcd.stop()
    return {"results": results, "peer": compared, "store": load}


def table(result: dict[str, Any]) -> str:
    """For people. Pure."""
    lines = ["                       alloc/s    p50    p99 (ms)   txn/alloc   revisions/alloc"]
    for case, row in result["results"].items():
        lines.append(
            f"{case:22} {row['rate']:7} {row['p50_ms']:6} {row['p99_ms']:6} "
            f"{row['transactions_per_allocation']:13} {row['revisions_per_allocation']:14}"
        )
    lines += [f"peer {name:28} {value}" for name, value in result["peer"].items()]
    lines += [f"store {name:33} {value}" for name, value in result["store"].items()]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench ipam", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all counts")
    options = parser.parse_args()
    result = measure(options.scale)
    conclude("ipam", result, options, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
