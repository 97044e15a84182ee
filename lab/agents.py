"""Muslin's own processes on a node: installed and started as an operator would, nothing more.

The lab writes configuration files and environment, starts `calico-node run`, and waits for the
health port. Tested in tests/lab/test_updown.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from lab import datastore, proc
from lab.machine import Machine
from lab.router import HOLD_SECONDS
from lab.topology import NODE_AS, Plan
from libcalico.process import paths

REFERENCE_PLUGINS = Path("/usr/lib/cni")
LOG = paths.LOG / "calico-node.log"
KUBERNETES = "kubernetes"
"""The DATASTORE_TYPE of a lab whose nodes have a Kubernetes API, which is not the lab's own."""
NOTHING: Mapping[str, str] = MappingProxyType({})

IPV6_ONLY = {"IP": "none", "IP6": "autodetect", "CALICO_ROUTER_ID": "hash"}

CALICOCTL_CONFIG = """\
apiVersion: projectcalico.org/v3
kind: CalicoAPIConfig
metadata:
spec:
  datastoreType: etcdv3
  etcdEndpoints: {endpoint}
"""
CALICOCTL_KUBERNETES = """\
apiVersion: projectcalico.org/v3
kind: CalicoAPIConfig
metadata:
spec:
  datastoreType: kubernetes
  kubeconfig: {KUBECONFIG}
"""
CALICOCTL_TLS = """\
  etcdKeyFile: {ETCD_KEY_FILE}
  etcdCertFile: {ETCD_CERT_FILE}
  etcdCACertFile: {ETCD_CA_CERT_FILE}
"""


def environment(plan: Plan, node: str) -> dict[str, str]:
    """The variables that an operator sets for a node, by Calico's names. Pure."""
    host = plan.node(node)
    own = host.as_number
    return {
        "NODENAME": node,
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": plan.etcd_endpoint,
        "IP": str(host.loopback.ip) if host.loopback is not None else "autodetect",
        "CALICO_NETWORKING_BACKEND": "bird",
        "NO_DEFAULT_POOLS": "true",
        "WAIT_FOR_DATASTORE": "true",
        "FELIX_IPTABLESREFRESHINTERVAL": "5",
        "FELIX_IPSETSREFRESHINTERVAL": "5",
        "FELIX_HEALTHENABLED": "true",
        "FELIX_REPORTINGINTERVALSECS": "30",
        # No kubelet here has left the hint by which the back end is found on a real host.
        "FELIX_IPTABLESBACKEND": "NFT",
        "CALICO_BGP_HOLD_TIME": str(HOLD_SECONDS),
        **({"AS": str(own)} if own != NODE_AS else {}),
        **(IPV6_ONLY if plan.ipv6_only else {}),
        **(datastore.FILES if plan.tls else {}),
    }


def install(machine: Machine, plan: Plan, extra: Mapping[str, str] = NOTHING) -> None:
    """calicoctl's configuration, the distribution's CNI plugins, our CNI plugin."""
    write_config(machine, plan, extra)
    for plugin in sorted(REFERENCE_PLUGINS.iterdir()):
        machine.path(paths.CNI_BIN / plugin.name).symlink_to(plugin)
    # Our plugin alone: what a chain costs and does is no part of what the lab shows.
    command = [sys.executable, "-m", "cni.install", "--chain="]
    machine.run(command, environment={**environment(plan, machine.name), **extra})


def write_config(machine: Machine, plan: Plan, extra: Mapping[str, str] = NOTHING) -> None:
    """calicoctl.cfg, which names files of keys and is for root alone."""
    text = CALICOCTL_CONFIG.format(endpoint=plan.etcd_endpoint)
    if extra.get("DATASTORE_TYPE") == KUBERNETES:
        text = CALICOCTL_KUBERNETES.format(**extra)
    elif plan.tls:
        text += CALICOCTL_TLS.format(**datastore.FILES)
    path = machine.path(paths.CALICOCTL_CONFIG)
    path.touch(mode=0o600)
    path.write_text(text)


def start(machine: Machine, plan: Plan, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `calico-node run`, which supervises the rest; `extra` wins over the lab's settings."""
    program = shutil.which("calico-node", path=machine.environment()["PATH"]) or "calico-node"
    settings = {**environment(plan, machine.name), **extra}
    return machine.start([program, "run"], environment=settings, output=str(LOG))


def wait(
    machine: Machine, started: subprocess.Popen[bytes] | None = None, *, timeout: float
) -> None:
    """Wait until felix says that it is ready and the CNI daemon listens; LabError otherwise.

    `started` is what `start` returned: no agent comes once it has ended.
    """
    machine.wait_http(paths.FELIX_HEALTH_PORT, "/readiness", timeout=timeout, server=started)
    socket = machine.path(paths.CNI_SOCKET)
    proc.wait_until(socket.exists, f"{machine.name}: {paths.CNI_SOCKET}", timeout=timeout)


def log_tail(machine: Machine, lines: int = 15) -> str:
    """The end of the node's log, for an error message."""
    try:
        return "\n".join(machine.path(LOG).read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
