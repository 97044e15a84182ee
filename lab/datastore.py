"""The lab's etcd: one real server on its own machine behind the router, data on a tmpfs.

With `--tls` it takes no client without a certificate of the lab's own authority; every node gets
one, in files that root alone can read. Tested in tests/e2e/test_tls.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from lab import proc
from lab.certificates import Certificates, make_certificates
from lab.machine import Machine
from lab.topology import Plan

DATA = "/var/lib/etcd-lab"
LOG = "/var/log/etcd.log"
METRICS_PORT = 2381
SERVER_PKI = "/etc/etcd-lab"
CLIENT_PKI = "/etc/calico/pki"
FILES = {
    "ETCD_CA_CERT_FILE": f"{CLIENT_PKI}/ca.pem",
    "ETCD_CERT_FILE": f"{CLIENT_PKI}/client.pem",
    "ETCD_KEY_FILE": f"{CLIENT_PKI}/client.key",
}
ALONE = ("--heartbeat-interval=20", "--election-timeout=100")
"""A member that has no other waits for an election as well before it serves, and always wins."""


def command(plan: Plan) -> list[str]:
    """etcd's command line. Pure. Health has a listener of its own, which knows no keys."""
    scheme = "https" if plan.tls else "http"
    anywhere = "[::]" if plan.ipv6_only else "0.0.0.0"
    return [
        "etcd",
        "--name=lab",
        f"--data-dir={DATA}",
        f"--listen-client-urls={scheme}://{anywhere}:2379",
        f"--advertise-client-urls={plan.etcd_endpoint}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=lab=http://127.0.0.1:2380",
        *ALONE,
        f"--listen-metrics-urls=http://127.0.0.1:{METRICS_PORT}",
        "--logger=zap",
        "--log-level=warn",
        *(tls_flags() if plan.tls else []),
    ]


def tls_flags() -> list[str]:
    """The arguments with which etcd asks for client certificates. Pure."""
    return [
        f"--cert-file={SERVER_PKI}/server.pem",
        f"--key-file={SERVER_PKI}/server.key",
        f"--trusted-ca-file={SERVER_PKI}/ca.pem",
        "--client-cert-auth=true",
    ]


def client_environment() -> dict[str, str]:
    """How etcdctl on etcd's own machine logs in. Pure."""
    return {
        "ETCDCTL_ENDPOINTS": "https://127.0.0.1:2379",
        "ETCDCTL_CACERT": FILES["ETCD_CA_CERT_FILE"],
        "ETCDCTL_CERT": FILES["ETCD_CERT_FILE"],
        "ETCDCTL_KEY": FILES["ETCD_KEY_FILE"],
    }


def secure(etcd: Machine, nodes: Iterable[Machine], plan: Plan, folder: Path) -> None:
    """Make certificates below `folder` and hand them to the server and to its clients."""
    made = make_certificates(folder / "pki", [str(plan.etcd.address.ip), "127.0.0.1"])
    hand_over(etcd, SERVER_PKI, (made.ca, made.server_cert, made.server_key))
    for machine in (etcd, *nodes):
        hand_over(machine, CLIENT_PKI, client_files(made))


def client_files(made: Certificates) -> tuple[Path, ...]:
    """The files that a client needs. Pure."""
    return made.ca, made.client_cert, made.client_key


def hand_over(machine: Machine, directory: str, files: Iterable[Path]) -> None:
    """Copy files to a machine, for root alone."""
    target = machine.path(directory)
    target.mkdir(parents=True, mode=0o700, exist_ok=True)
    for file in files:
        copy = target / file.name
        copy.touch(mode=0o600)
        shutil.copyfile(file, copy)


def start(machine: Machine, plan: Plan) -> int:
    """Start etcd, on its old data where there is some; its pid."""
    return machine.start(command(plan), output=LOG).pid


def wait(machine: Machine, *, timeout: float = proc.PATIENCE) -> None:
    """Wait until etcd says that it is healthy."""
    machine.wait_http(METRICS_PORT, "/health", timeout=timeout)
