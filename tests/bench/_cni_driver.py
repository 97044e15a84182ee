"""Runs inside a node of the lab: one pod of each kind per round, timed; prints samples as JSON."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.machine import Machine
from lab.runtime import Runtime, Sandbox
from lab.state import MachineRecord
from libcalico import paths

PTP: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "ptp",
    "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.66.0.0/16"}}],
}
METRIC = re.compile(
    r'^calico_cni_stage_seconds_(sum|count)\{command="(\w+)",stage="([^"]+)"\} (\S+)$', re.M
)
WARM_UP = 3


class Here(Machine):
    """The machine that this process is in already."""

    def command(self, command: Sequence[str], *, netns: str | None = None) -> list[str]:
        """Nothing to enter."""
        return list(command)

    def path(self, inside: Any) -> Any:
        """Paths are as they are."""
        return Path(inside)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a runtime passes on."""
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(extra or {})}


def stages() -> dict[tuple[str, str], tuple[float, float]]:
    """(command, stage) -> (seconds, calls) of the daemon's metrics."""
    url = f"http://127.0.0.1:{paths.CNI_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for kind, command, stage, value in METRIC.findall(text):
        found.setdefault((command, stage), {})[kind] = float(value)
    return {key: (entry["sum"], entry["count"]) for key, entry in found.items()}


def means(
    before: dict[tuple[str, str], tuple[float, float]],
    after: dict[tuple[str, str], tuple[float, float]],
) -> dict[str, dict[str, float]]:
    """Mean milliseconds per command and stage between two readings. Pure."""
    result: dict[str, dict[str, float]] = {}
    for (command, stage), (seconds, calls) in after.items():
        old_seconds, old_calls = before.get((command, stage), (0.0, 0.0))
        if calls > old_calls:
            spent = (seconds - old_seconds) / (calls - old_calls) * 1000
            result.setdefault(command, {})[stage] = round(spent, 3)
    return result


def once(runtime: Runtime, network: dict[str, Any], number: int) -> tuple[float, float]:
    """Milliseconds of one ADD and one DEL in a fresh namespace."""
    name = f"cni-{uuid.uuid4()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        place = f"/var/run/netns/{name}"
        sandbox = Sandbox(secrets.token_hex(32), place, "bench", f"pod-{number}", "uid")
        added = sum(answer.milliseconds for answer in runtime.add(network, sandbox))
        deleted = sum(answer.milliseconds for answer in runtime.delete(network, sandbox))
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    return added, deleted


def main() -> None:
    """Turn by turn."""
    lab, rounds = sys.argv[1], int(sys.argv[2])
    runtime = Runtime(Here(lab, "here", MachineRecord()))
    networks = {"muslin": runtime.network(), "ptp": PTP}
    samples: dict[str, Any] = {kind: {"add_ms": [], "del_ms": []} for kind in networks}
    before: dict[tuple[str, str], tuple[float, float]] = {}
    for number in range(-WARM_UP, rounds):
        if number == 0:
            before = stages()
        for kind, network in networks.items():
            added, deleted = once(runtime, network, number + WARM_UP)
            if number >= 0:
                samples[kind]["add_ms"].append(added)
                samples[kind]["del_ms"].append(deleted)
    print(json.dumps({**samples, "stages_ms": means(before, stages())}))


if __name__ == "__main__":
    main()
