"""What there is of a cluster on this machine: all of it is gone once the cluster is."""

from __future__ import annotations

import os
from pathlib import Path

from lab import proc
from tests.cri.containerd import CGROUPS
from tests.k8s.cluster import DISKS, Cluster

PROGRAMS = ("containerd", "containerd-shim-runc-v2", "etcd", "hyperkube", "kubelet")


def of(made: Cluster) -> dict[str, list[str]]:
    """By kind; links and mounts are in the cluster's namespaces, so they are never seen here."""
    name, disk = made.wires.name, str(made.disk)
    assert DISKS in disk
    spaces = [path.name for path in Path("/run/netns").iterdir() if path.name.startswith(name)]
    mounts = [
        line.split()[1]
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if disk in line or name in line
    ]
    return {
        "namespaces": spaces,
        "groups": [str(path) for path in CGROUPS.rglob(f"{name}*")],
        "links": [at.name for at in Path("/sys/class/net").iterdir() if at.name.startswith(name)],
        "mounts": mounts,
        "programs": running(name, disk),
        "disks": [disk] if made.disk.exists() else [],
    }


def running(name: str, disk: str) -> list[str]:
    """Programs of a cluster by their files, and whatever else was started with its names."""
    found = []
    for pid in proc.all_pids():
        try:
            program = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        known = Path(program).name in PROGRAMS or Path(program).name.startswith("kube-")
        told = proc.command_of(pid)
        if known and (name in told or disk in told):
            found.append(f"{pid} {program}")
    return found
