"""`./run bench cni`: ADD and DEL beside Debian's ptp and bridge with host-local, in one run.

One lab, one node; the kinds are called by the same driver in turns, so that what disturbs the
machine disturbs all of them: figures mean something as ratios. `muslin` answers when address and
endpoint are in the datastore and the policy is in the kernel: two policies of 22 rules that select
the pod by its label, one with a set that the pod itself belongs to; one such pod stays all the
time. `muslin_unwaited` does not wait for the kernel's rules. etcd's data lie on the disk, then on a
tmpfs; the rules in iptables (nft), then in nftables. Three to four minutes on a quiet machine.

JSON: `results.DATA.BACKEND` = {serial: {kind: {add_ms|del_ms: {p50, p99, min, mean, n}}},
one_by_one|parallel4|parallel16|burst110: {kind: {add|del: {wall_s, p50_ms, p99_ms, cpu_ms:
{total, plugin, and by process}}}}, stages_ms, stages_burst_ms}. `ratios` = ours / ptp with etcd on
the disk and iptables; `ratios_by_setting` = the same for each setting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

from lab import cluster, datastore, namespaces, proc
from lab.cluster import Lab
from lab.machine import Machine
from libcalico.process import paths
from tests.bench._cni_driver import BURST, WIDTHS
from tests.bench._reporting import add_arguments, conclude

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
DATA = ("disk", "tmpfs")
BACKENDS = {"iptables": "iptables-nft", "nftables": "nftables"}
KINDS = ("muslin", "muslin_unwaited", "ptp", "bridge")
POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.65.0.0/16, ipipMode: Never, vxlanMode: Never}
"""
# Labs read everything back every few seconds, to see repairs soon; this is what nodes do.
INTERVALS = {"FELIX_IPTABLESREFRESHINTERVAL": "180", "FELIX_IPSETSREFRESHINTERVAL": "90"}
MODES = {"iptables": "Disabled", "nftables": "Enabled"}


def policies() -> str:
    """Two policies that select every pod of the bench, 22 rules together. Pure."""
    ingress: list[Json] = [
        {
            "action": "Allow",
            "protocol": "TCP",
            "source": {"selector": "app == 'bench'"},
            "destination": {"ports": [80, "8000:8010"]},
        }
    ]
    ingress += [
        {"action": "Deny", "protocol": "TCP", "source": {"nets": [f"198.51.100.{16 * n}/28"]}}
        for n in range(9)
    ]
    egress: list[Json] = [
        {"action": "Allow", "protocol": "UDP", "destination": {"ports": [53 + n]}}
        for n in range(12)
    ]
    texts = []
    for name, order, direction, rules in (
        ("bench-in", 10, "ingress", ingress),
        ("bench-out", 20, "egress", egress),
    ):
        spec = {
            "selector": "app == 'bench'",
            "order": order,
            "types": [direction.capitalize()],
            direction: rules,
        }
        document = {
            "apiVersion": "projectcalico.org/v3",
            "kind": "GlobalNetworkPolicy",
            "metadata": {"name": name},
            "spec": spec,
        }
        texts.append(json.dumps(document))
    return "\n---\n".join(texts)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


# -- measuring ---------------------------------------------------------------------------------


@contextmanager
def bench_lab(data: str) -> Iterator[Lab]:
    """A lab of one node, with etcd's data on the disk or, as always in labs, on a tmpfs."""
    name = f"bench{os.getpid()}"
    bare: Json = {"nodes": 1, "topology": "flat", "agents_too": False}
    lab = cluster.up(name, **bare, environment=INTERVALS, say=say)
    disk = Path(tempfile.mkdtemp(prefix="etcd-", dir=ROOT / "tests")) if data == "disk" else None
    try:
        if disk:
            _onto(lab, disk)
        lab.state.agents = True
        cluster.start_agents(lab, say)
        node = lab.nodes[0]
        node.run(["calicoctl", "apply", "-f", "-"], stdin=POOL.encode())
        node.run(["calicoctl", "apply", "-f", "-"], stdin=policies().encode())
        namespaces.ensure(lab, "bench")
        yield lab
    finally:
        cluster.down(name)
        if disk:
            shutil.rmtree(disk, ignore_errors=True)


def _onto(lab: Lab, disk: Path) -> None:
    """Start etcd anew with its data on a directory of the host."""
    [etcd] = [pid for pid in lab.etcd.pids() if proc.command_of(pid).startswith("etcd ")]
    os.kill(etcd, signal.SIGTERM)
    proc.wait_until(lambda: proc.start_time(etcd) is None, "the end of etcd", timeout=20)
    lab.etcd.run(["mkdir", "-p", datastore.DATA])
    lab.etcd.run(["mount", "--bind", str(disk), datastore.DATA])
    os.chmod(disk, 0o700)
    datastore.start(lab.etcd, lab.plan)
    datastore.wait(lab.etcd)


def use_backend(node: Machine, backend: str) -> None:
    """Have felix write its rules there; returns when it does."""
    document = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "FelixConfiguration",
        # What node start-up wrote for this node wins over "default".
        "metadata": {"name": f"node.{node.name}"},
        "spec": {"nftablesMode": MODES[backend], "defaultEndpointToHostAction": "Return"},
    }
    node.run(["calicoctl", "apply", "-f", "-"], stdin=json.dumps(document).encode())
    status = node.path(paths.STATUS / "felix.json")

    def used() -> bool:
        told = json.loads(status.read_text())
        return bool(told["backend"] == BACKENDS[backend] and told["ready"])

    proc.wait_until(used, f"rules in {backend}", timeout=60)
    time.sleep(1.0)


def measure(options: argparse.Namespace) -> Json:
    """All settings: the driver's samples."""
    raw: Json = {}
    for data in options.data:
        with bench_lab(data) as lab:
            node = lab.nodes[0]
            for backend in options.backend:
                use_backend(node, backend)
                say(f"etcd's data on {data}, rules in {backend}")
                serving = [pid for machine in (lab.etcd, node) for pid in machine.pids()]
                numbers = map(str, (options.rounds, options.repeats, *serving))
                driver = [sys.executable, "-m", "tests.bench._cni_driver", lab.name, *numbers]
                done = node.run(["env", "-C", str(ROOT), *driver], timeout=3600)
                raw.setdefault(data, {})[backend] = json.loads(done.stdout)
    return raw


# -- telling -----------------------------------------------------------------------------------


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


def batches(runs: Sequence[Json]) -> Json:
    """What is told of one shape's repetitions. Pure."""
    each = [sample for one in runs for sample in one["each_ms"]]
    cpu = {name: round(mean(one["cpu_ms"][name] for one in runs), 2) for name in runs[0]["cpu_ms"]}
    return {
        "wall_s": round(median(one["wall_s"] for one in runs), 3),
        "p50_ms": round(percentile(each, 0.5), 2),
        "p99_ms": round(percentile(each, 0.99), 2),
        "cpu_ms": {"total": round(sum(cpu.values()), 2), **cpu},
    }


def setting(raw: Json) -> Json:
    """The figures of one setting. Pure."""
    result: Json = {
        "serial": {
            kind: {name: figures(series) for name, series in raw["serial"]["samples"][kind].items()}
            for kind in KINDS
        }
    }
    for shape in shapes():
        result[shape] = {
            kind: {name: batches(runs) for name, runs in raw[shape]["batches"][kind].items()}
            for kind in KINDS
        }
    result["stages_ms"] = raw["serial"]["stages_ms"]
    result["stages_burst_ms"] = raw[f"burst{BURST}"]["stages_ms"]
    return result


def shapes() -> tuple[str, ...]:
    """The shapes beside the serial one. Pure."""
    return ("one_by_one", *(f"parallel{width}" for width in WIDTHS), f"burst{BURST}")


def ratios(found: Json) -> Json:
    """Ours by ptp's. Pure."""
    ours, ptp = found["serial"]["muslin"], found["serial"]["ptp"]
    burst, burst_ptp = found[f"burst{BURST}"]["muslin"], found[f"burst{BURST}"]["ptp"]
    one_by_one = found["one_by_one"]
    cpu = {
        name: one_by_one["muslin"][name]["cpu_ms"]["total"]
        / one_by_one["ptp"][name]["cpu_ms"]["total"]
        for name in ("add", "del")
    }
    return {
        "add_p50_vs_ptp": round(ours["add_ms"]["p50"] / ptp["add_ms"]["p50"], 2),
        "add_p99_vs_ptp": round(ours["add_ms"]["p99"] / ptp["add_ms"]["p99"], 2),
        "del_p50_vs_ptp": round(ours["del_ms"]["p50"] / ptp["del_ms"]["p50"], 2),
        "burst110_seconds": burst["add"]["wall_s"],
        "burst110_vs_ptp": round(burst["add"]["wall_s"] / burst_ptp["add"]["wall_s"], 2),
        "del110_vs_ptp": round(burst["del"]["wall_s"] / burst_ptp["del"]["wall_s"], 2),
        "add_cpu_vs_ptp": round(cpu["add"], 2),
        "del_cpu_vs_ptp": round(cpu["del"], 2),
    }


def report(raw: Json) -> Json:
    """The report from the driver's samples. Pure."""
    results = {
        data: {backend: setting(found) for backend, found in by_backend.items()}
        for data, by_backend in raw.items()
    }
    by_setting = {
        f"{data} {backend}": ratios(found)
        for data, by_backend in results.items()
        for backend, found in by_backend.items()
    }
    return {
        "results": results,
        "ratios": next(iter(by_setting.values())),
        "ratios_by_setting": by_setting,
    }


def table(result: Json) -> str:
    """For people. Pure."""
    lines = []
    for data, by_backend in result["results"].items():
        for backend, found in by_backend.items():
            lines += [f"etcd on {data}, rules in {backend}", *_lines(found)]
            lines += [f"  ratios {result['ratios_by_setting'][f'{data} {backend}']}", ""]
    return "\n".join(lines)


def _lines(found: Json) -> Iterator[str]:
    yield f"  {'serial, ms':20}" + "".join(f"{kind:>24}" for kind in KINDS)
    for name in ("add_ms", "del_ms"):
        told = (found["serial"][kind][name] for kind in KINDS)
        cells = (f"{s['p50']} / {s['p99']}" for s in told)
        yield f"  {name:20}" + "".join(f"{cell:>24}" for cell in cells)
    for shape in shapes():
        for name in ("add", "del"):
            told = (found[shape][kind][name] for kind in KINDS)
            cells = (f"{s['wall_s']} s, cpu {s['cpu_ms']['total']}" for s in told)
            yield f"  {shape + ' ' + name:20}" + "".join(f"{cell:>24}" for cell in cells)
    for shape in ("one_by_one", f"burst{BURST}"):
        yield f"  cpu ms per ADD, {shape}: {found[shape]['muslin']['add']['cpu_ms']}"
    for name in ("stages_ms", "stages_burst_ms"):
        for command, stages in found[name].items():
            told_stages = ", ".join(f"{stage} {ms}" for stage, ms in stages.items())
            yield f"  {name} {command}: {told_stages}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./run bench cni", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=80, help="ADDs and DELs of each kind")
    parser.add_argument("--repeats", type=int, default=2, help="bursts of each kind")
    parser.add_argument("--data", choices=DATA, nargs="+", default=DATA)
    parser.add_argument("--backend", choices=BACKENDS, nargs="+", default=list(BACKENDS))
    options = parser.parse_args()
    result = report(measure(options))
    conclude("cni", result, options, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
