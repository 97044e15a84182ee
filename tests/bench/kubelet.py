"""`./run bench kubelet`: pods started by a kubelet, on our network and on bridge with host-local.

A cluster of tests/k8s with two equal nodes: node1 has our manifest, node2 Debian's bridge plugin.
40 pods are made at once on one node, and are gone before the next batch. The kinds are measured in
turns, and the order turns round each time, so that what disturbs the machine disturbs all of them.
One batch of each kind comes before. Pods of the kind `host` have node2's own network: they show
what is left without any plugin.
`--full` has batches of 110 too. etcd, API server, both nodes and the bench share the machine.

JSON: `results.COUNT.KIND` = {all_ready_s, all_running_s, removed_s (medians over batches),
running_ms, ready_ms {p50, p99 over all pods, from a pod's creation}, failed_probes (a pod),
stages_ms (means, one after another), timers {ms, a_pod}, cpu_ms (a pod, by who spent it)};
`shares.COUNT.KIND` = {network_ms: the runtime's wait for the plugins, of_ready, of_cpu};
`ratios.COUNT` = ours by bridge, medians over rounds. Needs root, and `./run k8s binaries`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from tests.bench import _boxed
from tests.bench._ending import in_order
from tests.bench._kubelet_meters import means
from tests.bench._kubelet_world import KINDS, Place, place
from tests.bench._reporting import add_arguments, conclude
from tests.bench.cni import percentile, say
from tests.bench.felix import table
from tests.k8s import images
from tests.k8s.releases import CURRENT

Json = dict[str, Any]
Batches = dict[str, list[Json]]
SMALL, FULL = (40,), (40, 110)
DATASTORES = ("etcd", "kubernetes")


def measure(found: Place, counts: Sequence[int], rounds: int, kinds: Sequence[str]) -> Json:
    """Batches by count and kind."""
    for kind in kinds:
        found.batch(kind, counts[0])  # the first of a cluster is the dearest
    raw: Json = {}
    for count in counts:
        batches: Batches = {kind: [] for kind in kinds}
        for number in range(rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                one = found.batch(kind, count)
                batches[kind].append(one)
                cpu = f"{one['cpu_ms']['total']:.0f} ms of CPU a pod"
                say(f"{count} pods, {kind}: {one['all_ready_s']:.1f} s to Ready, {cpu}")
        raw[str(count)] = batches
    return raw


# -- telling -----------------------------------------------------------------------------------


def report(raw: Json) -> Json:
    """The report from all batches. Pure."""
    results = {
        count: {kind: of_kind(batches) for kind, batches in kinds.items()}
        for count, kinds in raw.items()
    }
    return {
        "results": results,
        "shares": {
            count: {kind: share(one, kinds.get("host")) for kind, one in kinds.items()}
            for count, kinds in results.items()
        },
        "ratios": {
            count: ratios(kinds["muslin"], kinds["bridge"])
            for count, kinds in raw.items()
            if kinds.keys() >= {"muslin", "bridge"}
        },
    }


def of_kind(batches: Sequence[Json]) -> Json:
    """What is told of all batches of one kind. Pure."""
    walls = ("all_running_s", "all_ready_s", "removed_s")
    timers = batches[0]["timers"]
    return {
        **{name: round(median(one[name] for one in batches), 2) for name in walls},
        **{name: spread([ms for one in batches for ms in one[name]])
           for name in ("running_ms", "ready_ms")},
        "failed_probes": round(mean(one["failed_probes"] for one in batches), 2),
        "stages_ms": means(one["stages_ms"] for one in batches),
        "timers": {name: means(one["timers"][name] for one in batches) for name in timers},
        "cpu_ms": means(one["cpu_ms"] for one in batches),
    }  # fmt: skip


def spread(samples: Sequence[float]) -> Json:
    """Median and 99th percentile. Pure."""
    return {"p50": round(percentile(samples, 0.5)), "p99": round(percentile(samples, 0.99))}


def share(one: Json, host: Json | None) -> Json:
    """How much of a pod's start is its network. Pure.

    Of its time: the runtime's wait for the plugins, as a part of the mean from created to Ready. Of
    the CPU: what pods without a plugin do not spend.
    """
    network = one["timers"]["network"]["ms"]
    shares = {"network_ms": network, "of_ready": network / sum(one["stages_ms"].values())}
    if host is not None:
        shares["of_cpu"] = 1 - host["cpu_ms"]["total"] / one["cpu_ms"]["total"]
    return {name: round(value, 3) for name, value in shares.items()}


def ratios(ours: Sequence[Json], bridge: Sequence[Json]) -> Json:
    """Ours by bridge: the median over the rounds of what stood side by side. Pure."""
    pairs = list(zip(ours, bridge, strict=True))
    return {
        "ready_vs_bridge": _ratio(
            one["all_ready_s"] / other["all_ready_s"] for one, other in pairs
        ),
        "ready_p50_vs_bridge": _ratio(
            percentile(one["ready_ms"], 0.5) / percentile(other["ready_ms"], 0.5)
            for one, other in pairs
        ),
        "cpu_vs_bridge": _ratio(
            one["cpu_ms"]["total"] / other["cpu_ms"]["total"] for one, other in pairs
        ),
        "removed_vs_bridge": _ratio(one["removed_s"] / other["removed_s"] for one, other in pairs),
    }


def _ratio(each: Iterable[float]) -> float:
    return round(float(median(each)), 3)


def text(result: Json) -> str:
    """For people. Pure."""
    return table({name: result[name] for name in ("results", "shares", "ratios")})


def arguments() -> argparse.Namespace:
    """The command line's words."""
    parser = argparse.ArgumentParser(prog="./run bench kubelet", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true", help="110 pods a batch as well")
    parser.add_argument("--rounds", type=int, default=4, help="batches of each kind")
    parser.add_argument("--datastore", choices=DATASTORES, default="etcd", help="Calico's data")
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    return parser.parse_args()


def main() -> int:
    """The command line."""
    options = arguments()
    if why := CURRENT.missing() or ("" if images.busybox() else "busybox-static is missing"):
        print(f"{why} (./run install)" if "busybox" in why else why, file=sys.stderr)
        return 1
    if not _boxed.inside():
        return _boxed.run("tests.bench.kubelet")
    in_order()
    counts = FULL if options.full else SMALL
    with tempfile.TemporaryDirectory() as folder, place(Path(folder), options.datastore) as found:
        raw = measure(found, counts, options.rounds, options.kinds)
    conclude("kubelet", report(raw), options, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
