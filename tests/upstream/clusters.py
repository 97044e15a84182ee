"""The clusters that the suites run on: both datastores, both back ends, names and routes.

kube-proxy of both nodes is in one mode, and felix, told nothing, follows it. The API server reaches
pods as it does on a real control plane: it stands in a network that learns the pods' routes, here
by BIRD, a BGP peer of every node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import proc
from tests.cri.binaries import CONTAINERD2
from tests.k8s import product, world
from tests.k8s.credentials import ADMIN, CONTROL
from tests.k8s.daemons import Daemon
from tests.k8s.node import Flavour
from tests.k8s.world import Case, World
from tests.upstream.image import DNS
from tests.upstream.suites import Result, Suite

AS_NUMBER = 64512
"""Calico's own, for clusters that name none: routes of nodes are told to it as to each other."""
NAMES = "10.96.0.10"
"""The address at which kubelets tell pods that names are answered."""


@dataclass(frozen=True)
class Kind(Case):
    """One of the four."""

    backend: str = "iptables"

    def flavours(self) -> dict[str, Flavour]:
        newer = None if CONTAINERD2.missing() else CONTAINERD2.folder()
        return {
            "node1": Flavour(proxy=self.backend),
            "node2": Flavour(proxy=self.backend, runtime=newer),
        }


HOMES = {
    f"{mode}-{backend}": Kind(mode, backend=backend)
    for mode in ("kubernetes", "etcd")
    for backend in ("iptables", "nftables")
}
OF_KUBERNETES = [name for name in HOMES if name.startswith("kubernetes-")]
"""Where the suites that say nothing of the datastore run."""


@dataclass
class Home:
    """A cluster, and what the suites that ran on it reported: specs, and minutes."""

    name: str
    world: World
    told: dict[str, dict[str, Result]] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)

    def run(self, suite: Suite, chosen: Collection[str]) -> dict[str, Result]:
        """What a suite reports; it runs at the first question, whatever comes of it."""
        if suite.name not in self.told:
            self.told[suite.name] = {}
            began = time.monotonic()
            made = self.world.cluster
            inside = made.wires.inside(made.wires.control, [])
            out = made.logs / suite.name.replace(" ", "-")
            try:
                self.told[suite.name] = suite.run(
                    chosen, inside, made.credentials.config(ADMIN), out
                )
            finally:
                self.minutes[suite.name] = (time.monotonic() - began) / 60
        return self.told[suite.name]


@contextmanager
def home(name: str, folder: Path, mine: product.Images, others: Sequence[Path]) -> Iterator[Home]:
    """A cluster with our network, names, and a control plane that reaches pods."""
    with world.world(HOMES[name], folder, mine, others) as made, router(made, folder):
        answer_names(made)
        made.api.wait("the control plane's network has routes to pods", lambda: reaches(made))
        yield Home(name, made)


def reaches(made: World) -> bool:
    """Whether the control plane's network knows by which nodes pods are reached."""
    wires = made.cluster.wires
    command = wires.inside(wires.control, ["ip", "route", "show", "proto", "bird"])
    lines = proc.run(command).stdout.splitlines()
    return bool(lines) and all(" via " in line for line in lines)


def backends(made: World) -> dict[str, str]:
    """Where felix has its rules, by node, as the kernel says it."""
    found = {}
    for name, node in made.cluster.nodes.items():
        native = " calico" in node.run("nft", "list", "tables").stdout
        chains = ":cali-" in node.run("iptables-save").stdout
        found[name] = {(True, False): "nftables", (False, True): "iptables"}.get(
            (native, chains), "both" if native else "none"
        )
    return found


@contextmanager
def router(made: World, folder: Path) -> Iterator[None]:
    """BIRD in the control plane's network, a peer of all nodes."""
    peer = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "BGPPeer",
        "metadata": {"name": "control-plane"},
        "spec": {"peerIP": CONTROL, "asNumber": AS_NUMBER},
    }
    made.administer("apply", "-f", "-", stdin=json.dumps(peer))
    lines = [f"router id {CONTROL};", "protocol device {}"]
    lines.append("protocol kernel { ipv4 { export all; import none; }; }")
    lines += [
        f"protocol bgp {node.name} {{ local {CONTROL} as {AS_NUMBER}; neighbor {node.address} "
        f"as {AS_NUMBER}; direct; ipv4 {{ import all; export none; }}; }}"
        for node in made.cluster.nodes.values()
    ]
    config, socket = folder / "bird.conf", made.cluster.disk / "bird.ctl"
    config.write_text("\n".join(lines) + "\n")
    wires = made.cluster.wires
    command = ["bird", "-f", "-c", str(config), "-s", str(socket)]
    daemon = Daemon(folder / "bird.log", wires.inside(wires.control, command))
    daemon.start()
    try:
        yield
    finally:
        daemon.kill()


def answer_names(made: World) -> None:
    """CoreDNS, as a Deployment with its service, until it is ready."""
    made.api.apply(*name_server())

    def ready() -> bool:
        found = made.api.find("/apis/apps/v1/namespaces/kube-system/deployments/coredns")
        return ((found or {}).get("status") or {}).get("readyReplicas") == 1

    try:
        made.api.wait("CoreDNS is ready", ready)
    except Exception as error:
        raise AssertionError(f"{error}\n{product.describe(made.cluster)}") from error


def name_server() -> list[dict[str, Any]]:
    """What CoreDNS needs: rights, a configuration, a pod and a service. Pure."""
    meta = {"name": "coredns", "namespace": "kube-system"}
    listed = {"verbs": ["list", "watch"]}
    core = {"apiGroups": [""], "resources": ["services", "pods", "namespaces", "endpoints"]}
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"}
    corefile = (
        ".:53 {\n  errors\n  ready\n  kubernetes cluster.local in-addr.arpa ip6.arpa {\n"
        "    pods insecure\n    ttl 5\n  }\n  cache 5\n}\n"
    )
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    ports.append({"name": "dns-tcp", "port": 53, "protocol": "TCP"})
    container = {
        "name": "coredns",
        "image": DNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    labels = {"k8s-app": "kube-dns"}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": {"name": "coredns"},
            "rules": [{**core, **listed}, {**slices, **listed}],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "coredns"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": corefile}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**meta, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": "kube-dns", "labels": labels},
            "spec": {"clusterIP": NAMES, "selector": labels, "ports": ports},
        },
    ]
