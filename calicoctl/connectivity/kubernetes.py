"""Probes in pods of our own on a Kubernetes cluster, by kubectl.

The image is that of the cluster's calico-node unless another is named, so that nothing is pulled.
Tested in `tests/k8s/test_connectivity.py` on a real cluster.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from calicoctl.connectivity import documents, leftovers
from calicoctl.connectivity.model import ALLOWED, DENIED, SERVICE, Place, Target
from calicoctl.connectivity.running import run
from calicoctl.diags import programs
from libcalico.errors import MuslinError

START_SECONDS = 120.0
LOOK = 1.0
DAEMON = "k8s-app=calico-node"


class Cluster:
    """kubectl, with the operator's kubeconfig and context."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        path = programs.find("kubectl")
        if path is None:
            raise MuslinError(
                "kubectl is not installed: it enters the pods of the test (or use --via)"
            )
        self._head = [path]
        if kubeconfig:
            self._head.append(f"--kubeconfig={kubeconfig}")
        if context:
            self._head.append(f"--context={context}")

    def words(self, *words: str) -> list[str]:
        """A command line of kubectl."""
        return [*self._head, *words]

    async def call(self, *words: str, document: object = None, limit: float = 60.0) -> str:
        """Run kubectl. Raises MuslinError with what it said."""
        stdin = b"" if document is None else json.dumps(document).encode()
        text, error = await run(self.words(*words), stdin, limit)
        if error:
            raise MuslinError(f"kubectl {' '.join(words[:3])}: {error}")
        return text

    async def items(self, *words: str) -> list[dict[str, Any]]:
        """The objects that `kubectl get` lists."""
        objects: list[dict[str, Any]] = json.loads(await self.call("get", *words, "-o", "json"))[
            "items"
        ]
        return objects

    async def image(self) -> str:
        """The image of the cluster's calico-node. Raises MuslinError where there is none."""
        for daemon in await self.items("daemonsets", "--all-namespaces", "-l", DAEMON):
            for container in daemon["spec"]["template"]["spec"]["containers"]:
                return str(container["image"])
        raise MuslinError(
            f"no DaemonSet has the label {DAEMON}: name an image that has python3 with --image"
        )

    async def nodes(self) -> dict[str, str]:
        """The nodes of the cluster, with their internal address."""
        objects = {}
        for node in await self.items("nodes"):
            addresses = node["status"].get("addresses") or []
            inside = [one["address"] for one in addresses if one["type"] == "InternalIP"]
            objects[str(node["metadata"]["name"])] = inside[0] if inside else ""
        return objects

    async def forget(self, *, expired_only: bool = False) -> list[str]:
        """Delete the namespaces of tests that were killed, or of all tests; their names."""
        gone = []
        for one in await self.items("namespaces", "-l", leftovers.LABEL):
            meta = one["metadata"]
            until = (meta.get("annotations") or {}).get(leftovers.UNTIL, "")
            if "deletionTimestamp" in meta or (expired_only and not leftovers.expired(until)):
                continue
            await self.call("delete", "namespace", meta["name"], "--wait=false")
            gone.append(str(meta["name"]))
        return gone


class PodStage:
    """The namespace of one test and its pods."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self._cluster, self._port = cluster, port
        self.space = f"{documents.PREFIX}{token_hex(4)}"
        self.sources: list[Place] = []
        self.servers: list[Place] = []
        self.errors: dict[str, str] = {}
        self._made = False

    def command(self, place: Place, words: Sequence[str]) -> list[str]:
        """The command that runs a program in a pod of ours, or on a node through one."""
        name = place.pod or self._node_pods[place.node]
        target = ("exec", "-i", "-n", self.space, name, "-c", documents.CONTAINER, "--")
        return self._cluster.words(*target, *words)

    async def start(self, nodes: Sequence[str], image: str) -> list[Target]:
        """Make everything, and wait until the pods run; the targets of their service.

        A node whose pods do not start is named in `errors`, and is asked nonetheless.
        """
        self._made = True
        self._node_pods = {
            node: documents.pod_name(documents.NODE_CLIENT, number)
            for number, node in enumerate(nodes)
        }
        await self._cluster.call("create", "-f", "-", document=documents.namespace(self.space))
        service = documents.service(self.space, self._port)
        trees = [service, *documents.pods(self.space, nodes, image, self._port)]
        await self._account()
        await self._cluster.call("create", "-f", "-", document=documents.listed(trees))
        objects = await self._started(len(trees) - 1)
        for number, node in enumerate(nodes):
            self._place(node, number, objects)
        text = await self._cluster.call(
            "get", "service", documents.SERVICE_NAME, "-n", self.space, "-o", "json"
        )
        addresses = json.loads(text)["spec"].get("clusterIPs") or []
        return [
            Target(SERVICE, f"{documents.SERVICE_NAME} ({one})", one, self._port)
            for one in addresses[:1]
        ]

    async def _account(self) -> None:
        """Until the namespace has its service account: pods are refused before that."""
        until = time.monotonic() + START_SECONDS
        while not await self._cluster.items("serviceaccounts", "-n", self.space):
            if time.monotonic() > until:
                raise MuslinError(f"namespace {self.space} got no service account")
            await asyncio.sleep(LOOK)

    async def _started(self, count: int) -> dict[str, dict[str, Any]]:
        until = time.monotonic() + START_SECONDS
        while True:
            objects = {
                str(one["metadata"]["name"]): one
                for one in await self._cluster.items("pods", "-n", self.space)
            }
            running = [one for one in objects.values() if one["status"].get("phase") == "Running"]
            if len(running) == count or time.monotonic() > until:
                return objects
            await asyncio.sleep(LOOK)

    def _place(self, node: str, number: int, objects: dict[str, dict[str, Any]]) -> None:
        for role in (documents.SERVER, documents.CLIENT, documents.NODE_CLIENT):
            name = documents.pod_name(role, number)
            status = objects.get(name, {}).get("status", {})
            address = str(status.get("podIP", ""))
            if status.get("phase") != "Running" and role != documents.NODE_CLIENT:
                self.errors[node] = (
                    f"pod {name} did not start within {START_SECONDS:g} s"
                    f" ({status.get('phase', 'absent')})"
                )
            if role == documents.SERVER:
                if address:
                    self.servers.append(Place(node, name, self.space, address))
            elif role == documents.CLIENT:
                self.sources.append(Place(node, name, self.space, address))
            else:
                self.sources.append(Place(node, address=address))

    async def enter(self, phase: str) -> None:
        """Add the policies of a phase, or take them all away."""
        trees = documents.policies(self.space, phase, self._port)
        if phase in (DENIED, ALLOWED):
            await self._cluster.call("create", "-f", "-", document=documents.listed(trees))
        else:
            await self._cluster.call("delete", "networkpolicies", "--all", "-n", self.space)

    async def stop(self) -> None:
        """Delete the namespace with everything in it."""
        if self._made:
            words = ("delete", "namespace", self.space, "--ignore-not-found", "--wait=false")
            await self._cluster.call(*words)
