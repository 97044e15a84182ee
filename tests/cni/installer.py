"""A host whose directories an installer's container would have mounted, and the installer.

host = Host(tmp_path)
host.run(CNI_NETWORK_CONFIG=..., SLEEP="false")       # in process, as the init container
with host.sidecar(CNI_NETWORK_CONFIG=...) as process: # as a process that stays
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cni.install.main import parser, run
from tests.cni.executable import plugin

REFERENCE = Path("/usr/lib/cni")
TOKEN = "ey-a.canary-token.made-for-tests"
LIST: dict[str, Any] = {
    "name": "k8s-pod-network",
    "cniVersion": "0.3.1",
    "plugins": [
        {
            "type": "calico",
            "log_level": "__LOG_LEVEL__",
            "datastore_type": "__DATASTORE_TYPE__",
            "nodename": "__KUBERNETES_NODE_NAME__",
            "mtu": 1500,
            "ipam": {"type": "calico-ipam"},
            "policy": {"type": "k8s"},
            "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
        },
        {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
    ],
}
TEMPLATE = json.dumps(LIST)
PEM = {"etcd-key": "a key", "etcd-cert": "a certificate", "etcd-ca": "a CA"}
# The shape that the first generation's ConfigMap has.
FIRST_GENERATION = """{
    "name": "k8s-pod-network",
    "cniVersion": "0.1.0",
    "type": "calico",
    "etcd_endpoints": "__ETCD_ENDPOINTS__",
    "etcd_key_file": "__ETCD_KEY_FILE__",
    "etcd_cert_file": "__ETCD_CERT_FILE__",
    "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__",
    "log_level": "info",
    "mtu": __CNI_MTU__,
    "ipam": {"type": "calico-ipam"},
    "policy": {
        "type": "k8s",
        "k8s_api_root": "https://__KUBERNETES_SERVICE_HOST__:__KUBERNETES_SERVICE_PORT__",
        "k8s_auth_token": "__SERVICEACCOUNT_TOKEN__"
    },
    "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}
}"""


class Host:
    """The mounted directories of one host below `folder`, a service account, etcd's secrets."""

    def __init__(self, folder: Path) -> None:
        self.host = folder / "host"
        self.bin, self.net = self.host / "opt/cni/bin", self.host / "etc/cni/net.d"
        self.account, self.secrets = folder / "account", folder / "secrets"
        self.image = folder / "image"
        for made in (self.bin, self.net, self.account, self.secrets, self.image):
            made.mkdir(parents=True)
        for name in ("portmap", "host-local"):
            shutil.copy(REFERENCE / name, self.image / name)
        (self.image / "install").write_text("#!/bin/sh\n")
        (self.image / "install").chmod(0o755)
        (self.account / "token").write_text(TOKEN)
        (self.account / "ca.crt").write_text("the CA")
        plugin()

    def environ(self, **changes: str) -> dict[str, str]:
        """What a pod's environment would hold, and `changes`."""
        return {
            "KUBERNETES_SERVICE_HOST": "10.233.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
            "KUBERNETES_NODE_NAME": "node1",
            "ETCD_ENDPOINTS": "https://192.0.2.1:2379",
            "TLS_ASSETS_DIR": str(self.secrets),
            **changes,
        }

    def arguments(self, *more: str) -> list[str]:
        """The command line that leads to these directories."""
        return [
            f"--host={self.host}",
            f"--plugins={self.image}",
            f"--service-account={self.account}",
            *more,
        ]

    def run(self, *more: str, **changes: str) -> None:
        """One installation, as an init container. Raises MuslinError."""
        environ = self.environ(**{"SLEEP": "false", **changes})
        assert run(parser().parse_args(self.arguments(*more)), environ) is None

    @contextlib.contextmanager
    def sidecar(self, command: str = "", **changes: str) -> Iterator[subprocess.Popen[str]]:
        """The installer as a process that stays, until the end of the block."""
        program = [command] if command else [sys.executable, "-m", "cni.install"]
        venv = str(Path(sys.executable).parent)
        process = subprocess.Popen(
            [*program, *self.arguments()],
            env={**os.environ, **self.environ(**changes), "PATH": f"{venv}:{os.environ['PATH']}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def written(self, name: str = "10-calico.conflist") -> Any:
        """The decoded configuration, after checking that it is for root alone."""
        path = self.net / name
        assert mode(path) == 0o600
        return msgspec.json.decode(path.read_bytes())

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file below the two directories: mode and bytes, by its path."""
        return {
            str(path.relative_to(self.host)): (mode(path), path.read_bytes())
            for path in sorted(self.host.rglob("*"))
            if path.is_file()
        }

    def visible(self) -> list[str]:
        """What a runtime would take for a configuration."""
        return sorted(
            name for name in os.listdir(self.net) if name.endswith((".conf", ".conflist", ".json"))
        )


def mode(path: Path) -> int:
    """Permission bits, of a link its own."""
    return stat.S_IMODE(path.lstat().st_mode)
