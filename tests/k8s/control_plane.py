"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in a namespace of their own.

etcd serves Kubernetes on the namespace's loopback, and with TLS and client certificates on the
address that nodes see: there Calico's data lies where a cluster runs with a datastore of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lab import proc
from tests.k8s.api import Api
from tests.k8s.credentials import ADMIN, CONTROL, SERVICES, Credentials
from tests.k8s.daemons import Daemon
from tests.k8s.releases import CURRENT, Release
from tests.k8s.wires import Wires

PODS = "10.244.0.0/16"
PATIENCE = 300.0
ETCD = f"https://{CONTROL}:2379"
_STORE = "http://127.0.0.1:2379"


class ControlPlane:
    """What runs beside the nodes."""

    def __init__(
        self,
        wires: Wires,
        credentials: Credentials,
        disk: Path,
        logs: Path,
        *,
        extra: Sequence[str] = (),
        release: Release = CURRENT,
    ) -> None:
        self.wires, self.credentials, self.disk, self.logs = wires, credentials, disk, logs
        self.release = release
        self.api = Api(wires.control, credentials, release)
        self._server = credentials.authority.issue("etcd", names=(f"IP:{CONTROL}",))
        self.daemons = {
            "etcd": self._daemon("etcd", self._etcd()),
            "kube-apiserver": self._daemon("kube-apiserver", [*self._api_server(), *extra]),
            "kube-controller-manager": self._daemon("kube-controller-manager", self._controllers()),
            "kube-scheduler": self._daemon("kube-scheduler", self._scheduler()),
        }

    def start(self) -> None:
        """Start all, and wait until the API is ready."""
        self.daemons["etcd"].start()
        self.daemons["kube-apiserver"].start()
        self.wait()
        self.daemons["kube-controller-manager"].start()
        self.daemons["kube-scheduler"].start()

    def wait(self) -> None:
        """Until the API server says that it is ready."""
        server = self.daemons["kube-apiserver"]

        def ready() -> bool:
            assert server.alive, server.tail()
            return self.api.ready()

        proc.wait_until(ready, "the API server is ready", timeout=PATIENCE, every=0.1)

    def stop(self) -> None:
        """End all. The API server takes a minute for SIGTERM, so none is asked."""
        for daemon in reversed(self.daemons.values()):
            daemon.kill()

    def _daemon(self, name: str, words: Sequence[str]) -> Daemon:
        program = self.release.etcd() if name == "etcd" else str(self.release.folder() / name)
        command = [program, *words]
        return Daemon(
            self.logs / f"{name}.log",
            self.wires.inside(self.wires.control, command),
            # Half of the machine's processors are enough for the garbage collector.
            {"GOGC": os.environ.get("GOGC", "200")},
        )

    def _etcd(self) -> list[str]:
        at = self.credentials
        return [
            "--name=lab",
            f"--data-dir={self.disk / 'etcd'}",
            f"--listen-client-urls={_STORE},{ETCD}",
            f"--advertise-client-urls={_STORE}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            f"--cert-file={self._server.cert}",
            f"--key-file={self._server.key}",
            f"--trusted-ca-file={at.authority.cert}",
            "--client-cert-auth=true",
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        at = self.credentials
        return [
            f"--etcd-servers={_STORE}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={CONTROL}",
            "--secure-port=6443",
            f"--cert-dir={self.disk / 'certificates'}",
            f"--tls-cert-file={at.serving.cert}",
            f"--tls-private-key-file={at.serving.key}",
            f"--client-ca-file={at.authority.cert}",
            f"--token-auth-file={at.tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={at.account_key}",
            f"--service-account-key-file={at.account_public}",
            f"--service-cluster-ip-range={SERVICES}",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--shutdown-delay-duration=0s",
        ]

    def _controllers(self) -> list[str]:
        at = self.credentials
        return [
            f"--kubeconfig={at.config('controllers')}",
            f"--service-account-private-key-file={at.account_key}",
            f"--root-ca-file={at.authority.cert}",
            "--use-service-account-credentials=true",
            f"--cluster-signing-cert-file={at.authority.cert}",
            f"--cluster-signing-key-file={at.authority.key}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.disk / 'controllers'}",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--leader-elect=false",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={PODS}",
            "--node-monitor-grace-period=16s",
            "--node-monitor-period=2s",
        ]

    def _scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self.credentials.config('scheduler')}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.disk / 'scheduler'}",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--leader-elect=false",
        ]


__all__ = ["ADMIN", "ETCD", "PODS", "ControlPlane"]
