"""The labels by which a plan shows endpoints: those that any selector speaks of.

Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from felix.calc.labels import workload_labels
from felix.calc.policy.facts import facts_of
from felix.explain.populace import Class, Member
from felix.explain.world import World
from felix.explain.written import POLICIES
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey
from libcalico.policy_selectors import NAMESPACE_LABEL, entity_selector
from libcalico.selectors.selectors import And, Compare, Has, InSet, Node, Not, Or, parse

NAMESPACE_NAME = "namespace"


@dataclass(frozen=True, slots=True)
class LabelClass:
    """Endpoints with equal relevant labels: how many there are, and one of them."""

    labels: tuple[tuple[str, str], ...]
    count: int
    example: str
    title: str = ""

    def __str__(self) -> str:
        if self.title:
            return self.title
        words = " ".join(f"{name}={value}" for name, value in self.labels) or "no label of note"
        pods = f"{self.count} pods, such as {self.example}" if self.count > 1 else self.example
        return f"{words} ({pods})"


def relevant_labels(worlds: Iterable[World]) -> frozenset[str]:
    """The labels that any selector mentions, and the namespace."""
    labels: set[str] = {NAMESPACE_LABEL}
    seen: set[str] = set()
    for world in worlds:
        for kind in (*POLICIES, "Profile"):
            for key, value in world.of(kind):
                if kind in POLICIES:
                    _collect(facts_of(key, value).selector.root, labels)
                for rule in (*value.spec.ingress, *value.spec.egress):
                    for side in (rule.source, rule.destination):
                        for text in _texts(side, key.namespace):
                            if text not in seen:
                                seen.add(text)
                                _collect(parse(text).root, labels)
    return frozenset(labels)


def _texts(side: Any, namespace: str) -> list[str]:
    try:
        texts = [text for text in (entity_selector(side, namespace), side.notSelector) if text]
        for text in texts:
            parse(text)
    except InvalidValue:
        # Its policy is closed, so the selector has no effect.
        return []
    return texts


def _collect(node: Node, labels: set[str]) -> None:
    match node:
        case Compare() | InSet() | Has():
            labels.add(node.label)
        case Not(operand):
            _collect(operand, labels)
        case And(operands) | Or(operands):
            for each in operands:
                _collect(each, labels)


def member_of(world: World, key: ResourceKey, relevant: frozenset[str]) -> Member:
    """An endpoint with the labels that matter, inherited ones among them."""
    value = world.objects[key]
    labels = world.with_inherited(workload_labels(key, value), value.spec.profiles)
    shown = {name: text for name, text in labels.items() if name in relevant}
    namespace = shown.pop(NAMESPACE_LABEL, key.namespace)
    return Member(
        key,
        f"{key.namespace}/{value.spec.pod or value.spec.workload}",
        world.addresses(key),
        ((NAMESPACE_NAME, namespace), *sorted(shown.items())),
    )


def label_classes(classes: Iterable[Class]) -> tuple[LabelClass, ...]:
    """The members of these classes, counted by their labels."""
    counted: Counter[tuple[tuple[str, str], ...]] = Counter()
    examples: dict[tuple[tuple[str, str], ...], str] = {}
    titles = []
    for one in classes:
        if one.outside:
            titles.append(LabelClass((), 0, "", one.title))
        for member in one.members:
            counted[member.labels] += 1
            examples[member.labels] = min(examples.get(member.labels, member.title), member.title)
    counted_classes = [
        LabelClass(labels, counted[labels], examples[labels]) for labels in sorted(counted)
    ]
    return (*counted_classes, *sorted(titles, key=lambda one: one.title))
