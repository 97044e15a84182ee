"""What a plan finds: packets whose verdict would differ.

Tested in tests/felix/explain/test_plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from felix.explain.classes import Class as Kinds
from felix.explain.populace import Class
from felix.explain.walk import Ruling


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdicts of both ends in one world; None: no policy applies there."""

    egress: Ruling | None
    ingress: Ruling | None

    @property
    def allowed(self) -> bool:
        """Whether the packet arrives."""
        return all(r is None or bool(r.allowed) for r in (self.egress, self.ingress))


@dataclass(frozen=True, slots=True)
class Change:
    """Packets of one family between two classes whose verdict would differ.

    `kinds`: how many classes of packets there are between the two.
    """

    source: Class
    destination: Class
    version: int
    packets: Kinds
    kinds: int
    before: Verdict
    after: Verdict


@dataclass(slots=True)
class Outcome:
    """Changes; `left` counts pairs of classes that there was no time for."""

    changes: list[Change] = field(default_factory=list)
    pairs: int = 0
    left: int = 0
