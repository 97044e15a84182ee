"""An inverted index: which holders have a label, or a label with a value.

Tested in tests/felix/calc/policy/test_index.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from felix.calc.sets.anchors import Anchor

T = TypeVar("T", bound=Hashable)
Pairs = Iterable[tuple[str, str]]


class Postings(Generic[T]):
    """label -> value -> holders."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[str, set[T]]] = {}

    def add(self, pairs: Pairs, holder: T) -> None:
        """The holder has these pairs."""
        for label, value in pairs:
            self._holders.setdefault(label, {}).setdefault(value, set()).add(holder)

    def discard(self, pairs: Pairs, holder: T) -> None:
        """The holder has these pairs no more; what is empty then is dropped."""
        for label, value in pairs:
            values = self._holders[label]
            values[value].discard(holder)
            if not values[value]:
                del values[value]
                if not values:
                    del self._holders[label]

    def find(self, anchor: Anchor) -> Iterator[T]:
        """The holders of an anchor; each once, for a holder has one value a label."""
        label, value = anchor
        values: Mapping[str, set[T]] = self._holders.get(label, {})
        if value is not None:
            yield from values.get(value, ())
            return
        for holders in values.values():
            yield from holders

    def count(self, anchor: Anchor) -> int:
        """How many holders an anchor has; costs the distinct values of a label at most."""
        label, value = anchor
        values: Mapping[str, set[T]] = self._holders.get(label, {})
        if value is not None:
            return len(values.get(value, ()))
        return sum(map(len, values.values()))
