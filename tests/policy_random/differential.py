"""Worlds through the product without packets, and where it disagrees with the oracle.

One pair of nodes lives through a row of worlds: each world is reached from the one before by
differences in random order, with flushes in between, as a busy datastore would deliver them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from random import Random
from typing import Any

from felix.calc.policy_model import TierView
from felix.calc.services import ServicePort, ServiceSlice, SliceKey
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


def slices(world: World) -> dict[SliceKey, ServiceSlice]:
    """The world's EndpointSlices as a reader of the API tells them."""
    return {
        SliceKey(one["metadata"]["namespace"], one["metadata"]["name"]): ServiceSlice(
            one["metadata"]["labels"]["kubernetes.io/service-name"],
            frozenset(ip_address(a) for each in one["endpoints"] for a in each["addresses"]),
            frozenset(ServicePort(port["protocol"].lower(), port["port"]) for port in one["ports"]),
        )
        for one in world.slices
    }


class Pair:
    """Two nodes that follow the same datastore; `services`: somebody tells them of services."""

    def __init__(self, render_policy: Render = render, *, services: bool = True) -> None:
        self.services = services
        self.known: dict[SliceKey, ServiceSlice] = {}
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
            if self.services:
                self.tell(node, slices(world), random)
            node.engine.start()
            node.flush()
        self.have, self.known = want, slices(world)
        self.places = {
            f"{key.namespace}/{value.spec.pod}": (value.spec.node, key)
            for key, value in want.items()
            if key.kind == "WorkloadEndpoint"
        }

    def tell(self, node: Node, want: dict[SliceKey, ServiceSlice], random: Random) -> None:
        """Slices as they are now, now and then before they are known to be all."""
        late = random.random() < 0.5
        if late:
            node.flush()
        for key in {**self.known, **want}:
            if self.known.get(key) != want.get(key):
                node.engine.put_slice(key, want.get(key))
        node.engine.services_known(known=True)

    def oracle(self, world: World) -> Oracle:
        """What is true of a world for these nodes."""
        return Oracle(world.documents, world.slices if self.services else None)

    def host_lists(self, world: World) -> list[str]:
        """Host endpoints whose lists of policies differ."""
        oracle, found = self.oracle(world), []
        told = {key.name: one for node in self.nodes.values() for key, one in node.hosts.items()}
        for title in told.keys() | oracle.hosts.keys():
            expected = oracle.lists(title)
            policy = told[title].policy
            product = {stage: list(map(_named, getattr(policy, stage))) for stage in expected}
            if product != expected or list(policy.profiles) != oracle.hosts[title].profiles:
                found.append(f"{title}: product {product}, oracle {expected}")
        return found

    def allows(self, oracle: Oracle, flow: Flow, direction: str) -> tuple[bool, list[str]]:
        """What the product says about one direction of a flow."""
        egress = direction == "egress"
        node, key = self.places[flow.source if egress else flow.destination]
        return self.nodes[node].allows(key, oracle.packet(flow), egress=egress)

    def compare(self, world: World, flows: Iterable[Flow]) -> list[Mismatch]:
        """All verdicts that differ."""
        oracle = self.oracle(world)
        found = []
        for flow in flows:
            for direction in ("egress", "ingress"):
                truth = oracle.egress(flow) if direction == "egress" else oracle.ingress(flow)
                product, trace = self.allows(oracle, flow, direction)
                if product is not truth.allowed:
                    found.append(Mismatch(world, flow, direction, product, truth, tuple(trace)))
        return found


def _named(view: TierView) -> tuple[str, list[str], list[str]]:
    def titles(keys: tuple[ResourceKey, ...]) -> list[str]:
        return [f"{key.name}/{key.namespace}/{key.kind}" for key in keys]

    return (view.name, titles(view.ingress), titles(view.egress))
