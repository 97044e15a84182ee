"""Three nodes in two racks with a pod each, and the pool's mode as the operator last set it.

 rack 1: node1 node2 ---- router (BIRD) ---- node3 :rack 2

Runs on this machine and, for IP-in-IP, inside a guest kernel (tests/uml/guest.py): so it uses
nothing but the lab.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from lab import agents, cluster, pods, proc
from lab.cluster import Lab
from lab.demo import traffic
from lab.errors import LabError
from lab.machine import Machine
from lab.pods import Pod
from lab.topology import ROUTER_AS

POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {{name: pods}}
spec: {{cidr: 10.65.0.0/16, blockSize: 26, ipipMode: {ipip}, vxlanMode: {vxlan}}}
"""
PEER = """\
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {{name: {node}-tor}}
spec: {{node: {node}, peerIP: {peer}, asNumber: {peer_as}}}
"""
PORT = 7000
NEAR, FAR = ("node1", "node2"), ("node1", "node3")
Modes = tuple[str, str]
NEVER: Modes = ("Never", "Never")


@dataclass
class Scene:
    """The lab and its pods, by node. `patience`: seconds for what takes a moment."""

    lab: Lab
    patience: float = 120.0
    pods: dict[str, Pod] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [node.name for node in self.lab.plan.nodes]

    def apply(self, text: str) -> None:
        """calicoctl apply."""
        self.lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=text.encode(), timeout=120)

    def set_mode(self, modes: Modes) -> None:
        """The pool's ipipMode and vxlanMode."""
        self.apply(POOL.format(ipip=modes[0], vxlan=modes[1]))

    def peer_with_router(self) -> None:
        """Each node with its rack's router, which then knows the way to every pod."""
        texts = [
            PEER.format(node=node.name, peer=node.segment.gateway, peer_as=ROUTER_AS)
            for node in self.lab.plan.nodes
        ]
        self.apply("".join(texts))

    def start_pods(self) -> None:
        """One on each node, which answers on a port."""
        for name in self.names:
            self.pods[name] = pods.add(
                self.lab, f"on-{name}", name, ports=[f"tcp:{PORT}"], timeout=self.patience * 6
            )

    def machine(self, node: str) -> Machine:
        """A node's machine."""
        return self.lab.machine(node)

    def route(self, here: str, there: str) -> Mapping[str, Any]:
        """One node's route to the block of another's pod; empty without one."""
        block = ip_network(f"{self.pods[there].address}/26", strict=False)
        text = self.machine(here).run(["ip", "-j", "route", "show", "exact", str(block)]).stdout
        found = json.loads(text or "[]")
        return found[0] if found else {}

    def device(self, here: str, there: str) -> str:
        """The device by which one node reaches another's pods."""
        return str(self.route(here, there).get("dev", ""))

    def comes_to(self, near: str, far: str) -> None:
        """Until every node reaches nodes of its rack and of the other one by these devices."""
        wanted = {
            (here, there): near if self._neighbours(here, there) else far
            for here in self.names
            for there in self.names
            if here != there
        }
        seen: dict[tuple[str, str], str] = {}

        def right() -> bool:
            seen.clear()
            seen.update({pair: self.device(*pair) for pair in wanted})
            return seen == wanted

        try:
            proc.wait_until(right, f"routes by {near} and {far}", timeout=self.patience)
        except Exception as error:
            raise AssertionError(f"{error}: {seen}, wanted {wanted}\n{self.logs()}") from error

    def _neighbours(self, here: str, there: str) -> bool:
        return self.lab.host(here).segment == self.lab.host(there).segment

    def connected(self) -> None:
        """Every pod reaches every other."""
        for here, source in self.pods.items():
            for there, target in self.pods.items():
                if here != there:
                    proc.wait_until(
                        lambda source=source, target=target: self._reaches(  # type: ignore[misc]
                            source, target
                        ),
                        f"pod of {here} reaches pod of {there}",
                        timeout=self.patience,
                    )

    def _reaches(self, source: Pod, target: Pod) -> bool:
        try:
            return pods.ping(self.lab, source, target.address)
        except LabError:
            # A guest under load may not even start the program in time.
            return False

    def sent(self, node: str, device: str) -> int:
        """Packets that left by a device."""
        text = self.machine(node).run(["ip", "-j", "-s", "link", "show", device]).stdout
        return int(json.loads(text)[0]["stats64"]["tx"]["packets"])

    def conditions(self, node: str) -> list[tuple[str, str]]:
        """What the node's felix is not content with."""
        text = self.machine(node).path("/var/run/calico/status/felix.json").read_text()
        return [(c["object"], c["reason"]) for c in json.loads(text)["conditions"]]

    def eventually_told(self, node: str, about: str, what: str) -> None:
        """Until a node says this of an object."""
        proc.wait_until(
            lambda: any(about == name and what in told for name, told in self.conditions(node)),
            f"{node} says of {about}: {what}",
            timeout=self.patience,
        )

    def logs(self) -> str:
        """The ends of all nodes' logs."""
        tails = (f"--- {n.name}\n{agents.log_tail(n, 40)}" for n in self.lab.nodes)
        return "\n".join(tails)

    @contextmanager
    def traffic(self, pair: tuple[str, str]) -> Iterator[traffic.Traffic]:
        """Pings at 100/s both ways and a TCP stream between the pods of two nodes."""
        here, there = pair
        with traffic.between(self.lab, self.pods[here], self.pods[there], PORT) as seen:
            yield seen


def say(text: str) -> None:
    """Progress into the captured output."""
    print(text, file=sys.stderr)


@contextmanager
def scene(
    name: str,
    *,
    nodes: int = 3,
    peers: bool = True,
    patience: float = proc.PATIENCE,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Scene]:
    """A lab with a pool without tunnels and a pod on each node, taken down afterwards."""
    lab = cluster.up(name, nodes=nodes, environment=environment or {}, say=say)
    try:
        made = Scene(lab, patience)
        made.set_mode(NEVER)
        if peers:
            made.peer_with_router()
        made.start_pods()
        yield made
    except BaseException:
        say(Scene(lab).logs())
        raise
    finally:
        cluster.down(name)


def switch(made: Scene, modes: Modes, near: str, far: str) -> dict[str, Any]:
    """Switch the mode under traffic to the far node; what was lost, and whether the stream held."""
    before = {name: pod.address for name, pod in made.pods.items()}
    with made.traffic(FAR) as seen:
        made.set_mode(modes)
        made.comes_to(near, far)
        made.connected()
        seen.settled()
    after = {name: pods.find(made.lab, pod.name).address for name, pod in made.pods.items()}
    return {
        "lost": seen.lost,
        "lost_after": seen.lost_after,
        "sent": seen.sent,
        "stream": seen.stream_error,
        "kept": before == after,
        "lines": seen.lines,
    }
