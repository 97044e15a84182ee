"""The network below a cluster: a namespace for the control plane, one for each node, a bridge.

    control plane 192.168.50.254 --- bridge --- eth0 of node N, 192.168.50.N

The bridge is in the control plane's namespace, which is also every node's default gateway. It knows
no route to pods: what reaches a pod on another node goes by the routes of the network under test.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Sequence

from lab import proc
from tests.k8s.credentials import CONTROL

PREFIX = "mk8s"
_numbers = itertools.count(1)


def address(node: int) -> str:
    """Of a node, counted from 1."""
    return f"192.168.50.{node}"


def ip(space: str, *words: str) -> None:
    """`ip` in a namespace."""
    proc.run(["ip", "-n", space, *words])


class Wires:
    """The namespaces of one cluster; a node's may be taken away and made again."""

    def __init__(self) -> None:
        self.name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self.control = f"{self.name}-cp"
        self._made: list[str] = []

    def up(self) -> None:
        """The control plane's namespace and the bridge."""
        self._add(self.control)
        ip(self.control, "link", "add", "br0", "type", "bridge")
        ip(self.control, "addr", "add", f"{CONTROL}/24", "dev", "br0")
        ip(self.control, "link", "set", "br0", "up")
        self._forward(self.control)

    def space(self, node: int) -> str:
        """The name of a node's namespace."""
        return f"{self.name}-n{node}"

    def plug(self, node: int) -> None:
        """A node's namespace and its cable."""
        space = self.space(node)
        self._add(space)
        end = ["peer", "name", "eth0", "netns", space]
        ip(self.control, "link", "add", f"e{node}", "type", "veth", *end)
        ip(self.control, "link", "set", f"e{node}", "master", "br0", "up")
        ip(space, "addr", "add", f"{address(node)}/24", "dev", "eth0")
        ip(space, "link", "set", "eth0", "up")
        ip(space, "route", "add", "default", "via", CONTROL)
        self._forward(space)

    def unplug(self, node: int) -> None:
        """Nothing of a node's kernel state stays."""
        # The kernel takes a namespace away later, and until then the cable's name here is taken.
        command = ["ip", "-n", self.control, "link", "del", f"e{node}"]
        subprocess.run(command, capture_output=True, check=False)
        self._delete(self.space(node))

    def down(self) -> None:
        """All of it."""
        for space in list(self._made):
            self._delete(space)

    def inside(self, space: str, command: Sequence[str]) -> list[str]:
        """A command in a network namespace, which leaves /sys as it is."""
        return ["nsenter", f"--net=/run/netns/{space}", "--", *command]

    def _add(self, space: str) -> None:
        proc.run(["ip", "netns", "add", space])
        self._made.append(space)
        ip(space, "link", "set", "lo", "up")

    def _delete(self, space: str) -> None:
        if space in self._made:
            subprocess.run(["ip", "netns", "del", space], check=False)
            self._made.remove(space)

    def _forward(self, space: str) -> None:
        proc.run(self.inside(space, ["sysctl", "-qw", "net.ipv4.ip_forward=1"]))
