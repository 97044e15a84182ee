"""One node with all our agents and a real container runtime; a router before it.

    router (10.99.1.254) ------ node1 (10.99.1.1): calico-node, containerd, sandboxes

Sandboxes have no labels: without an API server of Kubernetes nobody tells a runtime's plugin of
them. Policies select by namespace.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import agents, cluster, namespaces, proc
from lab.cluster import Lab
from lab.demo import look
from lab.machine import FAST_PYTHON, Machine
from lab.pod_containers import RESPONDER
from libcalico.process import paths
from tests.cri import containerd
from tests.cri.calls import BIN, Calls
from tests.cri.client import Client, RuntimeFailed, Sandbox, Wish
from tests.cri.containerd import Containerd
from tests.support import stopping
from tests.support.patience import HANG, wait_for

POOL = "10.65.0.0/24"
OBJECTS = f"""\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: pods}}
spec: {{cidr: {POOL}, blockSize: 26, ipipMode: Never, vxlanMode: Never, natOutgoing: true}}
"""
PATIENCE = HANG
NODE_ADDRESS = "10.99.1.1"


class World:
    """What the tests of one file share."""

    def __init__(self, lab: Lab, runtime: Containerd, calls: Calls) -> None:
        self.lab, self.runtime, self.calls = lab, runtime, calls
        self.node: Machine = lab.machine("node1")

    @property
    def cri(self) -> Client:
        """The kubelet's end of the runtime's socket."""
        return self.runtime.client

    def apply_objects(self) -> None:
        """The pool."""
        self.apply(OBJECTS)

    def apply(self, text: str) -> None:
        """calicoctl apply."""
        self.node.run(["calicoctl", "apply", "-f", "-"], stdin=text.encode(), timeout=120)

    def delete(self, kind: str, name: str, *options: str) -> None:
        """calicoctl delete."""
        self.node.run(["calicoctl", "delete", kind, name, *options], timeout=120)

    @contextmanager
    def sandbox(self, name: str, **options: Any) -> Iterator[Sandbox]:
        """A sandbox that is stopped and removed at the end, and leaves nothing."""
        made = self.cri.run(Wish(name, **options))
        try:
            yield made
        finally:
            self.cri.end(made.id)
        self.assert_clean()

    def runtime_list(self) -> str:
        """The network configuration as the runtime has read it."""
        return str(self.cri.call("Status", {"verbose": True})["info"].get("cniconfig", ""))

    def serve(self, sandbox: Sandbox, port: int) -> None:
        """A program that listens in a sandbox."""
        log = f"/var/log/served-{sandbox.id[:12]}.log"
        self.node.path(log).touch()
        self.node.start([*FAST_PYTHON, str(RESPONDER), f"tcp:{port}"], netns=sandbox.netns,
                        output=log)  # fmt: skip
        path = self.node.path(log)
        wait_for(lambda: "listening" in path.read_text())

    def reached(self, address: str, port: int) -> str:
        """What a program at an address says to the router; empty when it cannot be reached."""
        command = ["nc", "-N", "-w", "1", address, str(port)]
        done = self.lab.router.run(command, stdin=b"", check=False, timeout=PATIENCE)
        return done.stdout

    def reinstall(self, *options: str, **variables: str) -> None:
        """install-cni on the node."""
        install(self.node, self.lab, *options, **variables)

    @contextmanager
    def datastore_away(self) -> Iterator[None]:
        """etcd is stopped: connections stand, nothing is answered."""
        found = [pid for pid in self.lab.etcd.pids() if proc.command_of(pid).startswith("etcd")]
        assert found
        for pid in found:
            stopping.pause(pid)
        try:
            yield
        finally:
            for pid in found:
                os.kill(pid, signal.SIGCONT)

    def endpoints(self) -> dict[str, Any]:
        """The stored endpoints by the pod's name, a container's without a pod by its id."""
        found = look.etcd(self.lab, f"{look.RESOURCES}/workloadendpoints/")
        specs = [value["spec"] for value in found.values()]
        return {spec.get("pod") or spec["containerID"]: spec for spec in specs}

    def left(self) -> list[str]:
        """Whatever there is of any pod."""
        found = [f"endpoint of {name}" for name in self.endpoints()]
        found += [f"{n} addresses of {block}" for block, n in look.in_use(self.lab).items() if n]
        found += list(look.etcd(self.lab, f"{look.IPAM}/handle/"))
        links = json.loads(self.node.run(["ip", "-j", "link"]).stdout)
        names = [link["ifname"] for link in links]
        # ifb devices of the bandwidth plugin are called bwp...
        found += [f"link {name}" for name in names if name.startswith(("cali", "bwp"))]
        for folder in ("/run/netns", "/var/lib/cni/results", str(paths.CNI_PENDING)):
            path = self.node.path(folder)
            found += [f"{folder}/{entry.name}" for entry in path.iterdir()] if path.is_dir() else []
        for table in ("iptables-save", "ip6tables-save"):
            rules = self.node.run([table, "-t", "nat"]).stdout.splitlines()
            # One chain a mapping; the plugin's common chains stay.
            found += [rule for rule in rules if rule.startswith((":CNI-DN-", ":CNI-SN-"))]
        return found

    def assert_clean(self) -> None:
        """Nothing is left of any sandbox; what is undone in the background gets its time."""
        wait_for(lambda: not self.left(), lambda: "\n".join(self.left()))
        assert self.cri.sandboxes() == []

    def addresses(self) -> int:
        """How many are given to somebody."""
        return sum(look.in_use(self.lab).values())

    @contextmanager
    def daemon_away(self) -> Iterator[None]:
        """calico-cni is killed, and its supervisor does not start it again until the end."""
        supervisor, daemon = (
            look.processes(self.node, title) for title in ("calico-node", "calico-cni")
        )
        assert supervisor
        assert daemon
        for pid in supervisor:
            stopping.pause(pid)
        try:
            for pid in daemon:
                os.kill(pid, signal.SIGKILL)
            yield
        finally:
            for pid in supervisor:
                os.kill(pid, signal.SIGCONT)
            wait_for(lambda: bool(set(look.processes(self.node, "calico-cni")) - set(daemon)))
            agents.wait(self.node, timeout=PATIENCE)


def fails(node: World, wish: Wish) -> str:
    """What the runtime says to a pod that cannot start; nothing of it may be left."""
    with pytest.raises(RuntimeFailed) as failed:
        node.cri.run(wish)
    return str(failed.value)


def install(node: Machine, lab: Lab, *options: str, **variables: str) -> None:
    """Our plugins and their configuration, as by hand."""
    command = [sys.executable, "-m", "cni.install", *options]
    node.run(command, environment={**agents.environment(lab.plan, node.name), **variables})


@contextmanager
def world(
    name: str, folder: Path, archive: Path, *, chain: str, programs: Path | None = None
) -> Iterator[World]:
    """A node with agents, pool and runtime; `chain` names the plugins after ours."""
    asked = {"CALICO_CNI_CRI_SOCKET": f"unix://{containerd.SOCKET}"}
    lab = cluster.up(name, nodes=1, topology="flat", environment=asked, say=lambda _: None)
    try:
        node = lab.machine("node1")
        install(node, lab, f"--chain={chain}")
        namespaces.ensure(lab, "default")
        calls = Calls(node)
        with containerd.running(node, folder, archive, plugins=BIN, programs=programs) as runtime:
            made = World(lab, runtime, calls)
            made.apply_objects()
            yield made
    finally:
        cluster.down(name)
