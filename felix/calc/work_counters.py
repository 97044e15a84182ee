"""Counts of what the calculation does, so that tests can hold its cost to what a change touches."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class WorkCounters:
    """Work done so far.

    `evaluations`: selectors held against a label set. `members`: members added to or taken
    from a set. `rules`: rules resolved. `views`: policy lists of endpoints computed.
    """

    evaluations: int = 0
    members: int = 0
    rules: int = 0
    views: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))
