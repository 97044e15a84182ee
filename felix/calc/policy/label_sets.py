"""What the label index holds: label sets, groups of profiles, watched selectors.

Tested in tests/felix/calc/policy/test_index.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from felix.calc.labels import Labels
from felix.calc.sets.anchors import Anchor
from libcalico.model import ResourceKey
from libcalico.selectors.selectors import Selector


@dataclass(slots=True, eq=False)
class Group:
    """A list of profiles and the labels that it hands down."""

    profiles: tuple[str, ...]
    inherited: dict[str, str]
    label_sets: set[LabelSet]


@dataclass(slots=True, eq=False)
class LabelSet:
    """Own labels within a group, the items that have them, the selectors that match them."""

    own: Labels
    group: Group
    items: set[ResourceKey]
    selectors: set[str]

    def labels(self) -> dict[str, str]:
        """Own and inherited labels."""
        return {**self.group.inherited, **dict(self.own)}


@dataclass(slots=True, eq=False)
class Watched:
    """A selector, where it is anchored (None: nowhere), what it matches now."""

    selector: Selector
    anchors: tuple[Anchor, ...] | None
    mentions: frozenset[str]
    matches: set[LabelSet]


@dataclass(frozen=True, slots=True)
class Flip:
    """A selector that matches items now and did not, or the reverse."""

    selector: str
    items: frozenset[ResourceKey]
    matches: bool
