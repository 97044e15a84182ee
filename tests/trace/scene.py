"""Two nodes with a pod each, and `calicoctl trace` between them.

    client -- [ node1 ] eth0 -- router, one network -- eth0 [ node2 ] -- server (tcp:8080, udp:8081)

What a test plants is undone by its context, and the next test begins when the pods reach each
other again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab import cluster, objects, pods
from lab.cluster import Lab
from lab.machine import Machine
from lab.pods import Pod
from tests.e2e.conftest import say, stopped
from tests.support.patience import HANG, wait_for

ENVIRONMENT = {
    "iptables-nft": {},
    "nftables": {"FELIX_NFTABLESMODE": "Enabled"},
    "iptables-legacy": {"FELIX_IPTABLESBACKEND": "Legacy"},
}
RULES = {
    "iptables-nft": ["iptables-nft-save"],
    "nftables": ["nft", "list", "table", "ip", "calico"],
    "iptables-legacy": ["iptables-legacy-save"],
}
Tree = dict[str, Any]


@dataclass
class Scene:
    """The lab and its two pods."""

    lab: Lab
    client: Pod
    server: Pod
    backend: str

    @property
    def node1(self) -> Machine:
        """The client's node, where calicoctl runs."""
        return self.lab.machine("node1")

    @property
    def node2(self) -> Machine:
        """The server's node."""
        return self.lab.machine("node2")

    def words(self, *more: str) -> list[str]:
        """The command line of a trace."""
        # The words that enter the other node's namespaces, as `ssh node2` would lead there.
        via = shlex.join(self.node2.command([]))
        bounds = ["--wait", "0", "--seconds", f"{3 * HANG:g}"]
        return ["calicoctl", "trace", *more, *bounds, "--via", f"node2={via}"]

    def trace(self, *more: str, port: str = "8080", within: float = 1.5) -> Tree:
        """What `calicoctl trace` says, as JSON. `within`: seconds; what never comes takes them."""
        target = () if more[:1] and not more[0].startswith("-") else ("client", "server")
        ports = ["--port", port] if port else []
        command = self.words(*target, *more, *ports, "--timeout", f"{within:g}", "-o", "json")
        found: Tree = json.loads(self.node1.run(command).stdout)
        return found

    def reaching(self, *more: str, port: str = "8080") -> Tree:
        """A trace of an attempt that is answered, however slow the machine is."""
        return self.trace(*more, port=port, within=HANG)

    def cause(self, *more: str, port: str = "8080", within: float = 1.5) -> tuple[str, str]:
        """Name and text of the cause; nothing may be missing of the trace."""
        tree = self.trace(*more, port=port, within=within)
        assert not tree["missing"], tree["missing"]
        return tree["cause"]["name"], f"{tree['cause']['text']} @{tree['cause']['node']}"

    def connects(self) -> bool:
        """Whether the client reaches the server, by the tools of the system."""
        command = ["nc", "-z", "-w", "2", self.server.address, "8080"]
        done = self.node1.run(command, netns=self.client.netns, check=False)
        return done.returncode == 0

    def apply(self, text: str) -> None:
        """`calicoctl apply`."""
        self.node1.run(["calicoctl", "apply", "-f", "-"], stdin=text.encode())

    @contextlib.contextmanager
    def policy(self, text: str) -> Iterator[None]:
        """Objects that stand while the body runs; `in_force` waits for the rules."""
        self.apply(text)
        try:
            yield
        finally:
            command = ["calicoctl", "delete", "-f", "-"]
            self.node1.run(command, stdin=text.encode())
            self.recovers()

    @contextlib.contextmanager
    def planted(
        self, machine: Machine, plant: str, undo: str, *, pod: Pod | None = None, felix: bool = True
    ) -> Iterator[None]:
        """Commands of a shell on a machine or in a pod; `felix` False: while felix stands still."""
        with contextlib.ExitStack() as stack:
            if not felix:
                stack.enter_context(stopped(machine, "calico-felix"))
            netns = None if pod is None else pod.netns
            machine.run(["sh", "-ec", plant], netns=netns)
            try:
                yield
            finally:
                machine.run(["sh", "-ec", undo], netns=netns)
        self.recovers()

    def in_force(self, name: str, node: Machine) -> None:
        """Wait until a node's rules lead to those of a policy.

        A connection that fails would say less: on a busy machine it may only be slow.
        """
        way = re.compile(rf"(-j|-g|jump|goto) \S*cali-p[io]-\S*/{name}\b")
        wait_for(lambda: way.search(self.rules(node)), lambda: (name, self.rules(node)))

    def rules(self, node: Machine) -> str:
        """The rules of felix on a node, as its back end shows them."""
        command = RULES[self.backend]
        return node.run(command).stdout

    def recovers(self) -> None:
        """Wait until all is well again."""
        wait_for(self.connects, "the client reaches the server again")

    def interface(self, pod: Pod) -> str:
        """The node's end of a pod's link."""
        links = self.lab.machine(pod.node).run(["ip", "-j", "route", "show", pod.address]).stdout
        name: str = json.loads(links)[0]["dev"]
        return name


@contextlib.contextmanager
def scene(backend: str) -> Iterator[Scene]:
    """A lab with the rules of one back end."""
    name = f"trace{backend[:4]}{backend[-3:]}{os.getpid()}"
    environment = ENVIRONMENT[backend]
    lab = cluster.up(name, nodes=2, topology="flat", environment=environment, say=say)
    try:
        objects.apply(lab)
        client = pods.add(lab, "client", "node1", labels={"role": "client"})
        server = pods.add(
            lab, "server", "node2", labels={"role": "server"}, ports=["tcp:8080", "udp:8081"]
        )
        made = Scene(lab, client, server, backend)
        made.recovers()
        yield made
    finally:
        cluster.down(name)
