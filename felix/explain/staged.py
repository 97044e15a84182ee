"""What staged policies would do: the same question in the world where they are in force.

Each `Set` takes the place of its target, the target of each `Delete` is gone (STG-2); what
happens then is asked like anything else.

Invariants:
  EXP-4  The answer to a question does not depend on staged policies; only what would be does.
Tested in tests/felix/explain/test_report.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felix.calc.policy.staged import DELETE, SET, STAGED_KINDS, Staged, becomes
from felix.explain.path import Questions
from felix.explain.stations import Explanation
from felix.explain.world import World
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey


def enforced(world: World, staged: Mapping[ResourceKey, Staged]) -> World | None:
    """The world with its staged policies in force; None where there are none that would act."""
    changes: dict[ResourceKey, Any] = {}
    for key, one in staged.items():
        if one.action == DELETE:
            changes[one.target] = None
        elif one.action == SET:
            try:
                changes[one.target] = becomes(world.objects[key])[0]
            except InvalidValue:
                continue
    if not changes:
        return None
    kept = {k: v for k, v in world.objects.items() if k.kind not in STAGED_KINDS}
    return World(kept, world.unreadable).replaced(changes)


class Would:
    """The questions of a pair of ends, asked as if staged policies were in force."""

    def __init__(self, questions: Questions) -> None:
        self.sources: dict[ResourceKey, ResourceKey] = {}
        staged: dict[ResourceKey, Staged] = {}
        for end in (questions.source, questions.destination):
            staged |= questions.calculation(end.node).engine.staged
        world = enforced(questions.world, staged)
        self.questions = (
            None if world is None else Questions(world, questions.source, questions.destination)
        )
        for key, one in staged.items():
            if one.action in (SET, DELETE):
                self.sources[one.target] = key

    def ask(self, now: Explanation) -> Explanation | None:
        """What would happen to the packet; None where it would be decided as it is now."""
        if self.questions is None:
            return None
        then = self.questions.ask(now.packet.kind, now.packet.version)
        if _deciders(then) == _deciders(now):
            return None
        return then


def _deciders(explanation: Explanation) -> list[tuple[object, ...]]:
    return [
        (
            s.stage,
            s.ingress,
            s.ruling.allowed,
            s.ruling.by,
            s.ruling.tier,
            s.ruling.policy,
            s.ruling.rule,
        )
        for s in explanation.stations
    ]
