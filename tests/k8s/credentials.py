"""Who is who in a cluster of the tests: one authority, the API server's certificate, tokens.

Tokens that name their owner and anonymous kubelets are for this cluster only: nothing of it can be
reached from outside its namespaces.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority

CONTROL = "192.168.50.254"
"""Where the control plane is, as nodes see it."""
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
ADMIN = "admin"
USERS = {
    ADMIN: ("kubernetes-admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}


class Credentials:
    """Keys, certificates and kubeconfigs of one cluster, in a folder."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.authority = Authority(folder, "ca")
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        self.serving = self.authority.issue(
            "apiserver",
            names=(
                *(f"DNS:{name}" for name in (*names, f"{names[-1]}.cluster.local")),
                *(f"IP:{address}" for address in ("127.0.0.1", CONTROL, API_SERVICE)),
            ),
        )
        self.account_key, self.account_public = folder / "sa.key", folder / "sa.pub"
        for command in ("genrsa -out sa.key 2048", "rsa -in sa.key -pubout -out sa.pub"):
            subprocess.run(
                ["openssl", *command.split()], cwd=folder, check=True, capture_output=True
            )
        self.tokens = folder / "tokens.csv"
        lines = [
            f"{token},{name},{number}" + (f",{group}" if group else "")
            for number, (token, (name, group)) in enumerate(USERS.items(), 1)
        ]
        lines += [
            f"{node},system:node:{node},{number},system:nodes"
            for number, node in enumerate(nodes, 100)
        ]
        self.tokens.write_text("\n".join(lines) + "\n")
        for token in USERS:
            local = token != "proxy"
            self._configure(token, "https://127.0.0.1:6443" if local else f"https://{CONTROL}:6443")
        for node in nodes:
            self._configure(node, f"https://{CONTROL}:6443")

    def config(self, token: str) -> Path:
        """A kubeconfig."""
        return self.folder / f"{token}.conf"

    def _configure(self, token: str, server: str) -> None:
        cluster = {"server": server, "certificate-authority": str(self.authority.cert)}
        tree: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.config(token).write_text(json.dumps(tree))
