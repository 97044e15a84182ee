"""One node with all our agents and a real container runtime; a router before it.

    router (10.99.1.254) ------ node1 (10.99.1.1): calico-node, containerd, sandboxes

Sandboxes have no labels: without an API server of Kubernetes nobody tells a runtime's plugin of
them. Policies select by namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
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
        self._lists = self._read_lists()
        self._known: set[str] = set()
        """What stays of earlier tests, which have said so."""

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

    def take_away(self, limit: float = HANG) -> list[str]:
        """Undo what a test has left on the node; what that was.

        What it cannot undo within the limit does not count as left again.
        """
        found = [f"a failing plugin {name}" for name in self.calls.mend_all()]
        if not self.runtime.running:
            self.runtime.start()
            found.append("no runtime")
        if self._read_lists() != self._lists:
            self._write_lists()
            found.append("another network configuration")
        found += [f"sandbox {one}" for one in self._end_all()]
        found += [f"{kind} {name}" for kind, name in self._delete_all()]
        end = time.monotonic() + limit
        while (stays := self.left()) and time.monotonic() < end:
            time.sleep(0.1)
        self._known.update(stays)
        return found + stays

    def _end_all(self) -> list[str]:
        ended = self.cri.sandboxes()
        for one in ended:
            with contextlib.suppress(RuntimeFailed):
                self.cri.end(one)
        for name in self.runtime.containers("default"):
            self.runtime.end(name)
            ended.append(name)
        return ended

    def _delete_all(self) -> list[tuple[str, str]]:
        """Delete policies and further pools; the pool comes back if it is gone."""
        kinds = ("networkpolicies", "globalnetworkpolicies", "ippools")
        stored = [one for kind in kinds for one in look.etcd(self.lab, f"{look.RESOURCES}/{kind}/")]
        places = [tuple(one.removeprefix(f"{look.RESOURCES}/").split("/")) for one in stored]
        found = []
        for kind, *namespace, name in places:
            if (kind, name) != ("ippools", "pods"):
                self.delete(kind, name, *(f"--namespace={one}" for one in namespace))
                found.append((kind, name))
        if ("ippools", "pods") not in places:
            self.apply_objects()
            found.append(("no ippools", "pods"))
        return found

    def _read_lists(self) -> dict[str, bytes]:
        """The network configurations by their names."""
        folder = self.node.path("/etc/cni/net.d")
        return {one.name: one.read_bytes() for one in folder.glob("*.conflist")}

    def _write_lists(self) -> None:
        folder = self.node.path("/etc/cni/net.d")
        for one in self._read_lists().keys() - self._lists.keys():
            (folder / one).unlink()
        for name, content in self._lists.items():
            (folder / f"{name}.new").write_bytes(content)
            (folder / f"{name}.new").rename(folder / name)
        wait_for(lambda: self.cri.network_ready()[0])

    def left(self) -> list[str]:
        """All that there is of any pod, but what earlier tests have left for good."""
        return [one for one in self._found() if one not in self._known]

    def _found(self) -> list[str]:
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
