"""`./run bench fanout`: what telling many nodes of a pod change costs store and proxies.

Nodes are simulated: each is a connection of its own with the watches that felix begins, in the
real protocol, and throws away what comes. One pod change is one write of an endpoint, as a Calico
node stores it. Parts (`--part`):

direct   nodes that watch etcd itself: the peer of this run
steady   nodes behind `etcd grpc-proxy`, one for 200 of them: from the write to the node
resume   all nodes are away for as long as five minutes of changes are; then all go on at their
         revision, spread over some seconds, until each has every change. They ask the store itself:
         a proxy loses events of who is more than 1,000 revisions behind (docs/scale.md)
cold     one felix lists everything: bytes and CPU, and from them how long all of them take

`--store kubernetes` measures the same of the Kubernetes datastore: a real kube-apiserver with its
etcd (`./run k8s binaries`), on which nodes are watchers of all pods, with 30 pods a node. One pod
change is a start or an end, five or six writes. All ways to ask stand beside each other; which is
felix's is in the results. Parts:

watch        changes at a rate: bytes and CPU of the API server for each event and node, delays
heartbeats   the reports of all kubelets, told to who watches the nodes
connections  all watches of felix, each a connection: memory of the API server
typha        the same clients behind Calico's Typha, where MUSLIN_TYPHA names a folder with it
             (tests/bench/_fanout_typha.py)
cold         one felix lists everything, and its pods in each way; from that 5,000 nodes

On etcd counts are reduced to 200 and 400 nodes; `--full` takes 1,000 nodes at 20 changes a second
and 5,000 at 4. On Kubernetes 50 and 200 nodes are measured, and with `--full` 1,000. Writer, nodes,
store and proxies share this machine.

JSON: `results.direct|steady|resume` by size `NODESxRATE`, each {events, p50_ms, p99_ms, max_ms,
store_us_per_event, all_us_per_event, store_rss_mib, proxies_rss_mib, ...}; `results.cold`. On
Kubernetes `results.kubernetes.PART` by size, of watch by mode too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import _ending, felix_snapshot
from tests.bench._bgp_table import cpu
from tests.bench._fanout_api import MODES
from tests.bench._fanout_api_parts import measure as on_kubernetes
from tests.bench._fanout_world import NODES_A_PROXY, Json, World, say, world
from tests.bench._reporting import add_arguments, conclude
from tests.bench._snapshot_shape import Shape
from tests.bench.felix import table
from tests.bench.felix_snapshot import fill
from tests.k8s import binaries
from tests.support.etcd import Etcd

PARTS = {
    "etcd": ("direct", "steady", "resume", "cold"),
    "kubernetes": ("cold", "watch", "heartbeats", "connections", "typha"),
}
SECONDS = 15
OUTAGE_S = 300
SMALL = ((200, 20), (400, 4))
FULL = ((1000, 20), (5000, 4))
COLD_ENDPOINTS = 250_000


def steady(place: World, nodes: int, rate: int) -> Json:
    """Changes at a rate, for a while."""
    standing = place.nodes.open(nodes, jitter_ms=nodes * 2)
    place.nodes.ask("mark")
    before, begun = place.used(), time.monotonic()
    place.write(rate * SECONDS, rate)
    place.nodes.until(rate * SECONDS, 120)
    seconds = time.monotonic() - begun
    return {
        **place.nodes.report(),
        **cost(before, place.used(), nodes * rate * SECONDS),
        "seconds": round(seconds, 1),
        "all_stand_s": round(standing, 1),
    }


def cost(before: Json, after: Json, events: int) -> Json:
    """CPU of store and proxies for each event and node, in microseconds. Pure."""
    store, proxies = (after[name] - before[name] for name in ("store_cpu_s", "proxies_cpu_s"))
    return {
        "store_us_per_event": round(store / events * 1e6, 2),
        "all_us_per_event": round((store + proxies) / events * 1e6, 2),
        "store_rss_mib": after["store_rss_mib"],
        "proxies_rss_mib": after["proxies_rss_mib"],
    }


def resume(place: World, nodes: int, rate: int) -> Json:
    """All nodes were away for five minutes, and catch up with the store itself."""
    jitter = 10 if nodes > 1000 else 2
    place.nodes.open(nodes, jitter_ms=nodes * 2)
    revision = place.etcd.revision()
    place.nodes.ask("close")
    missed = rate * OUTAGE_S
    place.write(missed)
    place.resume_at(revision)
    place.nodes.ask("mark")
    before, begun = place.used(), time.monotonic()
    place.nodes.open(nodes, jitter_ms=jitter * 1000)
    place.nodes.until(missed, 600)
    seconds = time.monotonic() - begun
    return {
        "in_sync_s": round(seconds, 1),
        "missed_by_each": missed,
        "jitter_s": jitter,
        **cost(before, place.used(), nodes * missed),
        **{name: value for name, value in place.nodes.report().items() if "_ms" not in name},
    }


def cold(folder: Path, full: bool) -> Json:
    """One felix reads all that there is, and what 5,000 of them would take."""
    shape = Shape("markers", 250_000, 10_000) if full else Shape("markers", 25_000, 1_000)
    etcd = Etcd(folder / "cold", ["--quota-backend-bytes=4000000000"]).start()
    try:
        asyncio.run(fill(etcd, shape))
        sent, used = etcd.sent(), cpu([etcd.pid])
        felix_snapshot.measure("raw", etcd, shape, 0)
        sent, used = etcd.sent() - sent, cpu([etcd.pid]) - used
    finally:
        etcd.kill()
    return {
        "endpoints": shape.endpoints,
        "mib_for_each": round(sent / (1 << 20), 1),
        "store_cpu_s_for_each": round(used, 2),
        "minutes_of_5000_by_two_cores": round(5000 * used / 2 / 60, 1),
        "minutes_of_5000_by_10_gbit_s": round(5000 * sent * 8 / 10e9 / 60, 1),
    }


def measure(parts: list[str], full: bool) -> Json:
    """The parts asked for, at their sizes."""
    results: Json = {}
    with tempfile.TemporaryDirectory(prefix="muslin-bench-") as folder:
        for nodes, rate in FULL if full else SMALL:
            size = f"{nodes}x{rate}"
            proxies = -(-nodes // NODES_A_PROXY)
            if "direct" in parts and nodes <= 1000:
                say(f"direct, {size}")
                with world(Path(folder), 0) as place:
                    results.setdefault("direct", {})[size] = steady(place, nodes, rate)
            for name, part, between in (("steady", steady, proxies), ("resume", resume, 0)):
                if name in parts:
                    say(f"{name}, {size}, {between} proxies")
                    with world(Path(folder), between) as place:
                        results.setdefault(name, {})[size] = part(place, nodes, rate)
        if "cold" in parts:
            say("cold")
            results["cold"] = cold(Path(folder), full)
    return results


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench fanout", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--store", choices=PARTS, default="etcd")
    parser.add_argument("--part", action="append", choices=sorted({*sum(PARTS.values(), ())}))
    parser.add_argument("--nodes", action="append", type=int, help="sizes, on Kubernetes")
    parser.add_argument("--mode", action="append", choices=MODES, help="on Kubernetes")
    options = parser.parse_args()
    _ending.in_order()
    load = [round(one, 1) for one in os.getloadavg()]
    parts = [one for one in PARTS[options.store] if one in (options.part or PARTS[options.store])]
    if options.store == "etcd":
        results = measure(parts, options.full)
    elif lacking := binaries.missing():
        raise SystemExit(lacking)
    else:
        found = on_kubernetes(parts, options.full, options.nodes, options.mode)
        results = {"kubernetes": found}
    result = {"load": load, "results": results}
    conclude("fanout", result, options, lambda found: table(found["results"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
