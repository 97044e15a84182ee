"""Which of the selectors that are followed match a label set: asked of few, not of all.

A selector hangs on its anchor: the pairs of label and value, or the label, without one of which
it cannot match. Labels are looked up one by one; who hangs there is asked, and those that consist
of their anchor alone (`has(app)`, `app == 'db'`, `app in {...}`) need not even be asked. A selector
without an anchor is asked every time.
Tested in tests/felix/calc/policy/test_population.py, test_sets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from felix.calc.sets.anchors import Anchor, anchors, mentioned
from felix.calc.work_counters import WorkCounters
from libcalico.selectors.selectors import Compare, Has, InSet, Node, Selector

Hooks = dict[str | None, dict[str, "Followed"]]
"""The selectors anchored at a label with a value, or, under None, with any value."""


class Followed:
    """A selector, its anchors (None: it has none), and the labels that it mentions."""

    __slots__ = ("anchors", "mentions", "plain", "selector", "text")

    def __init__(self, selector: Selector, cost: Callable[[Anchor], int]) -> None:
        self.selector = selector
        self.text = selector.text
        self.anchors = anchors(selector.root, cost)
        self.mentions = mentioned(selector.root)
        self.plain = _is_plain(selector.root)


class SelectorPrefilter:
    """The followed selectors by text."""

    def __init__(self, operations: WorkCounters) -> None:
        self._operations = operations
        self._followed: dict[str, Followed] = {}
        self._hooks: dict[str, Hooks] = {}
        self._unanchored: dict[str, Followed] = {}
        self._mentioning: dict[str, dict[str, Followed]] = {}

    def __bool__(self) -> bool:
        return bool(self._followed)

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, one: Followed) -> None:
        """Follow a selector."""
        self._followed[one.text] = one
        if one.anchors is None:
            self._unanchored[one.text] = one
        for label, value in one.anchors or ():
            self._hooks.setdefault(label, {}).setdefault(value, {})[one.text] = one
        for label in one.mentions:
            self._mentioning.setdefault(label, {})[one.text] = one

    def remove(self, one: Followed) -> None:
        """Follow it no more."""
        del self._followed[one.text]
        self._unanchored.pop(one.text, None)
        for label, value in one.anchors or ():
            hooks = self._hooks[label]
            del hooks[value][one.text]
            if not hooks[value]:
                del hooks[value]
                if not hooks:
                    del self._hooks[label]
        for label in one.mentions:
            del self._mentioning[label][one.text]
            if not self._mentioning[label]:
                del self._mentioning[label]

    def matching(self, labels: Mapping[str, str]) -> set[Followed]:
        """Those that match."""
        followed: set[Followed] = set()
        candidates: set[Followed] = set()
        hooks = self._hooks
        for label, value in labels.items():
            there = hooks.get(label)
            if there is None:
                continue
            for key in (value, None):
                for one in there.get(key, NO_SELECTORS).values():
                    (followed if one.plain else candidates).add(one)
        candidates.update(self._unanchored.values())
        self._operations.evaluations += len(candidates)
        followed.update(one for one in candidates if one.selector.matches(labels))
        return followed

    def mentioning(self, labels: Iterable[str]) -> set[Followed]:
        """Those whose answer may depend on one of these labels."""
        return {
            one for label in labels for one in self._mentioning.get(label, NO_SELECTORS).values()
        }


NO_SELECTORS: Mapping[str, Followed] = {}


def _is_plain(node: Node) -> bool:
    match node:
        case Compare(_, "==", _) | Has() | InSet(_, _, False):
            return True
    return False
