"""What serving costs: the CPU time of a lab's processes, and the stages that the daemon told of."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.proc import command_of
from libcalico.process import paths

METRIC = re.compile(
    r'^calico_cni_stage_seconds_(sum|count)\{command="(\w+)",stage="([^"]+)"\} (\S+)$', re.M
)
TICK = 1.0 / os.sysconf("SC_CLK_TCK")
NAMES = ("calico-cni", "calico-felix", "etcd")
Stages = Mapping[tuple[str, str], tuple[float, float]]


class Serving:
    """The long-lived processes of a lab."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._names = {
            pid: next((name for name in NAMES if name in command_of(pid)), "others") for pid in pids
        }

    def seconds(self) -> dict[str, float]:
        """CPU seconds so far by process, children that have ended included."""
        spent = dict.fromkeys((*NAMES, "others"), 0.0)
        for pid, name in self._names.items():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            spent[name] += sum(map(int, fields[11:15])) * TICK
        return spent


def stages() -> Stages:
    """(command, stage) -> (seconds, calls) of the daemon's metrics."""
    url = f"http://127.0.0.1:{paths.CNI_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for kind, command, stage, value in METRIC.findall(text):
        found.setdefault((command, stage), {})[kind] = float(value)
    return {key: (entry["sum"], entry["count"]) for key, entry in found.items()}


def means(before: Stages, after: Stages) -> dict[str, dict[str, float]]:
    """Mean milliseconds per command and stage between two readings. Pure."""
    result: dict[str, dict[str, float]] = {}
    for (command, stage), (seconds, calls) in after.items():
        old_seconds, old_calls = before.get((command, stage), (0.0, 0.0))
        if calls > old_calls:
            spent = (seconds - old_seconds) / (calls - old_calls) * 1000
            result.setdefault(command, {})[stage] = round(spent, 3)
    return result
