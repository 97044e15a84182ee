"""A cluster with our network on it, and what the tests ask it: who reaches whom, who has what.

Node 1 has Debian's containerd and kube-proxy in iptables mode, node 2 containerd 2 (where it is
built) and kube-proxy in nftables mode: every test of services is of both. Kubernetes 1.20 knows
neither that mode nor, in its kubelet, the interface of containerd 2; there node 2's kubelet is told
that plugins are where none is.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import proc
from tests.cri.binaries import CONTAINERD2
from tests.k8s import footprint, images, pods, product
from tests.k8s.api import Api, ready_pods
from tests.k8s.cluster import Cluster, cluster
from tests.k8s.control_plane import ADMIN, ETCD
from tests.k8s.node import Flavour
from tests.k8s.releases import CURRENT, OLD, Release

PATIENCE = 300.0
NODES = ("node1", "node2")
CALICOCTL = Path(sys.executable).with_name("calicoctl")
NOWHERE = "/usr/local/lib/no-plugins-here"


@dataclass(frozen=True)
class Case:
    """Which cluster: a version of Kubernetes, and where Calico's data lie (etcd, kubernetes)."""

    mode: str
    release: Release = CURRENT

    def flavours(self) -> dict[str, Flavour]:
        """What the nodes run."""
        if self.release.old:
            return {"node1": Flavour(), "node2": Flavour(plugins=NOWHERE)}
        newer = None if CONTAINERD2.missing() else CONTAINERD2.folder()
        return {"node1": Flavour(), "node2": Flavour(proxy="nftables", runtime=newer)}


CASES = {"etcd": Case("etcd"), "kubernetes": Case("kubernetes"), "etcd-1.20": Case("etcd", OLD)}
# Debian's busybox-static crashes in wget's own time limit.
_ASK = """\
for target in {targets}; do
    if got=$(timeout {limit} wget -q -O - "http://$target/" 2>/dev/null); then
        echo "$target yes $got"
    else
        echo "$target no"
    fi
done
"""


class World:
    """The cluster of one case."""

    def __init__(self, made: Cluster, case: Case, mine: product.Images, folder: Path) -> None:
        self.cluster, self.case, self.mine = made, case, mine
        made.wait_proxies()
        for node in made.nodes.values():
            # A node's disk shows what this machine has of ours.
            node.run("rm", "-rf", "/var/lib/calico", "/var/log/calico")
        self.before = {name: footprint.of(node) for name, node in made.nodes.items()}
        self.text = product.MANIFEST[case.mode](made, mine, folder)
        self.install_seconds = product.install(made, self.text)

    @property
    def api(self) -> Api:
        """The administrator's way in."""
        return self.cluster.api

    # -- pods ----------------------------------------------------------------------------------

    def space(self, name: str) -> str:
        """A namespace with its default service account, and a label `team` of its name."""
        meta = {"name": name, "labels": {"team": name}}
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        where = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.api.wait("the namespace has its account", lambda: self.api.find(where) is not None)
        return name

    def forget(self, name: str) -> None:
        """Delete a namespace, and wait until its pods are gone."""
        self.api.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
        self.api.wait("the namespace's pods are gone", lambda: not self.pods(name))

    def pods(self, space: str) -> list[dict[str, Any]]:
        """The pods of a namespace."""
        return self.api.items(f"/api/v1/namespaces/{space}/pods")

    def wait_pods(self, space: str, count: int, *, timeout: float = PATIENCE) -> dict[str, str]:
        """Until so many pods of a namespace are ready, and no others; address by name."""

        def there() -> bool:
            found = self.pods(space)
            return len(found) == len(ready_pods(found)) == count

        try:
            self.api.wait(f"{count} pods of {space} are ready", there, timeout=timeout)
        except Exception as error:
            raise AssertionError(f"{error}\n{product.describe(self.cluster)}") from error
        return self.addresses(space)

    def addresses(self, space: str) -> dict[str, str]:
        """The addresses of pods, by name."""
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.pods(space)}

    # -- traffic -------------------------------------------------------------------------------

    def ask(
        self, space: str, pod: str, targets: Sequence[str], limit: int = 3
    ) -> dict[str, str | None]:
        """What each `address:port` answers to a pod over HTTP; None where nothing comes."""
        script = _ASK.format(targets=" ".join(map(shlex.quote, targets)), limit=limit)
        said = self.api.kubectl("exec", "-n", space, pod, "--", "sh", "-c", script).stdout
        found: dict[str, str | None] = {}
        for line in said.splitlines():
            target, _, rest = line.partition(" ")
            found[target] = rest.removeprefix("yes ") if rest.startswith("yes") else None
        return found

    def settle(
        self, space: str, wanted: Mapping[str, Mapping[str, bool]], timeout: float = 900.0
    ) -> None:
        """Until pods reach exactly what they should: pod to target to whether it answers."""
        last: dict[str, dict[str, bool]] = {}
        looks = 0

        def as_wanted() -> bool:
            nonlocal looks
            looks += 1
            for pod, targets in wanted.items():
                # A busy machine may need more than a second for what is allowed.
                answers = self.ask(space, pod, list(targets), limit=min(2**looks, 60))
                last[pod] = {target: got is not None for target, got in answers.items()}
                if last[pod] != dict(targets):
                    return False
            return True

        try:
            self.api.wait("traffic is as the policies say", as_wanted, timeout=timeout)
        except Exception as error:
            raise AssertionError(f"{error}: wanted {wanted}, got {last}") from error

    # -- ours ----------------------------------------------------------------------------------

    def calicoctl(self, *words: str) -> str:
        """calicoctl, where an administrator finds it: in the pod of a node."""
        where = ("-n", "kube-system", self.node_pod("node1"), "-c", "calico-node")
        return self.api.kubectl("exec", *where, "--", "calicoctl", *words).stdout

    def administer(self, *words: str, stdin: str | None = None) -> str:
        """calicoctl beside the cluster, with all rights on its datastore."""
        at = self.cluster.credentials
        told = {"PATH": os.environ["PATH"], "HOME": str(at.folder)}
        if self.case.mode == "kubernetes":
            told |= {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": str(at.config(ADMIN))}
        else:
            pair = product.client(self.cluster, "administrator")
            told |= {
                "DATASTORE_TYPE": "etcdv3",
                "ETCD_ENDPOINTS": ETCD,
                "ETCD_KEY_FILE": str(pair.key),
                "ETCD_CERT_FILE": str(pair.cert),
                "ETCD_CA_CERT_FILE": str(at.authority.cert),
            }
        control = self.cluster.wires.control
        return proc.run(
            self.cluster.wires.inside(control, [str(CALICOCTL), *words]),
            stdin=None if stdin is None else stdin.encode(),
            environment=told,
            timeout=PATIENCE,
        ).stdout

    def condition(self, node: str, kind: str = "NetworkUnavailable") -> tuple[str, str]:
        """Status and reason of a condition of a node; empty when there is none."""
        for one in self.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]:
            if one["type"] == kind:
                return one["status"], one.get("reason", "")
        return "", ""

    def readiness(self, node: str) -> tuple[str, str]:
        """What a node says of its readiness, and why."""
        for one in self.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]:
            if one["type"] == "Ready":
                return one["status"], one["message"]
        return "", ""

    def came_and_went(self, node: str) -> dict[str, list[str]]:
        """What is another on a node than before we came, by kind."""
        return footprint.differences(self.before[node], footprint.of(self.cluster.nodes[node]))

    def node_pod(self, node: str) -> str:
        """The name of our pod on a node."""
        for pod in self.api.items(product.NODE_PODS):
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        return ""


@contextmanager
def world(
    case: Case, folder: Path, mine: product.Images, others: Sequence[Path]
) -> Iterator[World]:
    """A cluster of two nodes with our manifest applied, all of it ready."""
    archives = [*others, *mine.archives.values()]
    with cluster(folder, archives, flavours=case.flavours(), release=case.release) as made:
        yield World(made, case, mine, folder)


def pair(space: str) -> list[dict[str, Any]]:
    """A pod on each node."""
    return [pods.pod(f"on-{node}", {"app": "pair"}, node, space) for node in NODES]


__all__ = ["CASES", "NODES", "Case", "World", "images", "pair", "world"]
