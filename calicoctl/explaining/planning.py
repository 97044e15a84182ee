"""`policy plan` as text: what would be denied and what allowed, from whom to whom.

Tested in `tests/calicoctl/test_explain.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from felix.explain.plan_labels import LabelClass
from felix.explain.plan_report import Group, PlanReport, as_tree, plan
from felix.explain.report import named
from felix.explain.world import READ, World
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource, key_of

if TYPE_CHECKING:
    from libcalico.process.progress import Progress

MOST_CLASSES = 12
"""Label classes that one end of a group is told by."""
CONSIDERED = frozenset(READ) - {"FelixConfiguration", "IPPool", "Node", "HostEndpoint"}


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """A plan, and which of the resources have no part in it."""

    report: PlanReport
    ignored: tuple[str, ...]
    seconds: float


def plan_of(
    world: World,
    resources: Iterable[Resource],
    *,
    delete: bool = False,
    timeout: float = 60.0,
    progress: Progress | None = None,
) -> PolicyPlan:
    """The plan of applying (or deleting) these resources; `progress` counts what is compared."""
    began = time.monotonic()
    changes: dict[ResourceKey, object] = {}
    ignored = []
    for resource in resources:
        key = key_of(resource)
        if key.kind not in CONSIDERED or key.kind.startswith("Staged"):
            ignored.append(named(key))
            continue
        changes[key] = None if delete else resource

    def late() -> bool:
        # Asked before each pair.
        if progress is not None:
            progress.done += 1
        return time.monotonic() - began > timeout

    report = plan(world, world.replaced(changes), late)
    return PolicyPlan(report, tuple(ignored), time.monotonic() - began)


def as_json(plan: PolicyPlan) -> str:
    """The plan as one JSON object."""
    tree = {**as_tree(plan.report), "ignored": list(plan.ignored)}
    return json.dumps(tree, indent=2) + "\n"


def as_text(plan: PolicyPlan) -> str:
    """The plan as text."""
    return "\n".join(_lines(plan)) + "\n"


def incomplete(plan: PolicyPlan) -> str:
    """Why a plan is not whole."""
    report = plan.report
    reasons = []
    if report.left:
        reasons.append(
            f"{report.left} of {report.left + report.pairs} pairs of classes were not compared"
            f" in {plan.seconds:.0f} s; give it more time with --timeout"
        )
    if report.partial:
        reasons.append("too many networks are named: not all outside addresses are in it")
    return f"The plan is not complete: {'; '.join(reasons)}"


def _lines(plan: PolicyPlan) -> Iterator[str]:
    report = plan.report
    for denied in (True, False):
        groups = [g for g in report.groups if g.becomes_allowed is not denied]
        if groups:
            yield f"Would be {'DENIED' if denied else 'ALLOWED'}:"
        for group in groups:
            yield from _group(group)
    if not report.groups:
        yield "No flow between pods, or between a pod and another address, would change verdict."
    for condition in report.conditions:
        yield f"note: {condition}"
    for name in plan.ignored:
        yield f"note: {name} has no part in what pods may send or receive"
    yield (
        f"{report.endpoints} endpoints in {report.classes} classes, {report.pairs} pairs of"
        f" classes compared in {plan.seconds:.1f} s."
    )


def _group(group: Group) -> Iterator[str]:
    family = "" if len(group.versions) > 1 else f" (IPv{group.versions[0]})"
    yield f"  {group.packets}{family}"
    for word, ends in (("from", group.sources), ("to", group.destinations)):
        for line in _ends(ends):
            yield f"    {word:<4} {line}"
            word = ""
    yield f"    now  {group.before}"
    yield f"    then {group.after}"


def _ends(ends: tuple[LabelClass, ...]) -> Iterator[str]:
    yield from map(str, ends[:MOST_CLASSES])
    if len(ends) > MOST_CLASSES:
        yield f"and {len(ends) - MOST_CLASSES} other classes"
