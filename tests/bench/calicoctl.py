"""`./run bench calicoctl`: what one command costs, as an operator's shell sees it.

A real etcd holds 10,000 workload endpoints of 100 nodes, a pool, and ten of the nodes. Each command
is a new process of the installed console script, bytecode compiled, wall time from start to exit,
output to a pipe. `cpu_ms` is the processor time of the cheapest run, which other load changes
least. `python` is the bare interpreter: what no command can undercut.

`kubernetes: ...` are the short commands on a real kube-apiserver with TLS, by a kubeconfig as
kubectl writes one, with ten nodes and a pool. Without its programs (`./run k8s binaries`) these
rows are missing.

JSON: `results.<name>` = {p50_ms, min_ms, max_ms, cpu_ms, n}.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from libcalico.datastore.interface import Put
from libcalico.model import (
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from libcalico.names import workload_endpoint_name
from tests.apiserver import kdd
from tests.bench._reporting import add_arguments, conclude
from tests.k8s.binaries import missing
from tests.support.apiserver import ApiServer, kubeconfig
from tests.support.etcd import Etcd

ROOT = Path(__file__).parent.parent.parent
SCRIPT = str(Path(sys.executable).parent / "calicoctl")
SHORT = ("version", "get nodes", "ipam show", "apply -f one.yaml")
PER_COMMIT = 100
POOL = """\
kind: IPPool
apiVersion: projectcalico.org/v3
metadata: {name: pool}
spec: {cidr: 10.64.0.0/16}
"""
ONE = """\
kind: GlobalNetworkSet
apiVersion: projectcalico.org/v3
metadata: {name: one, labels: {a: b}}
spec: {nets: [10.0.0.0/24]}
"""


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def endpoint(index: int, nodes: int = 100) -> WorkloadEndpoint:
    """The endpoint number `index`, as a CNI plugin writes it. Pure."""
    node, pod = f"node{index % nodes}", f"web-{index}"
    namespace = f"team{index % 20}"
    return WorkloadEndpoint(
        metadata=Metadata(
            name=workload_endpoint_name(node, "k8s", pod, "eth0"),
            namespace=namespace,
            labels={
                "app": "web",
                "projectcalico.org/namespace": namespace,
                "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/serviceaccount": "default",
            },
        ),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node=node,
            containerID=f"{index:064x}",
            pod=pod,
            endpoint="eth0",
            serviceAccountName="default",
            ipNetworks=[f"10.{64 + index // 65536}.{index // 256 % 256}.{index % 256}/32"],
            profiles=[f"kns.{namespace}", f"ksa.{namespace}.default"],
            interfaceName=f"cali{index:011x}",
        ),
    )


async def fill(etcd: Etcd, count: int) -> None:
    """Write `count` endpoints."""
    async with etcd.connect() as store:
        puts = [
            Put(ResourceKey("WorkloadEndpoint", one.metadata.name, one.metadata.namespace), one)
            for one in (endpoint(index) for index in range(count))
        ]
        for start in range(0, count, PER_COMMIT):
            await store.commit(puts[start : start + PER_COMMIT])
        for node in (Node(metadata=Metadata(name=f"node{index}")) for index in range(10)):
            await store.commit([Put(ResourceKey("Node", node.metadata.name), node)])
        pool = IPPool(metadata=Metadata(name="pool"), spec=IPPoolSpec(cidr="10.64.0.0/16"))
        await store.commit([Put(ResourceKey("IPPool", "pool"), pool)])


def cpu_of_children() -> float:
    """Processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(
    command: Sequence[str], environ: dict[str, str], runs: int, folder: str
) -> list[tuple[float, float]]:
    """Milliseconds, passed and of the processor, of `runs` runs after one that warms the caches."""
    samples = []
    for _ in range(runs + 1):
        started, used = time.perf_counter(), cpu_of_children()
        done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, check=False)
        passed = time.perf_counter() - started
        samples.append((passed * 1000, (cpu_of_children() - used) * 1000))
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()}")
    return samples[1:]


def figures(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """What is told of one series. Pure."""
    passed = [one for one, _ in samples]
    return {
        "p50_ms": round(median(passed), 1),
        "min_ms": round(min(passed), 1),
        "max_ms": round(max(passed), 1),
        "cpu_ms": round(min(cpu for _, cpu in samples), 1),
        "n": len(samples),
    }


def run(endpoints: int, runs: int) -> dict[str, Any]:
    """Everything, measured."""
    for room in ("calicoctl", "libcalico", "ipam"):
        compileall.compile_dir(ROOT / room, quiet=2)
    clean = {name: text for name, text in os.environ.items() if "ETCD" not in name}
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(Path(folder) / "etcd").start()
        try:
            say(f"writing {endpoints} endpoints")
            asyncio.run(fill(etcd, endpoints))
            environ = clean | etcd.environment()
            bare = [sys.executable, "-c", ""]
            results["python"] = figures(measured(bare, environ, runs, folder))
            (Path(folder) / "one.yaml").write_text(ONE)
            for words in (
                "version --client",
                "--help",
                *SHORT,
                "get tiers",
                "get workloadendpoints -a",
                "get workloadendpoints -a -o wide",
                "get workloadendpoints -a -o json",
                "get workloadendpoints -a -o yaml",
            ):
                say(words)
                command = [SCRIPT, *words.split()]
                results[words] = figures(measured(command, environ, runs, folder))
        finally:
            etcd.kill()
        results |= on_kubernetes(clean, runs, Path(folder))
    return {"endpoints": endpoints, "results": results}


def on_kubernetes(environ: dict[str, str], runs: int, folder: Path) -> dict[str, dict[str, float]]:
    """The short commands on the Kubernetes datastore; nothing where it cannot be had."""
    if lacking := missing():
        say(f"without the Kubernetes datastore: {lacking}")
        return {}
    api = ApiServer(folder / "api").start()
    try:
        kdd.install(api)
        for number in range(10):
            kdd.node(api, f"node{number}", f"192.0.2.{number}")
        (folder / "kubeconfig").write_text(kubeconfig(api))
        (folder / "pool.yaml").write_text(POOL)
        found = {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": str(folder / "kubeconfig")}
        given = environ | found
        measured([SCRIPT, "apply", "-f", "pool.yaml"], given, 1, str(folder))
        results = {}
        for words in SHORT:
            say(f"kubernetes: {words}")
            samples = measured([SCRIPT, *words.split()], given, runs, str(folder))
            results[f"kubernetes: {words}"] = figures(samples)
        return results
    finally:
        api.stop()


def text(found: dict[str, Any]) -> str:
    """The report for people. Pure."""
    lines = [
        f"{found['endpoints']} workload endpoints; milliseconds of a process, p50 (min-max), CPU"
    ]
    for name, one in found["results"].items():
        times = f"{one['p50_ms']:8} ({one['min_ms']}-{one['max_ms']}) {one['cpu_ms']:8}"
        lines.append(f"{name:36} {times}")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench calicoctl", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--endpoints", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=20)
    wanted = parser.parse_args()
    found = run(wanted.endpoints, wanted.runs)
    conclude("calicoctl", found, wanted, text)


if __name__ == "__main__":
    main()
