"""A pasted policy as a plan: which flows would fare otherwise if it were stored. Nothing is.

Tested in tests/web/test_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calicoctl.checked import planned_resources
from calicoctl.diags.secret_text import without_secrets
from calicoctl.documents import load_text
from calicoctl.explaining import planning
from felix.explain.plan_labels import LabelClass
from felix.explain.world import World
from libcalico.errors import MuslinError

LONGEST = 256 * 1024
"""Characters of a text that is taken."""
SECONDS = 20.0
MOST_ENDS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """Flows that change alike."""

    becomes: str
    packets: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan, or why there is none (`error`). `incomplete`: what was not looked at."""

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    summary: str = ""
    incomplete: str = ""
    error: str = ""


def plan_view(
    world: World, text: str, *, delete: bool = False, seconds: float = SECONDS
) -> PlanView:
    """The plan of storing (or deleting) what `text` holds, YAML or JSON."""
    if not text.strip():
        return PlanView(error="Paste a policy: YAML or JSON, one document or several.")
    if len(text) > LONGEST:
        return PlanView(error=f"The text has {len(text)} characters; at most {LONGEST} are taken.")
    try:
        documents = load_text(text, "pasted text")
        if not documents:
            return PlanView(error="The pasted text holds no resource.")
        resources = planned_resources(documents, "")
        made = planning.plan_of(world, resources, delete=delete, timeout=seconds)
    except MuslinError as problem:
        return PlanView(error=without_secrets(str(problem)))
    report = made.report
    changes = tuple(
        Change(
            "allowed" if group.becomes_allowed else "DENIED",
            group.packets,
            _ends(group.sources),
            _ends(group.destinations),
            group.before,
            group.after,
        )
        for group in report.groups
    )
    ignored = tuple(f"{name} has no part in what pods may send or receive" for name in made.ignored)
    summary = (
        f"{report.endpoints} endpoints in {report.classes} classes, {report.pairs} pairs of"
        f" classes compared in {made.seconds:.1f} s."
    )
    if not changes:
        summary = f"No flow between pods, or with another address, would change verdict. {summary}"
    incomplete = "" if report.whole else planning.incomplete(made)
    return PlanView(changes, (*report.conditions, *ignored), summary, incomplete)


def _ends(ends: Iterable[LabelClass]) -> tuple[str, ...]:
    texts = [str(one) for one in ends]
    if len(texts) > MOST_ENDS:
        return (*texts[:MOST_ENDS], f"and {len(texts) - MOST_ENDS} other classes")
    return tuple(texts)
