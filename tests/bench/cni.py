"""`./run bench cni`: ADD and DEL beside Debian's ptp + host-local, interleaved in one run.

One lab, one node, both plugins called by the same driver inside the node's namespaces, turn by
turn, so that what disturbs the machine disturbs both. Figures mean something as ratios. Stages of
our ADD come from the daemon's metrics.

JSON: `results.muslin|ptp.add_ms|del_ms` = {p50, p99, min, mean, n}, `results.stages_ms` = mean per
stage, `ratios` = ours / ptp.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from lab import cluster

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, ipipMode: Never, vxlanMode: Never}
"""
ROOT = Path(__file__).parent.parent.parent


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def percentile(samples: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of samples that are not empty. Pure."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(samples: Sequence[float]) -> dict[str, float]:
    """What is told of one series, in milliseconds. Pure."""
    return {
        "p50": round(percentile(samples, 0.5), 2),
        "p99": round(percentile(samples, 0.99), 2),
        "min": round(min(samples), 2),
        "mean": round(mean(samples), 2),
        "n": len(samples),
    }


def report(raw: dict[str, Any]) -> dict[str, Any]:
    """The report from the driver's samples. Pure."""
    results: dict[str, Any] = {
        kind: {name: figures(samples) for name, samples in raw[kind].items()}
        for kind in ("muslin", "ptp")
    }
    ratios = {
        f"{name}_{what}": round(results["muslin"][name][what] / results["ptp"][name][what], 2)
        for name in ("add_ms", "del_ms")
        for what in ("p50", "p99")
    }
    results["stages_ms"] = raw["stages_ms"]
    return {"results": results, "ratios": ratios}


def measure(rounds: int) -> dict[str, Any]:
    """Bring a node up, run the driver in it, take it down."""
    name = f"bench{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", say=say)
    try:
        node = lab.nodes[0]
        node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL.encode())
        driver = [sys.executable, "-m", "tests.bench._cni_driver", name, str(rounds)]
        done = node.run(["env", "-C", str(ROOT), *driver], timeout=600)
        raw: dict[str, Any] = json.loads(done.stdout)
        return raw
    finally:
        cluster.down(name)


def table(result: dict[str, Any]) -> str:
    """For people. Pure."""
    lines = ["             ADD p50   p99    DEL p50   p99   (ms)"]
    for kind in ("muslin", "ptp"):
        add, delete = (result["results"][kind][name] for name in ("add_ms", "del_ms"))
        lines.append(f"{kind:12} {add['p50']:7} {add['p99']:6} {delete['p50']:9} {delete['p99']:6}")
    lines.append(f"ratios: {result['ratios']}")
    stages = result["results"]["stages_ms"]
    lines += [
        f"  {command} {stage:20} {ms:8}"
        for command in stages
        for stage, ms in stages[command].items()
    ]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench cni", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    result = report(measure(options.rounds))
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
