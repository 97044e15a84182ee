"""What a pod's start costs on a node of tests/k8s, and where its time goes.

CPU is counted by control groups (cpuacct): programs that live for milliseconds, such as runc and
the plugins, are in them. Stages come from the runtime's log, which names each pod, and from the
runtime's and the kubelet's metrics, which have sums.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

from lab import proc
from tests.cri.containerd import CGROUPS
from tests.k8s import product
from tests.k8s.cluster import Cluster
from tests.k8s.node import Node

Totals = dict[str, float]
ACCOUNT = CGROUPS / "cpuacct"
TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_LINE = re.compile(r'^time="([^"]+)" level=info msg="(.*)"$', re.M)
_SANDBOX = re.compile(r"RunPodSandbox for &PodSandboxMetadata\{Name:([^,]+),.*?\}( returns )?")
_CREATE = re.compile(r'CreateContainer within sandbox \\"(\w+)\\" for .* container id \\"(\w+)')
_START = re.compile(r'StartContainer for \\"(\w+)\\" returns successfully')
_RETURNED = re.compile(r'returns sandbox id \\"(\w+)')
METRICS = {
    "runtime": ("http://127.0.0.1:1338/v1/metrics", {
        "network": "containerd_cri_sandbox_create_network_seconds",
        "container_create": "containerd_cri_container_create_seconds",
        "container_start": "containerd_cri_container_start_seconds",
    }),
    "kubelet": ("https://127.0.0.1:10250/metrics", {
        "syncs": "kubelet_pod_worker_duration_seconds",
        "relists": "kubelet_pleg_relist_duration_seconds",
        "statuses": "kubelet_pod_status_sync_duration_seconds",
    }),
}  # fmt: skip


# -- CPU ---------------------------------------------------------------------------------------


class Meter:
    """The CPU of one node's programs. Made before the node has a pod."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster, self._node = cluster, node
        self._root = ACCOUNT / node.cgroup
        self._runtime = _inner(node.daemons["containerd"].pid)
        for name, pid in (("containerd", self._runtime), ("kubelet", _inner(self._kubelet))):
            (self._root / name).mkdir()
            (self._root / name / "cgroup.procs").write_text(str(pid))

    @property
    def _kubelet(self) -> int:
        return self._node.daemons["kubelet"].pid

    def seconds(self) -> Totals:
        """CPU seconds so far, by who spent them; the control plane serves all nodes."""
        runtime, all_pods = _spent(self._runtime), self._usage("kubepods")
        ours, controllers = map(self._usage_of, (product.NODE_PODS, product.CONTROLLER_PODS))
        control = {name: _spent(one.pid) for name, one in self._cluster.control.daemons.items()}
        return {
            "kubelet": self._usage("kubelet"),
            "containerd": runtime,
            "shims, runc and plugins": self._usage("containerd") - runtime,
            "network's daemons": ours,
            "pods": all_pods - ours - controllers,
            "network's controllers": controllers,
            **control,
        }

    def transient(self) -> int:
        """How many pods have a control group, without those of the network itself."""
        return len(self._groups("*")) - sum(len(self._groups(uid)) for uid in self._network_pods())

    def _usage(self, group: str) -> float:
        return int((self._root / group / "cpuacct.usage").read_text()) / 1e9

    def _usage_of(self, where: str) -> float:
        groups = (path for uid in self._uids(where) for path in self._groups(uid))
        return sum(self._usage(str(path.relative_to(self._root))) for path in groups)

    def _network_pods(self) -> list[str]:
        return [*self._uids(product.NODE_PODS), *self._uids(product.CONTROLLER_PODS)]

    def _uids(self, where: str) -> list[str]:
        return [pod["metadata"]["uid"] for pod in self._cluster.api.items(where)]

    def _groups(self, uid: str) -> list[Path]:
        return list(self._root.glob(f"kubepods/**/pod{uid}"))


def _inner(pid: int) -> int:
    """The program that an `nsenter` waits for."""
    [inner] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(inner)


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) * TICK


def difference(before: Totals, after: Totals, pods: int) -> Totals:
    """Milliseconds a pod by who spent them, and `total`. Pure."""
    each = {name: (after[name] - before[name]) / pods * 1000 for name in after}
    return {**each, "total": sum(each.values())}


# -- stages ------------------------------------------------------------------------------------


@dataclass
class Begun:
    """When the runtime was asked for a pod's sandbox, when it had it, when the container ran.

    Seconds of the wall clock.
    """

    asked: float = 0.0
    sandbox: float = 0.0
    started: float = 0.0


def runtime_log(text: str) -> dict[str, Begun]:
    """What containerd 1.6 says of each pod, by the pod's name. Pure."""
    pods: dict[str, Begun] = {}
    sandboxes: dict[str, str] = {}
    containers: dict[str, str] = {}
    for time, said in _LINE.findall(text):
        at = datetime.fromisoformat(time).timestamp()
        if told := _SANDBOX.match(said):
            pod = pods.setdefault(told[1], Begun())
            if not told[2]:
                pod.asked = at
            elif identity := _RETURNED.search(said):
                pod.sandbox = at
                sandboxes[identity[1]] = told[1]
        elif (told := _CREATE.match(said)) and told[1] in sandboxes:
            containers[told[2]] = sandboxes[told[1]]
        elif (told := _START.match(said)) and told[1] in containers:
            pods[containers[told[1]]].started = at
    return pods


@dataclass(frozen=True)
class Seen:
    """When a pod was asked for, and when its status said Running and Ready; of the wall clock."""

    created: float
    running: float
    ready: float


def stages(seen: Mapping[str, Seen], begun: Mapping[str, Begun]) -> Totals:
    """Mean milliseconds of what follows one another from created to Ready. Pure."""
    pairs = [(seen[name], begun[name]) for name in seen]
    parts = {
        "kubelet": [pod.asked - at.created for at, pod in pairs],
        "sandbox": [pod.sandbox - pod.asked for _, pod in pairs],
        "container": [pod.started - pod.sandbox for _, pod in pairs],
        "told Running": [at.running - pod.started for at, pod in pairs],
        "Ready": [at.ready - at.running for at, _ in pairs],
    }
    return {name: round(mean(each) * 1000, 1) for name, each in parts.items()}


# -- metrics -----------------------------------------------------------------------------------


class Timers:
    """The sums and counts that a node's runtime and kubelet keep."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def read(self) -> dict[str, tuple[float, float]]:
        """Name to seconds and how often."""
        found: dict[str, tuple[float, float]] = {}
        for url, names in METRICS.values():
            text = proc.run(self._node.inside("curl", "-sk", url), timeout=60).stdout
            found |= {name: total(text, metric) for name, metric in names.items()}
        return found


def total(text: str, metric: str) -> tuple[float, float]:
    """The sum and the count of a histogram over all its labels. Pure."""
    pattern = rf"^{metric}_(sum|count)(?:\{{[^}}]*\}})? (\S+)$"
    told = re.findall(pattern, text, re.M)
    seconds, count = (
        sum(float(value) for kind, value in told if kind == name) for name in ("sum", "count")
    )
    return seconds, count


def timed(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], pods: int
) -> dict[str, Totals]:
    """Mean milliseconds of each kind of event, and how many of them a pod had. Pure."""
    result = {}
    for name, (seconds, count) in after.items():
        more = count - before[name][1]
        spent = (seconds - before[name][0]) / more * 1000 if more else 0.0
        result[name] = {"ms": round(spent, 1), "a_pod": round(more / pods, 2)}
    return result


def means(each: Iterable[Totals]) -> Totals:
    """Of several batches. Pure."""
    told = list(each)
    return {name: round(mean(one[name] for one in told), 1) for name in told[0]}
