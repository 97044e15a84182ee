"""What `felix.explain` answers about a flow of the random worlds, to be held to an oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from felix.explain.classes import Class
from felix.explain.ends import find
from felix.explain.flow import Kind
from felix.explain.path import Questions
from felix.explain.stations import Explanation
from felix.explain.world import World
from libcalico.model import codec, defaults, key_of
from tests.policy_random.oracle import Flow


def world_of(documents: Iterable[Mapping[str, Any]]) -> World:
    """The world of Calico documents, decoded and completed as a write would."""
    found = {}
    for document in documents:
        resource = defaults.apply_defaults(codec.resource_from_tree(dict(document), strict=True))
        found[key_of(resource)] = resource
    return World(found)


def kind_of(flow: Flow) -> Kind:
    """All of a flow but its ends."""
    return Kind(
        flow.protocol,
        flow.destination_port,
        flow.source_port,
        flow.icmp_type,
        flow.icmp_code,
    )


def explained(documents: Iterable[Mapping[str, Any]] | World, flow: Flow) -> Explanation:
    """The explanation of a flow between two pods of a world."""
    world = documents if isinstance(documents, World) else world_of(documents)
    questions = Questions(world, find(world, flow.source), find(world, flow.destination))
    return questions.ask(kind_of(flow), flow.version)


def is_as_certain_as_it_should_be(explanation: Explanation) -> bool:
    """Certain, but where a policy on the way names services, of which a datastore knows nothing."""
    asked = any("names services" in note for note in explanation.notes)
    return explanation.certain is not asked


def alike(made: list[Class], kind: Kind) -> list[Class]:
    """The classes that a packet belongs to."""
    made = [c for c in made if c.example.protocol == kind.protocol] or made[-1:]
    if made[0].example.has_ports:
        return [
            c
            for c in made
            if c.ports[0] <= kind.destination_port <= c.ports[1]
            and c.sources[0] <= kind.source_port <= c.sources[1]
        ]
    same = [c for c in made if c.example.icmp_type == kind.icmp_type]
    exact = [c for c in same if c.example.icmp_code == kind.icmp_code]
    return (exact or same or made)[-1:]
