"""A plan as people read it: which flows, by the labels of both ends, and who decides.

`plan` does everything: two calculations, classes, comparison, grouping.

Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from felix.calc.endpoints import from_resource
from felix.calc.policy import PolicyEngine
from felix.explain.classes import merged
from felix.explain.ends import End, What
from felix.explain.plan_changes import Change, Outcome, Verdict
from felix.explain.plan_labels import LabelClass, label_classes, member_of, relevant_labels
from felix.explain.planning import Plan
from felix.explain.populace import Class, classes_of
from felix.explain.report import Judgement, decided_by
from felix.explain.stations import NORMAL, Station
from felix.explain.walk import Ruling
from felix.explain.world import World, calculate
from felix.explain.written import written
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey


@dataclass(frozen=True, slots=True)
class Group:
    """Flows that change alike: from any of `sources` to any of `destinations`."""

    sources: tuple[LabelClass, ...]
    destinations: tuple[LabelClass, ...]
    packets: str
    versions: tuple[int, ...]
    becomes_allowed: bool
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plan. `left`: pairs of classes not looked at; `partial`: networks left out."""

    groups: tuple[Group, ...]
    endpoints: int
    classes: int
    pairs: int
    left: int
    partial: bool
    conditions: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether everything was looked at."""
        return not self.left and not self.partial


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two worlds compared: what a report is made of."""

    plan: Plan
    population: list[Class]
    outcome: Outcome
    whole: bool
    engines: tuple[PolicyEngine, PolicyEngine]
    members: int


def compare(before: World, after: World, late: Callable[[], bool] = lambda: False) -> Comparison:
    """Both worlds calculated and compared; `late` says when to give up."""
    keys = _endpoints(before, after)
    engines = (calculate(before, keys).engine, calculate(after, keys).engine)
    comparison = Plan(*engines)
    relevant = relevant_labels((before, after))
    members = [member_of(after, key, relevant) for key in sorted(keys)]
    population, whole = classes_of(members, engines, comparison.rules())
    outcome = comparison.compare(population, late)
    return Comparison(comparison, population, outcome, whole, engines, len(members))


def plan(before: World, after: World, late: Callable[[], bool] = lambda: False) -> PlanReport:
    """What would change; when `late` returns true, the report has what is known by then."""
    return reported(compare(before, after, late), before, after)


def reported(comparison: Comparison, before: World, after: World) -> PlanReport:
    """What a comparison of these worlds found."""
    outcome, engines = comparison.outcome, comparison.engines
    groups = _grouped(outcome.changes, _Deciders((before, after)))
    was = engines[0].conditions
    conditions = tuple(
        f"{key}: {reason}"
        for key, reason in sorted(engines[1].conditions.items())
        if was.get(key) != reason
    )
    return PlanReport(
        tuple(groups),
        comparison.members,
        len(comparison.population),
        outcome.pairs,
        outcome.left,
        not comparison.whole,
        conditions,
    )


def _endpoints(before: World, after: World) -> list[ResourceKey]:
    """The endpoints that felix serves in both worlds."""
    served = []
    for key, value in after.of("WorkloadEndpoint"):
        try:
            from_resource(key, value)
            from_resource(key, before.objects[key])
        except (InvalidValue, KeyError):
            continue
        served.append(key)
    return served


# -- who decides -------------------------------------------------------------------------------


class _Deciders:
    def __init__(self, worlds: tuple[World, World]) -> None:
        self._worlds = worlds
        self._texts: dict[tuple[int, bool, int], str] = {}
        self._kept: list[Ruling] = []

    def text(self, world: int, verdict: Verdict) -> str:
        """`denied: ingress, end of tier default`."""
        if verdict.egress is not None and not verdict.egress.allowed:
            return f"denied: egress, {self._by(world, verdict.egress, ingress=False)}"
        if verdict.ingress is not None and not verdict.ingress.allowed:
            return f"denied: ingress, {self._by(world, verdict.ingress, ingress=True)}"
        words = []
        for name, ruling, ingress in (
            ("egress", verdict.egress, False),
            ("ingress", verdict.ingress, True),
        ):
            if ruling is not None:
                words.append(f"{name}, {self._by(world, ruling, ingress=ingress)}")
        return f"allowed: {'; '.join(words)}"

    def _by(self, world: int, ruling: Ruling, *, ingress: bool) -> str:
        which = (id(ruling), ingress, world)
        text = self._texts.get(which)
        if text is None:
            # Its identity is the key: it must not go.
            self._kept.append(ruling)
            text = self._texts[which] = self._named(world, ruling, ingress=ingress)
        return text

    def _named(self, world: int, ruling: Ruling, *, ingress: bool) -> str:
        station = Station(ingress, End(What.POD, "", ()), NORMAL, ruling)
        if ruling.policy is None or ruling.rule is None:
            return decided_by(Judgement(station, None))
        stored = self._worlds[world].objects.get(ruling.policy)
        origin = written(ruling.policy, stored, ruling.rule, ingress=ingress)
        return decided_by(Judgement(station, None, None if origin is None else origin[0]))


# -- groups ------------------------------------------------------------------------------------


def _grouped(changes: Iterable[Change], texts: _Deciders) -> list[Group]:
    """Changes of one kind together; then sources of the same destinations together."""
    flows: dict[tuple[Class, Class], dict[tuple[str, str, bool], dict[int, list[Change]]]] = {}
    for change in changes:
        decision = (
            texts.text(0, change.before),
            texts.text(1, change.after),
            change.after.allowed,
        )
        alike = flows.setdefault((change.source, change.destination), {}).setdefault(decision, {})
        alike.setdefault(change.version, []).append(change)
    kinds: dict[tuple[str, str, bool, str, tuple[int, ...]], dict[Class, set[Class]]] = {}
    for (source, destination), by_decision in flows.items():
        for decision, by_version in by_decision.items():
            packets: dict[str, list[int]] = {}
            for version, those in by_version.items():
                text = merged([one.packets.label for one in those], those[0].kinds)
                packets.setdefault(text, []).append(version)
            for text, families in packets.items():
                kind = (*decision, text, tuple(families))
                kinds.setdefault(kind, {}).setdefault(source, set()).add(destination)
    groups = []
    for (before, after, allowed, text, versions), reached in kinds.items():
        sources: dict[frozenset[Class], list[Class]] = {}
        for source, destinations in reached.items():
            sources.setdefault(frozenset(destinations), []).append(source)
        for targets, alike_sources in sources.items():
            groups.append(
                Group(
                    label_classes(alike_sources),
                    label_classes(targets),
                    text,
                    versions,
                    allowed,
                    before,
                    after,
                )
            )
    groups.sort(key=lambda g: (g.becomes_allowed, g.packets, str(g.sources[:1]), g.before))
    return groups


def as_tree(report: PlanReport) -> dict[str, Any]:
    """The plan as plain values."""
    return {
        "changes": [
            {
                "becomes": "allowed" if group.becomes_allowed else "denied",
                "packets": group.packets,
                "ipVersions": list(group.versions),
                "sources": [_class_tree(one) for one in group.sources],
                "destinations": [_class_tree(one) for one in group.destinations],
                "before": group.before,
                "after": group.after,
            }
            for group in report.groups
        ],
        "endpoints": report.endpoints,
        "classes": report.classes,
        "pairsLookedAt": report.pairs,
        "pairsLeft": report.left,
        "whole": report.whole,
        "conditions": list(report.conditions),
    }


def _class_tree(one: LabelClass) -> Mapping[str, object]:
    if one.title:
        return {"addresses": one.title}
    return {"labels": dict(one.labels), "pods": one.count, "example": one.example}
