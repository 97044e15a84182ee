"""Two nodes of one cluster that differ in their network, and batches of pods on one of them.

node1 has our manifest; node2 Debian's bridge with host-local, and nothing of ours. So no batch
waits for a network to be changed, and no agent hears of the other network's links.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import proc
from tests.bench._kubelet_meters import (
    Meter,
    Seen,
    Timers,
    difference,
    runtime_log,
    stages,
    timed,
)
from tests.cri.client import READY, Client, RuntimeFailed
from tests.cri.containerd import SOCKET
from tests.k8s import images, product
from tests.k8s.api import Api, ask, ready_pods
from tests.k8s.cluster import Cluster, cluster
from tests.k8s.node import Flavour, Node
from tests.k8s.node_programs import BIN_DIR, NET_DIR

Json = dict[str, Any]
OURS, OTHER = "node1", "node2"
KINDS = {"muslin": OURS, "bridge": OTHER, "host": OTHER}
"""Where the pods of each kind are; `host` pods have the node's own network, so no plugin runs."""
SPACE = "bench"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
FIRST_PORT = 18000
PATIENCE = 900.0
SETTLE = 3.0
"""Seconds between batches, in which a node comes to rest."""
_PROBES = re.compile(r" +livenessProbe:\n +exec:\n(?:.*\n)+?(?= +volumeMounts:\n +- name: status)")
BRIDGE = {
    "cniVersion": "1.0.0",
    "name": "bridge",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "b0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "subnet": "10.67.0.0/16",
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def pod(name: str, node: str, port: int, *, host: bool) -> Json:
    """A pod that answers HTTP, for the kubelet of a node: no scheduler is asked. Pure."""
    container = {
        "name": "web",
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        # It listens at once: a first probe that comes too early costs a pod a second.
        "command": ["httpd", "-f", "-p", str(port), "-h", "/etc"],
        "readinessProbe": {"httpGet": {"path": "/passwd", "port": port}, "periodSeconds": 1},
        # Without a request a pod waits for every other pod of its node, ours included.
        "resources": {"requests": {"cpu": "10m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "bench"}},
        "spec": {
            "nodeName": node,
            "hostNetwork": host,
            "containers": [container],
            # With 0 the API forgets a pod before the kubelet has ended it.
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
        },
    }


@dataclass
class Told:
    """When each pod's status first said Running and Ready, by the wall clock."""

    running: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def hear(self, said: Json, at: float) -> None:
        """Take one state of a pod."""
        name = said["metadata"]["name"]
        if said["status"].get("phase") == "Running":
            self.running.setdefault(name, at)
        if ready_pods([said]):
            self.ready.setdefault(name, at)

    def since(self, created: Mapping[str, float]) -> dict[str, Seen]:
        """All that is known of pods, by name to when they were made."""
        return {
            name: Seen(at, self.running[name], self.ready[name]) for name, at in created.items()
        }


class Watch:
    """Hears the states of all pods until it is closed."""

    def __init__(self, api: Api) -> None:
        self.told = Told()
        self._line = api.line()
        self._answer = ask(self._line, "GET", f"{PODS}?watch=1")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, names: Sequence[str]) -> None:
        """Until all of these are Ready."""
        what = f"{len(names)} pods are Ready"
        proc.wait_until(lambda: self.told.ready.keys() >= set(names), what, timeout=PATIENCE)

    def close(self) -> None:
        """Hear no more."""
        self._line.close()
        self._answer.close()

    def _read(self) -> None:
        try:
            for line in self._answer:
                self.told.hear(json.loads(line)["object"], time.time())
        except (OSError, ValueError, AttributeError):
            return  # it was closed


class Place:
    """The cluster, and what measures it."""

    def __init__(self, made: Cluster) -> None:
        self.cluster, self.api = made, made.api
        self.meters = {name: Meter(made, node) for name, node in made.nodes.items()}
        self.timers = {name: Timers(node) for name, node in made.nodes.items()}
        self._batches = 0

    def batch(self, kind: str, count: int) -> Json:
        """So many pods of a kind at once, until all are Ready, and then until all are gone."""
        self._batches += 1
        node = self.cluster.nodes[KINDS[kind]]
        wanted = [
            pod(f"{kind}-{self._batches}-{n}", node.name, FIRST_PORT + n, host=kind == "host")
            for n in range(count)
        ]
        meter, timers = self.meters[node.name], self.timers[node.name]
        logs = [Log(self.cluster, node, program) for program in ("containerd", "kubelet")]
        read, spent = timers.read(), meter.seconds()
        watch = Watch(self.api)
        try:
            created = self._create(wanted)
            watch.wait(list(created))
        finally:
            watch.close()
        cpu = difference(spent, meter.seconds(), count)
        told = watch.told
        seen = {
            name: Seen(at, told.running[name], told.ready[name]) for name, at in created.items()
        }
        runtime, kubelet = (log.since() for log in logs)
        return {
            **_together(seen),
            "stages_ms": stages(seen, runtime_log(runtime)),
            "cpu_ms": cpu,
            "timers": timed(read, timers.read(), count),
            "failed_probes": kubelet.count('"Probe failed"') / count,
            "removed_s": self._remove(list(created), node, meter),
        }

    def _create(self, wanted: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Name to when it was asked for."""
        line = self.api.line()
        created = {}
        try:
            for one in wanted:
                created[one["metadata"]["name"]] = time.time()
                ask(line, "POST", PODS, one).read()
        finally:
            line.close()
        return created

    def _remove(self, names: Sequence[str], node: Node, meter: Meter) -> float:
        """Delete all; seconds until nothing is left of them on the node."""
        began = time.monotonic()
        self.api.call("DELETE", PODS)
        gone = f"{len(names)} pods are gone"
        self.api.wait(gone, lambda: not self.api.items(PODS), timeout=PATIENCE)
        proc.wait_until(lambda: not meter.transient(), gone, timeout=PATIENCE)
        _collect(node)
        seconds = time.monotonic() - began
        time.sleep(SETTLE)
        return seconds


def _collect(node: Node) -> None:
    """Remove ended sandboxes, as the kubelet does within a minute: no later batch pays for it."""
    client = Client(Path(f"/proc/{node.pid}/root{SOCKET}"), node.cgroup)

    def none_left() -> bool:
        found = client.call("ListPodSandbox")["items"]
        ended = [sandbox["id"] for sandbox in found if sandbox["state"] != READY]
        for sandbox in ended:
            with contextlib.suppress(RuntimeFailed):  # the kubelet was first
                client.end(sandbox)
        return not ended

    try:
        proc.wait_until(none_left, "no ended sandbox is left", timeout=PATIENCE)
    finally:
        client.close()


class Log:
    """What a program of a node writes from now on."""

    def __init__(self, made: Cluster, node: Node, program: str) -> None:
        self._path = made.logs / f"{node.name}-{program}.log"
        self._skipped = self._path.stat().st_size

    def since(self) -> str:
        """All of it so far."""
        return self._path.read_bytes()[self._skipped :].decode(errors="replace")


def _together(seen: Mapping[str, Seen]) -> Json:
    """What a batch's pods say together. Pure."""
    began = min(one.created for one in seen.values())
    return {
        "all_running_s": max(one.running for one in seen.values()) - began,
        "all_ready_s": max(one.ready for one in seen.values()) - began,
        "running_ms": [(one.running - one.created) * 1000 for one in seen.values()],
        "ready_ms": [(one.ready - one.created) * 1000 for one in seen.values()],
    }


@contextmanager
def place(folder: Path, datastore: str) -> Iterator[Place]:
    """Both nodes with their networks, Ready, and a namespace for the pods."""
    flavours = {OURS: Flavour(), OTHER: Flavour()}
    mine = product.build_images(folder, both=False)
    archives = [*images.build(folder), *mine.archives.values()]
    with cluster(folder / "logs", archives, flavours=flavours) as made:
        found = Place(made)
        _reference_plugins(made.nodes[OTHER])
        made.wait_proxies()
        made.api.apply(only_on(OURS, product.MANIFEST[datastore](made, mine, folder)))
        product.wait_ready(made, ours=1)
        made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        account = f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"
        made.api.wait("the namespace has its account", lambda: made.api.find(account) is not None)
        yield found


def only_on(node: str, manifest: str) -> str:
    """The manifest with every pod of it on one node. Pure.

    Without the probes of kube-controllers: each starts a program every ten seconds, whatever pods
    do, and a cluster has them on one node only.
    """
    chosen = "nodeSelector:\n        kubernetes.io/"
    manifest, probes = _PROBES.subn("", manifest)
    assert (probes, manifest.count(f"{chosen}os: linux")) == (1, 2)
    return manifest.replace(f"{chosen}os: linux", f"{chosen}hostname: {node}")


def _reference_plugins(node: Node) -> None:
    """Debian's bridge and host-local, as the node's network."""
    plugins = [f"/usr/lib/cni/{name}" for name in ("bridge", "host-local", "loopback")]
    node.run("cp", *plugins, BIN_DIR)
    command = node.inside("tee", f"{NET_DIR}/10-bridge.conflist")
    proc.run(command, stdin=json.dumps(BRIDGE).encode())
