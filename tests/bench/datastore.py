"""`./run bench datastore`: how fast and how heavy the datastore client is, beside its peers.

A real etcd is filled with workload endpoints (100,000 by default) of the bytes that Calico
writes. Every measurement is a process of its own: its time, its peak memory above what the
imports took, the longest time for which the event loop did nothing else. In the same run the
same keys are read by etcdctl, and by gRPC pages that nobody decodes: the ratios hold on any
machine. Last, selectors: compiled and matched per second.

JSON: `results.<way>` = {seconds, per_second, memory_mib, peak_rss_mib, stall_ms, busy_ms}
(stall by the clock, busy by this thread's own computing), ways being
`snapshot` (syncer, consumer keeps nothing), `snapshot_kept` (consumer keeps every value),
`events` (a watch from the first revision on), peers `raw_pages`, `raw_events`, `etcdctl`;
`ratios` = snapshot / raw_pages and so on (1 is as fast); `selectors` = per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.selectors.selectors import parse
from tests.bench._reporting import add_plot, plot
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
COUNT = 100_000
WAYS = ("snapshot", "snapshot_kept", "events", "raw_pages", "raw_events")
PEERS = {
    "snapshot": "raw_pages",
    "snapshot_kept": "raw_pages",
    "events": "raw_events",
}
PREFIX = "/calico/resources/v3/projectcalico.org/workloadendpoints/"
Json = dict[str, Any]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def endpoint(number: int) -> tuple[str, bytes]:
    """Key and value of one workload endpoint, as a Calico node writes it."""
    namespace, node, pod = f"ns{number % 200}", f"node-{number % 1000}", f"web-{number}"
    name = f"node--{number % 1000}-k8s-web--{number}-eth0"
    address = f"10.{100 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    tree = {
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"567705fe-39d6-465b-a579-{number:012x}",
            "creationTimestamp": "2026-11-21T15:05:36Z",
            "labels": {
                "app": f"web-{number % 500}",
                "pod-template-hash": f"{number % 500:010x}",
                "projectcalico.org/namespace": namespace,
                "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/serviceaccount": "default",
            },
        },
        "spec": {
            "orchestrator": "k8s",
            "workload": "",
            "node": node,
            "containerID": f"{number:064x}",
            "pod": pod,
            "endpoint": "eth0",
            "serviceAccountName": "default",
            "ipNetworks": [f"{address}/32"],
            "profiles": [f"kns.{namespace}", f"ksa.{namespace}.default"],
            "interfaceName": f"cali{number:011x}",
            "mac": "ee:ee:ee:ee:ee:ee",
        },
    }
    return f"{PREFIX}{namespace}/{name}", json.dumps(tree, separators=(",", ":")).encode()


async def fill(server: Etcd, count: int) -> None:
    """Write the endpoints, 128 in one transaction."""
    async with server.connect(timeout=30) as store:
        connection = store._connection  # type: ignore[attr-defined]
        for start in range(0, count, 128):
            request = pb.TxnRequest()
            for number in range(start, min(start + 128, count)):
                key, value = endpoint(number)
                request.success.add().request_put.CopyFrom(
                    pb.PutRequest(key=key.encode(), value=value)
                )
            await connection.write(request, guarded=False)


def measure(way: str, server: Etcd, count: int) -> Json:
    """One way, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench._datastore_driver", way, server.endpoint, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr}")
    result: Json = json.loads(done.stdout)
    return result


def etcdctl(server: Etcd, count: int) -> Json:
    """etcdctl reading the same keys into nothing."""
    start = time.monotonic()
    subprocess.run(
        ["etcdctl", f"--endpoints={server.endpoint}", "get", "--prefix", PREFIX],
        env={"PATH": os.environ["PATH"], "ETCDCTL_API": "3"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    seconds = time.monotonic() - start
    return {"seconds": round(seconds, 2), "per_second": round(count / seconds)}


def selectors() -> Json:
    """Compiled and matched per second, of selectors as policies have them."""
    texts = [
        f"app == 'web-{number}' && projectcalico.org/namespace in {{'ns{number % 200}', 'kube'}}"
        f" || has(tier) && !(role starts with 'db-{number}')"
        for number in range(2000)
    ]
    start = time.perf_counter()
    made = [parse(text) for text in texts]
    matchers = [one.matches for one in made]
    compiled = len(made) / (time.perf_counter() - start)
    start = time.perf_counter()
    texts_made = [one.uid for one in made]
    named = len(texts_made) / (time.perf_counter() - start)
    labels = [
        {"app": f"web-{number % 500}", "projectcalico.org/namespace": f"ns{number % 200}"}
        for number in range(2000)
    ]
    start = time.perf_counter()
    hits = sum(matches(one) for matches in matchers[:200] for one in labels)
    matched = 200 * len(labels) / (time.perf_counter() - start)
    start = time.perf_counter()
    sum(one.get("app") == "web-1" for _ in range(200) for one in labels)
    plain = 200 * len(labels) / (time.perf_counter() - start)
    assert hits
    return {
        "compiled_per_second": round(compiled),
        "named_per_second": round(named),
        "matched_per_second": round(matched),
        "one_comparison_per_second": round(plain),
        "match_ratio": round(plain / matched, 2),
    }


def report(results: Json, count: int) -> Json:
    """Ratios of seconds, ours to the peer's. Pure."""
    ratios = {
        f"{way}/{peer}": round(results[way]["seconds"] / results[peer]["seconds"], 2)
        for way, peer in PEERS.items()
    }
    ratios["snapshot/etcdctl"] = round(
        results["snapshot"]["seconds"] / results["etcdctl"]["seconds"], 2
    )
    return {"count": count, "results": results, "ratios": ratios}


def table(result: Json) -> str:
    """For people. Pure."""
    lines = [f"{result['count']} workload endpoints", ""]
    lines.append(
        f"{'':16}{'s':>8}{'per s':>10}{'MiB':>8}{'peak RSS':>10}{'stall ms':>10}{'busy ms':>9}"
    )
    for way, one in result["results"].items():
        figures = [
            one.get(name, "") for name in ("memory_mib", "peak_rss_mib", "stall_ms", "busy_ms")
        ]
        lines.append(
            f"{way:16}{one['seconds']:8}{one['per_second']:10}"
            f"{figures[0]:>8}{figures[1]:>10}{figures[2]:>10}{figures[3]:>9}"
        )
    lines += ["", *(f"{name:28}{value}" for name, value in result["ratios"].items()), ""]
    lines += [f"selectors {name:28}{value}" for name, value in result["selectors"].items()]
    return "\n".join(lines)


def run(count: int) -> Json:
    """Everything."""
    with tempfile.TemporaryDirectory(prefix="muslin-bench-") as folder:
        server = Etcd(Path(folder) / "etcd", ["--quota-backend-bytes=4000000000"]).start()
        try:
            say(f"writing {count} endpoints")
            asyncio.run(fill(server, count))
            results: Json = {}
            for way in WAYS:
                say(way)
                results[way] = measure(way, server, count)
            say("etcdctl")
            results["etcdctl"] = etcdctl(server, count)
        finally:
            server.stop()
    return {**report(results, count), "selectors": selectors()}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench datastore", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    result = run(options.count)
    plot("datastore", result, options)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
