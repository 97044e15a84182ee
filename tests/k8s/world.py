"""A cluster with our network on it, and what the tests ask it: who reaches whom, who has what.

Node 1 runs kube-proxy in iptables mode, node 2 in nftables mode: every test of services is of both.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.k8s import images, pods, product
from tests.k8s.api import Api, ready_pods
from tests.k8s.cluster import Cluster, cluster
from tests.k8s.node import Flavour

PATIENCE = 300.0
NODES = ("node1", "node2")
FLAVOURS = {"node1": Flavour(proxy="iptables"), "node2": Flavour(proxy="nftables")}
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
    """The cluster of one datastore mode."""

    def __init__(self, made: Cluster, mode: str, seconds: float) -> None:
        self.cluster, self.mode, self.install_seconds = made, mode, seconds

    @property
    def api(self) -> Api:
        """The administrator's way in."""
        return self.cluster.api

    # -- pods ----------------------------------------------------------------------------------

    def space(self, name: str) -> str:
        """A namespace with its default service account."""
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
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
        self, space: str, wanted: Mapping[str, Mapping[str, bool]], timeout: float = 180.0
    ) -> None:
        """Until pods reach exactly what they should: pod to target to whether it answers."""
        last: dict[str, dict[str, bool]] = {}

        def as_wanted() -> bool:
            for pod, targets in wanted.items():
                answers = self.ask(space, pod, list(targets), limit=1)
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

    def condition(self, node: str, kind: str = "NetworkUnavailable") -> tuple[str, str]:
        """Status and reason of a condition of a node; empty when there is none."""
        for one in self.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]:
            if one["type"] == kind:
                return one["status"], one.get("reason", "")
        return "", ""

    def node_pod(self, node: str) -> str:
        """The name of our pod on a node."""
        for pod in self.api.items(product.NODE_PODS):
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        return ""


@contextmanager
def world(mode: str, folder: Path, mine: product.Images, others: Sequence[Path]) -> Iterator[World]:
    """A cluster of two nodes with our manifest applied, all of it ready."""
    archives = [*others, *mine.archives.values()]
    with cluster(folder, archives, flavours=FLAVOURS) as made:
        yield World(made, mode, product.INSTALL[mode](made, mine, folder))


def pair(space: str) -> list[dict[str, Any]]:
    """A pod on each node."""
    return [pods.pod(f"on-{node}", {"app": "pair"}, node, space) for node in NODES]


__all__ = ["NODES", "World", "images", "pair", "world"]
