"""What a request found. Tested in `tests/calicoctl/test_commands.py`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from libcalico.datastore.interface import Entry


class Result(msgspec.Struct, frozen=True):
    """What one request found: entries of one kind; `listing` when a whole kind was asked for.

    `broken` names the stored objects that cannot be read.
    """

    kind: str
    entries: Sequence[Entry]
    listing: bool = False
    revision: int = 0
    broken: Sequence[str] = ()


def in_order(kind: str, entries: Sequence[Entry]) -> list[Entry]:
    """Entries as Calico lists them: tiers by their order, those without one last; else by name."""
    return sorted(entries, key=_tier_order) if kind == "Tier" else list(entries)


def _tier_order(entry: Entry) -> float:
    order: float | None = entry.value.spec.order
    return float("inf") if order is None else order
