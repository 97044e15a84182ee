"""A cluster: a control plane and nodes, brought up and taken down whole.

Nothing of it is the machine's: namespaces, control groups and folders carry the process id, the
network is inside. Logs stay in the test's folder; the disks go.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests import run_folder
from tests.k8s.api import Api
from tests.k8s.control_plane import ControlPlane
from tests.k8s.credentials import Credentials
from tests.k8s.node import Flavour, Node
from tests.k8s.releases import CURRENT, Release
from tests.k8s.wires import Wires

DISKS = "muslin-k8s-"
API_SERVICE = re.compile("KUBE-SVC-NPX46M4P|service-.*-default/kubernetes/tcp/https")
"""The chain of default/kubernetes:https in each mode of kube-proxy."""
RULES = "nft list ruleset; iptables-legacy-save"
TWO = {"node1": Flavour(), "node2": Flavour()}


class Cluster:
    """What the tests of a file share."""

    def __init__(
        self,
        disk: Path,
        logs: Path,
        archives: Sequence[Path],
        flavours: Mapping[str, Flavour],
        release: Release = CURRENT,
    ) -> None:
        names = list(flavours)
        self.disk, self.logs, self.archives = disk, logs, list(archives)
        self.release = release
        self.wires = Wires()
        self.credentials = Credentials(disk / "credentials", names)
        self.control = ControlPlane(self.wires, self.credentials, disk, logs, release=release)
        self.nodes = {
            name: Node(number, self.wires, self.credentials, disk, logs, flavours[name], release)
            for number, name in enumerate(names, 1)
        }

    @property
    def api(self) -> Api:
        """The administrator's way in."""
        return self.control.api

    def start(self) -> None:
        """Everything; the nodes join, and are ready once there is a network."""
        self.wires.up()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            begun = [pool.submit(self._prepare, node) for node in self.nodes.values()]
            self.control.start()
            for one in begun:
                one.result()
        for node in self.nodes.values():
            node.join()
        self.api.wait("the nodes joined", lambda: set(self.nodes) <= set(self.conditions("Ready")))

    def wait_proxies(self) -> None:
        """Until kube-proxy of every node has written the API's own service."""
        for node in self.nodes.values():
            if node.flavour.proxy:
                what = f"kube-proxy of {node.name} has written its rules"
                self.api.wait(what, partial(_served, node))

    def _prepare(self, node: Node) -> None:
        node.start()
        node.load(self.archives)

    def reboot(self, name: str) -> None:
        """Switch a node off and on; its disk stays."""
        node = self.nodes[name]
        node.stop()
        node.start()
        node.join()

    def conditions(self, kind: str) -> dict[str, str]:
        """What each node says of a condition, by the node's name; empty where it says nothing."""
        return {
            node["metadata"]["name"]: next(
                (one["status"] for one in node["status"].get("conditions", [])
                 if one["type"] == kind), "",
            )
            for node in self.api.items("/api/v1/nodes")
        }  # fmt: skip

    def stop(self) -> None:
        """Everything, whatever state it is in."""
        with ExitStack() as stack:
            stack.callback(self.wires.down)
            stack.callback(self.control.stop)
            for node in self.nodes.values():
                stack.callback(node.stop)


def _served(node: Node) -> bool:
    said = node.run("sh", "-c", RULES, check=False).stdout
    return API_SERVICE.search(said) is not None


@contextmanager
def cluster(
    logs: Path,
    archives: Sequence[Path],
    *,
    flavours: Mapping[str, Flavour] = TWO,
    release: Release = CURRENT,
) -> Iterator[Cluster]:
    """A cluster until the end of the block, with these images on every node (node1, node2 ...)."""
    logs.mkdir(parents=True, exist_ok=True)
    disk = Path(tempfile.mkdtemp(prefix=DISKS))
    try:
        made = Cluster(disk, logs, archives, flavours, release)
        run_folder.name_groups(f"{made.wires.name}*")
        try:
            made.start()
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(disk)
