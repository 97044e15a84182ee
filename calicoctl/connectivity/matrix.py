"""Which probes are made: every place asks every target, over some nodes or all. Pure.

Tested in `tests/calicoctl/test_connectivity_judge.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calicoctl.connectivity.model import (
    ALLOWED,
    DENIED,
    HOST,
    NODES,
    OPEN,
    OTHER_PORT,
    OUTSIDE,
    PODS,
    SPEED,
    Place,
    Probe,
    Target,
)

NODE_PORT = 10250
"""A kubelet's port; a node where nothing listens refuses, and so is reached, too."""

PEERS = 50
"""Nodes that a place asks at most."""


def sampled(names: Iterable[str], count: int) -> list[str]:
    """So many of the names, spread evenly over their order; all of them for 0."""
    ordered = sorted(names)
    if not count or count >= len(ordered):
        return ordered
    return [ordered[number * len(ordered) // count] for number in range(count)]


def pod_targets(servers: Sequence[Place], port: int) -> list[Target]:
    """The servers on both of their ports."""
    return [
        Target(kind, place.title, place.address, number, place.node)
        for place in servers
        for kind, number in ((PODS, port), (OTHER_PORT, port + 1))
    ]


def node_targets(addresses: dict[str, str]) -> list[Target]:
    """The nodes themselves, by their address."""
    return [
        Target(NODES, node, address, NODE_PORT, node)
        for node, address in sorted(addresses.items())
        if address
    ]


def endpoint(kind: str, text: str) -> Target:
    """A target of the command line, `HOST:PORT` or `[HOST]:PORT`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Target(kind, text, host, int(port))


def probes(phase: str, sources: Sequence[Place], targets: Sequence[Target]) -> list[Probe]:
    """Every place asks every target of a phase; what may answer depends on the phase.

    A node always reaches its own pods (a kubelet must); whether it does with a deny is not asked.
    Of more than `PEERS` nodes a place asks its own and those that follow it in their order, so that
    each node is asked by as many, and a larger cluster costs no more a node.
    """
    made = []
    nodes = sorted({target.node for target in targets if target.node})
    place = {node: number for number, node in enumerate(nodes)}
    for source in sources:
        first = place.get(source.node, 0)
        for target in targets:
            if target.node and (place[target.node] - first) % len(nodes) >= PEERS:
                continue
            if source.kind == HOST and (phase != OPEN or target.node == source.node):
                continue
            if phase != OPEN and target.kind in (NODES, OUTSIDE):
                continue
            # What a pod may ask its own node is felix's defaultEndpointToHostAction.
            own_node = target.kind == NODES and target.node == source.node
            if own_node or source.address == target.host:
                continue
            made.append(Probe(phase, source, target, _open(phase, target)))
    return made


def _open(phase: str, target: Target) -> bool:
    if phase == DENIED:
        return False
    return not (phase == ALLOWED and target.kind == OTHER_PORT)


def ring(sources: Sequence[Place], targets: Sequence[Target]) -> list[Probe]:
    """One measurement of throughput from each node to the next, and inside the first."""
    by_node = {place.node: place for place in sources if place.pod}
    there = {target.node: target for target in targets if target.kind == PODS}
    nodes = [node for node in sorted(by_node) if node in there]
    pairs = [(node, nodes[(number + 1) % len(nodes)]) for number, node in enumerate(nodes)]
    made = []
    for near, far in dict.fromkeys(pairs):
        source, target = by_node[near], there[far]
        if source.address != target.host:
            goal = Target(SPEED, target.title, target.host, target.port, target.node)
            made.append(Probe(OPEN, source, goal))
    return made
