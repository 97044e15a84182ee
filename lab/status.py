"""The status of a lab: machines, their processes and addresses, pods."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from lab import pods, proc
from lab.cluster import Lab
from lab.machine import Machine
from libcalico.process import paths


@dataclass(frozen=True)
class MachineStatus:
    """One machine. `processes` maps pid to what `ps` shows, those of its pods included."""

    name: str
    alive: bool
    netns: str
    address: str
    processes: dict[int, str]


@dataclass(frozen=True)
class Status:
    """The whole lab."""

    name: str
    topology: str
    ready: bool
    machines: list[MachineStatus]
    pods: list[dict[str, Any]]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)

    def as_text(self) -> str:
        """For people."""
        lines = [
            f"lab {self.name}: topology {self.topology}, {'ready' if self.ready else 'not ready'}"
        ]
        for machine in self.machines:
            life = "up" if machine.alive else "DOWN"
            lines.append(f"{machine.name:8} {life:5} {machine.netns:20} {machine.address}")
            lines += [f"         {pid:>7} {text[:90]}" for pid, text in machine.processes.items()]
        lines += [
            f"pod {p['namespace']}/{p['name']} on {p['node']}: {p['addresses']}" for p in self.pods
        ]
        return "\n".join(lines)


def status(lab: Lab) -> Status:
    """Look at every machine now."""
    addresses = {host.name: str(host.address) for host in lab.plan.hosts}
    machines = []
    for name in lab.state.machines:
        machine = lab.machine(name)
        alive = proc.start_time(machine.record.pid) == machine.record.started
        running = {pid: proc.command_of(pid) for pid in machine.pids()} if alive else {}
        machines.append(MachineStatus(name, alive, machine.netns, addresses.get(name, ""), running))
    listed = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "node": pod.node,
            "addresses": pod.addresses,
            "containerID": pod.container_id,
            "netns": pod.netns,
        }
        for pod in pods.every(lab)
    ]
    return Status(lab.name, lab.plan.topology, lab.state.ready, machines, listed)


def sessions(node: Machine) -> dict[str, str]:
    """peer -> state of a node's BGP sessions, as its own bgp tells it; empty before that."""
    try:
        answer = json.loads(node.path(paths.STATUS / "bgp.json").read_text())
    except (OSError, ValueError):
        return {}
    return {peer["address"]: peer["info"] for peer in answer.get("peers", [])}
