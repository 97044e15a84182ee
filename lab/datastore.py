"""The lab's etcd: one real server on its own machine behind the router, data on a tmpfs."""

from __future__ import annotations

from lab.machine import Machine
from lab.topology import Plan

DATA = "/var/lib/etcd-lab"
LOG = "/var/log/etcd.log"


def command(plan: Plan) -> list[str]:
    """etcd's command line. Pure."""
    return [
        "etcd",
        "--name=lab",
        f"--data-dir={DATA}",
        "--listen-client-urls=http://0.0.0.0:2379",
        f"--advertise-client-urls={plan.etcd_endpoint}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=lab=http://127.0.0.1:2380",
        "--logger=zap",
        "--log-level=warn",
    ]


def start(machine: Machine, plan: Plan) -> int:
    """Start etcd, on its old data where there is some; its pid."""
    return machine.start(command(plan), output=LOG).pid


def wait(machine: Machine, *, timeout: float = 15.0) -> None:
    """Wait until etcd says that it is healthy."""
    machine.wait_http(2379, "/health", timeout=timeout)
