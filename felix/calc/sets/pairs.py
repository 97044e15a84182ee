"""Pairs of label and value by dense ids.

Tested in tests/felix/calc/policy/test_label_sets.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from felix.calc.sets.anchors import Anchor
from felix.calc.sets.idlists import Allocator


class Pairs:
    """`labels` and `values` have what each pair says."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.values: list[str] = []
        self._ids = Allocator()
        self._of: dict[str, dict[str, int]] = {}

    def __contains__(self, label: str) -> bool:
        return bool(self._of.get(label))

    def by_value(self, label: str) -> dict[str, int]:
        """The pairs of a label; the same object until `forget` says that the label is gone."""
        return self._of.setdefault(label, {})

    def count(self, label: str) -> int:
        """How many values a label has."""
        return len(self._of[label])

    def values_of(self, label: str) -> Iterable[str]:
        """The values of a label."""
        return self._of.get(label, ())

    def having(self, anchor: Anchor) -> list[int]:
        """The pairs that an anchor means."""
        label, value = anchor
        pairs = self._of.get(label, {})
        if value is None:
            return list(pairs.values())
        return [pairs[value]] if value in pairs else []

    def new(self, label: str, value: str) -> int:
        """The id of a pair that has none, of a label that `by_value` was asked for."""
        pair = self._of[label][value] = self._ids.allocate()
        if pair == len(self.values):
            self.labels.append(label)
            self.values.append(value)
        else:
            self.labels[pair] = label
            self.values[pair] = value
        return pair

    def forget(self, pair: int) -> bool:
        """Free the id of a pair; returns whether its label has no value any more."""
        label = self.labels[pair]
        pairs = self._of[label]
        del pairs[self.values[pair]]
        self.labels[pair] = self.values[pair] = ""
        self._ids.free(pair)
        if not pairs:
            del self._of[label]
        return not pairs
