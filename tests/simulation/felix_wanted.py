"""What the kernel of a node must have, worked out from the pods and the store alone.

`Guard` looks while things happen: nothing of a pod that is wanted is taken away by felix. `check`
looks when all is quiet. Neither knows anything of felix's inside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any

from libcalico.process import paths
from tests.simulation.kernel.machine import Machine
from tests.simulation.kernel.rows import Route
from tests.simulation.kernel.state import BLACKHOLE, MAIN
from tests.simulation.kernel.verdict import Packet, allowed

if TYPE_CHECKING:
    from tests.simulation.felix_world import Node, Pod

OURS = 109
NODE_NAME = "node1"
OUTSIDE = "192.0.2.77"
SELECTED = "cali40s:"
"""What names of sets of selectors begin with."""


def lacking_rules(machine: Machine, interface: str) -> str:
    """What a pod's interface lacks in the filter table; empty if nothing."""
    table = machine.chains.tables["filter"]
    for name in (f"cali-tw-{interface}", f"cali-fw-{interface}"):
        if not table.get(name):
            return f"chain {name}"
        if not any(name in rule for rules in table.values() for rule in rules):
            return f"a way to {name}"
    if not any("cali-FORWARD" in rule for rule in table["FORWARD"]):
        return "the hook"
    return ""


def route_to(machine: Machine, pod: Pod) -> Route | None:
    """The route of a pod's address, if it is felix's and leads to its link."""
    space = machine.namespace
    for route in space.routes:
        link = space.links.get(route.oif)
        if (
            route.table == MAIN
            and route.dst == IPv4Network(pod.address)
            and route.protocol == OURS
            and link is not None
            and link.name == pod.attachment.host_interface
        ):
            return route
    return None


class Guard:
    """Hears of every change of the kernel."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._detail = node.run.trace.detail

    def kernel_did(self, text: str) -> None:
        """One line of the kernel's."""
        self._detail(text)
        words = text.split()
        if words[:4] != ["kernel", "tells", "route", "25"]:
            return
        port = int(words[-1])
        if not port or port == self._node.host.port:
            return
        self._taken(port)

    def rules_changed(self) -> None:
        """A restore was done: what a running pod had, it still has."""
        for pod in self._node.pods.values():
            if not (pod.asked and pod.running):
                continue
            lacking = lacking_rules(self._node.run.machine, pod.attachment.host_interface)
            if lacking:
                self._node.run.trace.fail(f"the rules of {pod.name} were taken away: {lacking}")

    def _taken(self, port: int) -> None:
        machine = self._node.run.machine
        for pod in self._node.pods.values():
            link = next(
                (
                    one
                    for one in machine.namespace.links.values()
                    if one.name == pod.attachment.host_interface
                ),
                None,
            )
            if not (pod.asked and pod.running and link is not None and link.up):
                continue
            if route_to(machine, pod) is None and self._node._calm(pod.name):
                self._node.run.trace.fail(f"the route of {pod.name} was taken away by port {port}")


def check(node: Node) -> None:
    """All is quiet: the kernel must be as wanted."""
    trace, machine = node.run.trace, node.run.machine
    space = machine.namespace
    wanted: dict[IPv4Network, str] = {}
    for name, pod in sorted(node.pods.items()):
        if not pod.running:
            continue
        wanted[IPv4Network(pod.address)] = pod.attachment.host_interface
        if route_to(machine, pod) is None:
            trace.fail(f"quiet: {name} has no route")
        lacking = lacking_rules(machine, pod.attachment.host_interface)
        if lacking:
            trace.fail(f"quiet: {name} lacks {lacking}")
    for prefix, hop in node.speaker.told.items():
        found = [r for r in space.routes if r.table == MAIN and r.dst == IPv4Network(prefix)]
        if not any(r.gateway == IPv4Address(hop) and r.protocol == OURS for r in found):
            trace.fail(f"quiet: no route to {prefix} by {hop}")
    own = IPv4Network("10.65.0.0/26")
    if not any(r.dst == own and r.type == BLACKHOLE for r in space.routes):
        trace.fail("quiet: the own block is not a blackhole")
    for route in space.routes:
        if route.table != MAIN or route.protocol != OURS or route.dst == own:
            continue
        if route.dst not in wanted and str(route.dst) not in node.speaker.told:
            trace.fail(f"quiet: a route that nobody wants: {route.dst}")
    _check_status(node)
    _check_verdicts(node)


def _check_verdicts(node: Node) -> None:
    """Who may speak to whom follows the last readable word of the store."""
    policies = _in_force(node)
    if policies is None:
        return
    running = {name: pod for name, pod in sorted(node.pods.items()) if pod.running}
    colours = {name: node.cluster.colour(name, NODE_NAME) for name in running}
    _check_sets(node, {pod.address: colours[name] for name, pod in running.items()})
    for name, pod in running.items():
        packet = Packet(OUTSIDE, str(pod.address), "eth0", pod.attachment.host_interface)
        wanted = may_speak(policies, "", colours[name])
        if allowed(node.run.machine, packet) != wanted:
            node.run.trace.fail(
                f"quiet: {OUTSIDE} to {name} ({colours[name]}):"
                f" the policies say {wanted}, the kernel {not wanted}"
            )
    for one, sender in running.items():
        for other, receiver in running.items():
            if one == other:
                continue
            packet = Packet(
                str(sender.address),
                str(receiver.address),
                sender.attachment.host_interface,
                receiver.attachment.host_interface,
            )
            wanted = may_speak(policies, colours[one], colours[other])
            if allowed(node.run.machine, packet) != wanted:
                node.run.trace.fail(
                    f"quiet: {one} ({colours[one]}) to {other} ({colours[other]}):"
                    f" the policies say {wanted}, the kernel {not wanted}"
                )


def _check_sets(node: Node, colours: Mapping[IPv4Address, str]) -> None:
    """A selector's set that a rule asks has whom that of some policy takes, and nobody else."""
    fitting = [
        sorted(str(address) for address, found in colours.items() if found == colour)
        for colour in ("red", "blue", "green")
    ]
    sets = node.run.machine.sets
    for name, held in sorted(sets.found.items()):
        if name.startswith(SELECTED) and sets.used.get(name) and held.shown() not in fitting:
            node.run.trace.fail(f"quiet: the set {name} has {held.shown()}, wanted: {fitting}")


def _in_force(node: Node) -> Mapping[str, Mapping[str, Any]] | None:
    """The policies that count. None: one was garbage before felix could read it, and closes all."""
    found: dict[str, Mapping[str, Any]] = dict(node.policies)
    for name in sorted(node.garbage):
        told = [one["reason"] for one in _status()["conditions"] if f"({name})" in one["object"]]
        words = re.match(r"revision (\d+) is in force; revision \d+ is stored", "".join(told[:1]))
        if words is None:
            if not any("ever readable" in reason for reason in told):
                node.run.trace.fail(f"quiet: the policy {name} is garbage, no condition says so")
            return None
        found[name] = node.readable[int(words[1])]
    return found


def may_speak(policies: Mapping[str, Mapping[str, Any]], sender: str, receiver: str) -> bool:
    """What the policies of this world say: `ingress` by colour, else the profile's allow."""
    found = False
    for spec in policies.values():
        if spec["selector"] != f"colour == '{receiver}'":
            continue
        found = True
        for rule in spec["ingress"]:
            if rule["source"]["selector"] == f"colour == '{sender}'":
                return True
    return not found


def _status() -> Any:
    return json.loads((paths.STATUS / "felix.json").read_text())


def _check_status(node: Node) -> None:
    status = _status()
    running = sum(pod.running for pod in node.pods.values())
    said = status["endpoints_in_force"]
    if said != running:
        node.run.trace.fail(f"quiet: felix.json says {said} endpoints in force, {running} run")
