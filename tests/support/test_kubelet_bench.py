"""`./run bench kubelet`: what it reads of runtime and kubelet, what it tells, and that it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lab import proc
from tests import run_folder
from tests.bench import _kubelet_meters as meters
from tests.bench import kubelet
from tests.bench._boxed import ROOT
from tests.bench._goals import judged
from tests.bench._kubelet_world import Told, only_on, pod
from tests.cri.containerd import CGROUPS
from tests.support.patience import wait_for

LOG = (
    """\
time="2026-11-27T15:56:12.500000000Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:\
p-1,Uid:59a4,Namespace:bench,Attempt:0,}"
time="2026-11-27T15:56:13.000000000Z" level=info msg="loading plugin"
time="2026-11-27T15:56:14.500000000Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:\
p-1,Uid:59a4,Namespace:bench,Attempt:0,} returns sandbox id \\"3844\\""
time="2026-11-27T15:56:14.600000000Z" level=info msg="CreateContainer within sandbox \\"3844\\" \
for container &ContainerMetadata{Name:web,Attempt:0,}"
time="2026-11-27T15:56:15.000000000Z" level=info msg="CreateContainer within sandbox \\"3844\\" \
for &ContainerMetadata{Name:web,Attempt:0,} returns container id \\"07fe\\""
time="2026-11-27T15:56:15.100000000Z" level=info msg="StartContainer for \\"07fe\\""
time="2026-11-27T15:56:15.500000000Z" level=info msg="StartContainer for \\"07fe\\" returns \
successfully"
time="2026-11-27T15:56:16.500000000Z" level=info msg="StartContainer for \\"none\\" returns \
successfully"
"""
)  # fmt: skip


def test_the_stages_of_a_pod_follow_one_another_and_fill_its_start() -> None:
    begun = meters.runtime_log(LOG)
    assert list(begun) == ["p-1"]
    asked = begun["p-1"].asked
    seen = {"p-1": meters.Seen(created=asked - 0.5, running=asked + 4.0, ready=asked + 5.0)}
    found = meters.stages(seen, begun)
    assert found == {
        "kubelet": 500.0,
        "sandbox": 2000.0,
        "container": 1000.0,
        "told Running": 1000.0,
        "Ready": 1000.0,
    }
    assert sum(found.values()) == 5500.0


def test_a_histogram_is_summed_over_its_labels() -> None:
    text = """\
# TYPE x_seconds histogram
x_seconds_bucket{operation="a",le="0.1"} 7
x_seconds_sum{operation="a"} 1.5
x_seconds_count{operation="a"} 3
x_seconds_sum{operation="b"} 0.5
x_seconds_count{operation="b"} 1
more_x_seconds_sum 100
plain_seconds_sum 2.5e-01
plain_seconds_count 4
"""
    assert meters.total(text, "x_seconds") == (2.0, 4.0)
    assert meters.total(text, "plain_seconds") == (0.25, 4.0)
    assert meters.total(text, "absent_seconds") == (0.0, 0.0)


def test_what_a_batch_cost_is_told_for_one_pod() -> None:
    assert meters.difference({"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 4.0}, 10) == {
        "a": 50.0,
        "b": 200.0,
        "total": 250.0,
    }
    before, after = (
        {"network": (1.0, 10.0), "idle": (1.0, 1.0)},
        {
            "network": (3.0, 20.0),
            "idle": (1.0, 1.0),
        },
    )
    assert meters.timed(before, after, 5) == {
        "network": {"ms": 200.0, "a_pod": 2.0},
        "idle": {"ms": 0.0, "a_pod": 0.0},
    }


def _batch(seconds: float, cpu: float, network: float) -> dict[str, Any]:
    return {
        "all_running_s": seconds - 1,
        "all_ready_s": seconds,
        "removed_s": 1.0,
        "running_ms": [seconds * 500],
        "ready_ms": [seconds * 500, seconds * 1000],
        "stages_ms": {"sandbox": 3000.0, "Ready": 1000.0},
        "timers": {"network": {"ms": network, "a_pod": 1.0}},
        "cpu_ms": {"kubelet": cpu, "total": cpu},
        "failed_probes": 1.0,
    }


def test_ratios_are_of_what_stood_side_by_side() -> None:
    """A machine that becomes slower with each round changes no ratio."""
    ours = [_batch(10, 90, 200), _batch(20, 180, 400), _batch(40, 360, 600)]
    other = [_batch(20, 100, 800), _batch(40, 200, 800), _batch(80, 400, 800)]
    host = [_batch(5, 105, 0)]
    told = kubelet.report({"40": {"muslin": ours, "bridge": other, "host": host}})
    assert told["ratios"]["40"] == {
        "ready_vs_bridge": 0.5,
        "ready_p50_vs_bridge": 0.5,
        "cpu_vs_bridge": 0.9,
        "removed_vs_bridge": 1.0,
    }
    assert told["shares"]["40"]["muslin"] == {"network_ms": 400, "of_ready": 0.1, "of_cpu": 0.5}
    assert told["results"]["40"]["muslin"]["all_ready_s"] == 20
    assert "ready_vs_bridge" in kubelet.text(told)


def test_a_pod_is_ready_when_its_status_first_says_so() -> None:
    told = Told()
    ready = {"type": "Ready", "status": "True"}
    states: list[tuple[str, list[dict[str, str]]]] = [
        ("Pending", []),
        ("Running", [{**ready, "status": "False"}]),
        ("Running", [ready]),
        ("Running", [ready]),
    ]
    for at, (phase, conditions) in enumerate(states):
        status = {"phase": phase, "conditions": conditions}
        told.hear({"metadata": {"name": "p"}, "status": status}, float(at))
    assert told.running == {"p": 1.0}
    assert told.ready == {"p": 2.0}


def test_pods_of_the_node_have_ports_of_their_own_and_no_scheduler() -> None:
    one, other = (pod(f"p{n}", "node2", 20000 + n, host=True)["spec"] for n in (1, 2))
    assert one["hostNetwork"]
    assert one["nodeName"] == "node2"
    ports = [each["containers"][0]["readinessProbe"]["httpGet"]["port"] for each in (one, other)]
    assert ports == [20001, 20002]


@pytest.mark.parametrize("file", ["calico.yaml", "calico-etcd.yaml"])
def test_the_whole_manifest_is_put_on_one_node(file: str) -> None:
    text = only_on("node1", (ROOT / "manifests" / file).read_text())
    assert text.count("kubernetes.io/hostname: node1") == 2
    assert "check-status" not in text
    assert text.count("livenessProbe") == 3, "calico-node's stay"


SAMPLE = """\
import os, signal, sys, tempfile
from pathlib import Path
from tests import run_folder
from tests.bench import _boxed
if not _boxed.inside():
    sys.exit(_boxed.run("boxed_sample"))
name, told = sys.argv[1:]
run_folder.name_groups(f"{name}*")
group = Path("/sys/fs/cgroup/cpuacct") / f"{name}-1/below"
group.mkdir(parents=True)
(group / "cgroup.procs").write_text(str(os.getpid()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(told).write_text(tempfile.gettempdir())
signal.pause()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a box needs root")
@pytest.mark.skipif(not (CGROUPS / "cpuacct").is_dir(), reason="no control groups of version 1")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_bench(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes end with it, even one that does not listen.

    Its control groups and files go too: with the next run where it was killed itself.
    """
    (tmp_path / "boxed_sample.py").write_text(SAMPLE)
    told, name = tmp_path / "told", f"muslin-boxed-{os.getpid()}-{how.name}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "TMPDIR": str(tmp_path)}
    words = [sys.executable, str(tmp_path / "boxed_sample.py"), name, str(told)]
    process = subprocess.Popen(words, env=environ, cwd=ROOT)
    try:
        wait_for(lambda: told.exists() and told.read_text(), "the box is there")
        folder = Path(told.read_text())
        [pid] = (CGROUPS / f"cpuacct/{name}-1/below/cgroup.procs").read_text().split()
        assert folder.parent == tmp_path
    finally:
        process.send_signal(how)
        status = process.wait()
    wait_for(lambda: proc.start_time(int(pid)) is None, "what was in the box has ended")
    if how == signal.SIGKILL:
        with run_folder.made() as another:
            run_folder.remove(another)
    else:
        assert status == 128 + how
    assert not list(CGROUPS.glob(f"*/{name}*"))
    assert not folder.exists()


def test_the_goal_of_the_bench_is_judged() -> None:
    result = json.loads('{"ratios": {"40": {"ready_vs_bridge": 1.01}}}')
    assert [row["met"] for row in judged("kubelet", result, full=False)] == [False]
