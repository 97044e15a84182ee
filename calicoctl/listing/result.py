"""What a request found. Tested in `tests/calicoctl/test_commands.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from libcalico.datastore.interface import Entry
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource

Selects = Callable[[Mapping[str, str]], bool]
"""Whether labels are those of a resource that is meant."""


class Request(msgspec.Struct, frozen=True):
    """What is asked for: a whole kind in a namespace (empty: in all), or some keys.

    `legacy` are those of `keys` that came from documents of the first generation. `selects` chooses
    among a kind; None means all.
    """

    kind: str | None
    namespace: str
    keys: Sequence[ResourceKey] = ()
    legacy: Sequence[Resource] = ()
    selects: Selects | None = None


class Result(msgspec.Struct, frozen=True):
    """What one request found: entries of one kind; `listing` when a whole kind was asked for.

    `broken` names the stored objects that cannot be read.
    """

    kind: str
    entries: Sequence[Entry]
    listing: bool = False
    revision: int = 0
    broken: Sequence[str] = ()

    def only(self, selects: Selects) -> Result:
        """The same with the entries whose labels are selected."""
        kept = [entry for entry in self.entries if selects(entry.value.metadata.labels)]
        return replace(self, entries=kept)


def in_order(kind: str, entries: Sequence[Entry]) -> list[Entry]:
    """Entries as Calico lists them: tiers by their order, those without one last; else by name."""
    return sorted(entries, key=_tier_order) if kind == "Tier" else list(entries)


def _tier_order(entry: Entry) -> float:
    order: float | None = entry.value.spec.order
    return float("inf") if order is None else order
