"""A real `etcd grpc-proxy` before a real etcd, and an etcd that clients reach through one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from libcalico.apiconfig import DatastoreConfig
from tests.support.etcd import CALL, Etcd
from tests.support.own_process import OwnProcess
from tests.support.patience import HANG
from tests.support.ports import free_ports


class GrpcProxy(OwnProcess):
    """One proxy. `endpoint` stays the same over restarts; `flags` are further ones."""

    def __init__(
        self, folder: Path, members: Sequence[str], flags: Sequence[str] = (), scheme: str = "http"
    ) -> None:
        self._folder, self._members, self._flags = folder, list(members), list(flags)
        (self.port,) = free_ports(1)
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}"

    def start(self) -> GrpcProxy:
        """Start, and wait until it serves."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log_file = self._folder / "proxy.log"
        before = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("etcd", "grpc-proxy", "start"),
                    f"--endpoints={','.join(self._members)}",
                    f"--listen-addr=127.0.0.1:{self.port}",
                    f"--advertise-client-url=127.0.0.1:{self.port}",
                    f"--data-dir={self._folder / 'data'}",
                    *self._flags,
                ],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "ETCD_UNSUPPORTED_ARCH": ""},
            )
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline and self._process.poll() is None:
            # It listens before it has looked at its certificates.
            if "started gRPC proxy" in log_file.read_text()[before:]:
                return self
            time.sleep(0.02)
        raise RuntimeError("the proxy did not start:\n" + log_file.read_text()[-3000:])


class ProxiedEtcd(Etcd):
    """A server whose clients (`config`, `connect`, `reached`) go through a proxy of its own."""

    def __init__(self, folder: Path, extra: Sequence[str] = (), scheme: str = "http") -> None:
        super().__init__(folder, extra, scheme)
        self.proxy = GrpcProxy(folder / "proxy", [self.endpoint])

    @property
    def reached(self) -> str:
        """The proxy's endpoint."""
        return self.proxy.endpoint

    def start(self) -> Etcd:
        """Start the server, and the proxy if it does not run."""
        super().start()
        if not self.proxy.running:
            self.proxy.start()
        return self

    def config(self, timeout: float = CALL) -> DatastoreConfig:
        """A configuration that reaches the proxy."""
        return replace(super().config(timeout), etcd_endpoints=self.reached)
