"""`./run bench policy`: from `calicoctl apply` of one changed policy to the kernel's rule.

One lab of one node and ten pods; first 100, then 1,000 policies that are all active there. One
rule of one policy changes per round, by `calicoctl apply` (its own start-up included) and by the
library on an open connection (from the commit on). Work is counted, not only timed: restores,
chains rendered, the calculation's operations by felix's metrics; rules written and removed by the
kernel's own notifications. What a change costs should not grow with what does not change: ratios
of 1,000 to 100 near 1.

JSON: `results.100|1000` = {load_s, calicoctl_s|library_s: {p50, min, max, n}, operations: {way:
{name: p50}}}, `ratios` = 1,000 policies / 100 policies of each.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from lab import cluster, pods
from lab.cluster import Lab
from tests.bench._policy_driver import NAMESPACE, PODS
from tests.bench._reporting import add_plot, plot

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, ipipMode: Never, vxlanMode: Never}
"""
ROOT = Path(__file__).parent.parent.parent
SIZES = (100, 1000)
WAYS = ("calicoctl", "library")
SETTINGS = {"FELIX_PROMETHEUSMETRICSENABLED": "true", "FELIX_IPTABLESREFRESHINTERVAL": "600"}
Json = dict[str, Any]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def figures(samples: Sequence[float]) -> dict[str, float]:
    """What is told of one series of seconds. Pure."""
    return {
        "p50": round(median(samples), 4),
        "min": round(min(samples), 4),
        "max": round(max(samples), 4),
        "n": len(samples),
    }


def summary(raw: Json) -> Json:
    """The figures of one size. Pure."""
    result: Json = {"load_s": round(raw["load_s"], 2), "operations": {}}
    for way in WAYS:
        result[f"{way}_s"] = figures([sample["seconds"] for sample in raw[way]])
        counted = [sample["operations"] for sample in raw[way]]
        result["operations"][way] = {
            name: median(each[name] for each in counted) for name in counted[0]
        }
    return result


def ratio(large: float, small: float) -> float | None:
    """How much more; None where the smaller is nothing. Pure."""
    if not small:
        return 1.0 if not large else None
    return round(large / small, 2)


def report(raw: dict[int, Json]) -> Json:
    """The report of the driver's samples, smaller size first. Pure."""
    results = {str(size): summary(samples) for size, samples in raw.items()}
    small, large = results.values()
    ratios: Json = {f"{w}_s": ratio(large[f"{w}_s"]["p50"], small[f"{w}_s"]["p50"]) for w in WAYS}
    for name, value in small["operations"]["library"].items():
        ratios[name] = ratio(large["operations"]["library"][name], value)
    return {"results": results, "ratios": ratios}


def add_pods(lab: Lab) -> None:
    """Ten pods, one for each tenth of the policies."""

    def one(number: int) -> None:
        labels = {"app": f"a{number}", "role": f"r{number}"}
        pods.add(lab, f"pod{number}", "node1", namespace=NAMESPACE, labels=labels)

    one(0)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(one, range(1, PODS)))


def measure(size: int, rounds: int) -> Json:
    """Bring a node up, load `size` policies, change one at a time, take it down."""
    name = f"bench{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", environment=SETTINGS, say=say)
    try:
        node = lab.nodes[0]
        node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL.encode())
        add_pods(lab)
        say(f"{PODS} pods; loading {size} policies")
        driver = [sys.executable, "-m", "tests.bench._policy_driver", str(size), str(rounds)]
        done = node.run(["env", "-C", str(ROOT), *driver], timeout=600)
        raw: Json = json.loads(done.stdout)
        return raw
    finally:
        cluster.down(name)


def table(result: Json) -> str:
    """For people. Pure."""
    small, large = result["results"].values()
    lines = [f"{'':34}{'  '.join(f'{size:>9}' for size in result['results'])}      ratio"]
    lines.append(f"{'load all, s':34}{small['load_s']:9}  {large['load_s']:9}")
    for way in WAYS:
        one, other = (each[f"{way}_s"]["p50"] * 1000 for each in (small, large))
        title = f"one change by {way}, p50 ms"
        lines.append(f"{title:34}{one:9.1f}  {other:9.1f}  {result['ratios'][f'{way}_s']!s:>9}")
    for name, value in small["operations"]["library"].items():
        other = large["operations"]["library"][name]
        lines.append(f"{name:34}{value:9}  {other:9}  {result['ratios'][name]!s:>9}")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench policy", description=__doc__)
    parser.add_argument("--json", action="store_true")
    add_plot(parser)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    result = report({size: measure(size, options.rounds) for size in SIZES})
    plot("policy", result, options)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
