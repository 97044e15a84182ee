"""A real kube-proxy in a network namespace, and Services of every kind for it to serve.

It is what felix has to live beside: in mode `iptables` it writes KUBE-* chains into the tables of
everybody, in mode `nftables` a table of its own in each family. The API server must be reachable
from the namespace. The programs are those of `./run k8s binaries`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.felix.launch import launched
from tests.k8s.binaries import folder as binaries
from tests.support.apiserver import ADMIN, ApiServer
from tests.support.netns import Namespace

TOOLS = tuple(
    f"{family}tables{verb}" for family in ("ip", "ip6") for verb in ("", "-save", "-restore")
)
HEALTH_PORT, METRICS_PORT = 10256, 10249
ENDPOINTS = (("10.65.0.1", "fd65::1", "node1"), ("10.65.1.9", "fd65::1:9", "node2"))
SERVICES: tuple[dict[str, Any], ...] = (
    {"name": "web", "spec": {}},
    {"name": "sticky", "spec": {"sessionAffinity": "ClientIP"}},
    {"name": "port", "spec": {"type": "NodePort"}, "nodePort": 31080},
    {
        "name": "near",
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                 "healthCheckNodePort": 32000},
        "nodePort": 31081,
        "ingress": "192.0.2.81",
    },
    {
        "name": "fenced",
        "spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24"]},
        "nodePort": 31082,
        "ingress": "192.0.2.82",
    },
    {"name": "outer", "spec": {"externalIPs": ["192.0.2.83"]}},
    {"name": "empty", "spec": {}, "endpoints": ()},
    {"name": "steady", "spec": {}, "endpoints": ENDPOINTS[:1]},
)  # fmt: skip
"""A cluster address alone, affinity, a port of every node, load balancers, an external address, no
endpoint, a single one."""
RANGES = "10.96.0.0/16,fd96::/112"
"""The service ranges of an API server that gives Services addresses of both families."""


class KubeProxy:
    """One kube-proxy. `run`: the folder that is its /run, the same as felix's: locks are there."""

    def __init__(
        self, api: ApiServer, space: Namespace, run: Path, node: str, addresses: Sequence[str],
        pods: str,
    ) -> None:  # fmt: skip
        self.api, self.space, self.run, self.node = api, space, run, node
        self.folder = run.parent / "kube-proxy"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pods = pods
        self._process: subprocess.Popen[str] | None = None
        api.ensure("/api/v1/nodes", {"metadata": {"name": node}})
        own = [{"type": "InternalIP", "address": address} for address in addresses]
        status = {"status": {"addresses": own}}
        api.call("PATCH", f"/api/v1/nodes/{node}/status", status,
                 content="application/merge-patch+json")  # fmt: skip

    def start(self, mode: str, variant: str = "nft") -> None:
        """Start it in a mode; `variant` says which iptables it finds. Does not wait."""
        tools = self.folder / variant
        tools.mkdir(exist_ok=True)
        program = shutil.which(f"xtables-{variant}-multi", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None
        for tool in TOOLS:
            (tools / tool).unlink(missing_ok=True)
            (tools / tool).symlink_to(program)
        (self.folder / "kubeconfig").write_text(json.dumps(self._kubeconfig()))
        config = self.folder / "config"
        config.write_text(json.dumps(self._config(mode)))
        program = str(binaries() / "kube-proxy")
        command = launched(self.run, program, f"--config={config}")
        with (self.folder / "log").open("a") as log:
            self._process = self.space.popen(
                *command, stdout=log, stderr=log,
                env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
            )  # fmt: skip

    def stop(self) -> None:
        """Kill it; what it wrote stays in the kernel."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def alive(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it logged."""
        return (self.folder / "log").read_text(errors="replace")

    def _config(self, mode: str) -> dict[str, Any]:
        often = {"minSyncPeriod": "0s", "syncPeriod": "1s"}
        keep = {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": mode,
            "clusterCIDR": self._pods,
            "hostnameOverride": self.node,
            "clientConnection": {"kubeconfig": str(self.folder / "kubeconfig")},
            # The kernel's own limits stay as they are.
            "conntrack": keep,
            "iptables": often,
            "nftables": often,
            "healthzBindAddress": f"127.0.0.1:{HEALTH_PORT}",
            "metricsBindAddress": f"127.0.0.1:{METRICS_PORT}",
        }

    def _kubeconfig(self) -> dict[str, Any]:
        cluster = {
            "server": self.api.url,
            "certificate-authority": str(self.api.authority.cert),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": ADMIN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }


def write_services(api: ApiServer) -> None:
    """Store the Services, of both families, with their EndpointSlices."""
    api.namespace("shop")
    for number, service in enumerate(SERVICES, 10):
        name = service["name"]
        port: dict[str, Any] = {"name": "p8080", "port": 80, "targetPort": 8080}
        if "nodePort" in service:
            port["nodePort"] = service["nodePort"]
        spec = {
            "ports": [port],
            "ipFamilyPolicy": "PreferDualStack",
            "clusterIP": f"10.96.0.{number}",
            "clusterIPs": [f"10.96.0.{number}", f"fd96::{number}"],
            **service["spec"],
        }
        api.ensure("/api/v1/namespaces/shop/services", {"metadata": {"name": name}, "spec": spec})
        if "ingress" in service:
            status = {"status": {"loadBalancer": {"ingress": [{"ip": service["ingress"]}]}}}
            api.call("PATCH", f"/api/v1/namespaces/shop/services/{name}/status", status,
                     content="application/merge-patch+json")  # fmt: skip
        for address, address6, node in service.get("endpoints", ENDPOINTS):
            for family, where in (("4", address), ("6", address6)):
                slice_name = f"{name}-{node}-{family}"
                api.slice(slice_name, name, [where], [8080], space="shop", node=node)
