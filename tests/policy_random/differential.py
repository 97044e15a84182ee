"""Worlds through the product without packets, and where it disagrees with the oracle.

One pair of nodes lives through a row of worlds: each world is reached from the one before by
differences in random order, with flushes in between, as a busy datastore would deliver them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from libcalico.model import ResourceKey, codec, defaults, key_of
from tests.policy_random.generator import World
from tests.policy_random.oracle import Decision, Flow, Oracle
from tests.policy_random.simulator import Node, Render, render

Objects = dict[ResourceKey, Any]


@dataclass(frozen=True)
class Mismatch:
    """One verdict that differs."""

    world: World
    flow: Flow
    direction: str
    product: bool
    oracle: Decision
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"seed {self.world.seed} world {self.world.number}: {self.direction} of {self.flow}: "
            f"product {'allows' if self.product else 'denies'}, "
            f"oracle {'allows' if self.oracle.allowed else 'denies'} by {self.oracle.by}"
            + (f" rule {self.oracle.rule}" if self.oracle.rule is not None else "")
            + "".join(f"\n    {line}" for line in self.trace[-4:])
        )


def objects(world: World) -> Objects:
    """The world's documents as the product decodes them, with the defaults it stores."""
    found: Objects = {}
    for document in world.documents:
        resource = defaults.apply_defaults(codec.resource_from_tree(document, strict=True))
        found[key_of(resource)] = resource
    return found


class Pair:
    """Two nodes that follow the same datastore."""

    def __init__(self, render_policy: Render = render) -> None:
        self.nodes = {name: Node(name, render_policy) for name in ("node1", "node2")}
        self.have: Objects = {}
        self.places: dict[str, tuple[str, ResourceKey]] = {}

    def become(self, world: World, random: Random) -> None:
        """Reach a world by differences in random order, flushed now and then."""
        want = objects(world)
        changes: list[tuple[ResourceKey, Any]] = [
            (key, want.get(key))
            for key in {**self.have, **want}
            if self.have.get(key) != want.get(key)
        ]
        random.shuffle(changes)
        for node in self.nodes.values():
            for key, value in changes:
                node.engine.update(key, value)
                if random.random() < 0.05:
                    node.flush()
            node.engine.start()
            node.flush()
        self.have = want
        self.places = {
            f"{key.namespace}/{value.spec.pod}": (value.spec.node, key)
            for key, value in want.items()
            if key.kind == "WorkloadEndpoint"
        }

    def allows(self, oracle: Oracle, flow: Flow, direction: str) -> tuple[bool, list[str]]:
        """What the product says about one direction of a flow."""
        egress = direction == "egress"
        node, key = self.places[flow.source if egress else flow.destination]
        return self.nodes[node].allows(key, oracle.packet(flow), egress=egress)

    def compare(self, world: World, flows: Iterable[Flow]) -> list[Mismatch]:
        """All verdicts that differ."""
        oracle = Oracle(world.documents)
        found = []
        for flow in flows:
            for direction in ("egress", "ingress"):
                truth = oracle.egress(flow) if direction == "egress" else oracle.ingress(flow)
                product, trace = self.allows(oracle, flow, direction)
                if product is not truth.allowed:
                    found.append(Mismatch(world, flow, direction, product, truth, tuple(trace)))
        return found
