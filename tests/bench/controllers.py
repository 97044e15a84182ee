"""`./run bench controllers`: a large cluster's objects, and what the controllers make of them.

`--nodes`, `--pods`, `--policies` are written through a real kube-apiserver (without kubelets), and
what their nodes would have stored into another etcd. Then the controllers start on it: with
everything to write, once more with nothing to write, and with changes one after another.
Requests are those of the API server's audit log; memory is the process's share (PSS).

JSON: `written_s`; `cold` and `restart` = {sync_s, cpu_s, pss_mib, peak_mib, api_requests, api_writes,
etcd_writes}; `changes.<kind>` = {n, p50_ms, p99_ms, api_requests_each, api_writes_each, etcd_writes_each}.
Exit 1 where a restart wrote something, by etcd's revision or by the API server's audit log.
"""  # noqa: E501

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libcalico.datastore.interface import Datastore
from libcalico.model.keys import ResourceKey
from tests.bench._controllers_objects import Shape, store_nodes, write
from tests.bench._reporting import add_plot, plot
from tests.bench.ipam import percentile, say
from tests.controllers.scrape import in_sync, metric
from tests.controllers.test_process import Running
from tests.k8s.binaries import missing
from tests.support.apiserver import ApiServer
from tests.support.audit import Audit, Request, by_kind
from tests.support.etcd import Etcd, free_ports

WITHIN = 600.0
TICK = os.sysconf("SC_CLK_TCK")
PATCH = "application/merge-patch+json"
ACCOUNT = ":calico-kube-controllers"
HEARTBEATS = ("leases", "/healthz")


class Bench:
    """The servers and the process that is measured."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self.audit = Audit(folder / "audit")
        flags = ["--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000"]
        self.api = ApiServer(folder / "api", [*self.audit.flags, *flags])
        quota = ["--quota-backend-bytes=8589934592"]
        self.store = Etcd(folder / "store", quota)
        (self.port,) = free_ports(1)

    def requests(self) -> list[Request]:
        """What the controllers asked since the last call, but for lease and health."""
        found = [one for one in self.audit.requests() if one.user.endswith(ACCOUNT)]
        return [one for one in found if one.resource not in HEARTBEATS]

    async def start(self, name: str) -> tuple[Running, dict[str, Any]]:
        """Start the controllers, and wait until everything is in step."""
        self.requests()
        before = self.store.revision()
        began = time.monotonic()
        process = Running(
            self.api,
            self.folder,
            name,
            ETCD_ENDPOINTS=self.store.endpoint,
            COMPACTION_PERIOD="0",
        )
        while not in_sync(self.port):
            if process.process.poll() is not None or time.monotonic() - began > WITHIN:
                raise RuntimeError(f"not in step:\n{process.log.read_text()[-3000:]}")
            await asyncio.sleep(0.25)
        seconds = time.monotonic() - began
        figures = {"sync_s": round(seconds, 1), **costs(process.process.pid)}
        # The first look at the addresses may come after it.
        await asyncio.sleep(3.0)
        asked = self.requests()
        return process, {
            **figures,
            "api_requests": by_kind(asked),
            "api_writes": by_kind([one for one in asked if one.writes]),
            "etcd_writes": self.store.revision() - before,
            "writes": {k: int(v) for k, v in metric(self.port, "writes_total").items() if v},
        }


def costs(pid: int) -> dict[str, float]:
    """Processor seconds and memory of a process, as of now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return {
        "cpu_s": round((int(fields[11]) + int(fields[12])) / TICK, 1),
        "pss_mib": round(int(pss.split()[1]) / 1024, 1),
        "peak_mib": round(int(peak.split()[1]) / 1024, 1),
    }


async def changes(bench: Bench, store: Datastore, count: int) -> dict[str, Any]:
    """One change after another, each until it is stored."""
    shape = bench.shape
    found: dict[str, Any] = {}

    def policy(number: int) -> tuple[str, dict[str, Any], ResourceKey]:
        space = shape.space(number)
        path = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies/np{number}"
        key = ResourceKey("NetworkPolicy", f"knp.default.np{number}", space)
        return path, {"spec": {"podSelector": {"matchLabels": {"app": "changed"}}}}, key

    def space(number: int) -> tuple[str, dict[str, Any], ResourceKey]:
        name = f"s{number}"
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        return f"/api/v1/namespaces/{name}", labels, ResourceKey("Profile", f"kns.{name}")

    def pod(number: int) -> tuple[str, dict[str, Any], ResourceKey]:
        name, of = f"p{number}", shape.space(number)
        endpoint = f"n{number % shape.nodes}-k8s-{name}-eth0"
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        key = ResourceKey("WorkloadEndpoint", endpoint, of)
        return f"/api/v1/namespaces/{of}/pods/{name}", labels, key

    def node(number: int) -> tuple[str, dict[str, Any], ResourceKey]:
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        return f"/api/v1/nodes/n{number}", labels, ResourceKey("Node", f"n{number}")

    kinds: dict[str, tuple[Callable[[int], Any], int]] = {
        "policy": (policy, shape.policies),
        "namespace": (space, shape.spaces),
        "pod": (pod, shape.pods),
        "node": (node, shape.nodes),
    }
    for kind, (make, there) in kinds.items():
        number = min(count, there)
        bench.requests()
        before = bench.store.revision()
        samples = []
        for one in range(number):
            path, body, key = make(one)
            samples.append(await _change(bench, store, path, body, key))
        await asyncio.sleep(0.5)
        found[kind] = {
            "n": number,
            "p50_ms": round(percentile(samples, 0.5) * 1000, 1),
            "p99_ms": round(percentile(samples, 0.99) * 1000, 1),
            "api_requests_each": round(len(asked := bench.requests()) / number, 2),
            "api_writes_each": round(sum(one.writes for one in asked) / number, 2),
            "etcd_writes_each": round((bench.store.revision() - before) / number, 2),
        }
        say(f"{kind}: {found[kind]}")
    return found


async def _change(
    bench: Bench, store: Datastore, path: str, body: dict[str, Any], key: ResourceKey
) -> float:
    entry = await store.get(key)
    assert entry is not None, key
    await asyncio.to_thread(bench.api.call, "PATCH", path, body, content=PATCH)
    began = time.monotonic()
    while (fresh := await store.get(key)) is None or fresh.revision == entry.revision:
        if time.monotonic() - began > 60.0:
            raise RuntimeError(f"{path} did not reach {key}")
        await asyncio.sleep(0.002)
    return time.monotonic() - began


async def measure(folder: Path, shape: Shape, count: int) -> dict[str, Any]:
    """Everything, in a folder that is nobody else's."""
    bench = Bench(folder, shape)
    processes: list[Running] = []
    try:
        bench.store.start()
        bench.api.start()
        bench.api.namespace("kube-system")
        began = time.monotonic()
        await asyncio.to_thread(write, bench.api.url, bench.api.ca.decode(), shape)
        report: dict[str, Any] = {"written_s": round(time.monotonic() - began, 1)}
        say(f"written in {report['written_s']} s")
        async with bench.store.connect(60.0) as store:
            await store_nodes(store, shape, bench.port)
            for name in ("cold", "restart"):
                process, report[name] = await bench.start(name)
                processes.append(process)
                say(f"{name}: {report[name]}")
                if name == "cold":
                    process.stop()
            report["changes"] = await changes(bench, store, count)
            report["after_changes"] = costs(processes[-1].process.pid)
        return report
    finally:
        for process in processes:
            process.stop(9)
        bench.api.stop()
        bench.store.stop()


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(prog="./run bench controllers", description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--policies", type=int, default=50)
    parser.add_argument("--changes", type=int, default=50, help="of each kind")
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    given = parser.parse_args()
    if lacking := missing():
        say(lacking)
        return 2
    shape = Shape(given.nodes, given.pods, given.policies)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(measure(Path(folder), shape, given.changes))
    report["shape"] = {"nodes": shape.nodes, "pods": shape.pods, "policies": shape.policies}
    plot("controllers", report, given)
    print(json.dumps(report) if given.json else json.dumps(report, indent=2))
    return int(bool(report["restart"]["etcd_writes"] or report["restart"]["api_writes"]))


if __name__ == "__main__":
    sys.exit(main())
