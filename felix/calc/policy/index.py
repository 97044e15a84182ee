"""The label index: which items does a selector match, kept true change by change.

Many items have the same labels (the pods of a replica set), and every item inherits labels
from its profiles (a namespace's labels come that way). So labels are held once per distinct
label set, inherited ones once per group, that is, per list of profiles; selectors are asked
about label sets, never about items. Of several profiles the first that has a label wins; an
own label wins over all.

A new or changed label set is held only against selectors whose anchor it has, and those
without anchor; a new selector only against the label sets that have its anchor; a changed
profile only against selectors that mention a label that changed.

Invariants:
  LBL-1  For every watched selector the index knows exactly the items that it matches.
  LBL-2  The cost of a change follows the label sets and selectors that it touches.
Tested in tests/felix/calc/policy/test_index.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from felix.calc.labels import Labels
from felix.calc.policy.label_sets import Flip, Group, LabelSet, Watched
from felix.calc.policy.postings import Postings
from felix.calc.sets.anchors import Anchor, anchors, mentioned
from felix.calc.work_counters import WorkCounters
from libcalico.model import ResourceKey
from libcalico.selectors.selectors import Selector

NONE: frozenset[str] = frozenset()


class LabelIndex:
    """Items with labels and profiles on one side, selectors on the other."""

    def __init__(self, operations: WorkCounters) -> None:
        self._operations = operations
        self._items: dict[ResourceKey, LabelSet] = {}
        self._label_sets: dict[tuple[Labels, tuple[str, ...]], LabelSet] = {}
        self._groups: dict[tuple[str, ...], Group] = {}
        self._groups_of: dict[str, set[Group]] = {}
        self._profiles: dict[str, Mapping[str, str]] = {}
        self._own: Postings[LabelSet] = Postings()
        self._inherited: Postings[Group] = Postings()
        self._watched: dict[str, Watched] = {}
        self._anchored: dict[Anchor, set[str]] = {}
        self._unanchored: set[str] = set()
        self._mentioning: dict[str, set[str]] = {}

    def selectors_of(self, item: ResourceKey) -> Set[str]:
        """The watched selectors that match an item; read it before the next change."""
        label_set = self._items.get(item)
        return NONE if label_set is None else label_set.selectors

    def items_of(self, text: str) -> Iterator[ResourceKey]:
        """The items that a watched selector matches; none if it is not watched."""
        watched = self._watched.get(text)
        for label_set in watched.matches if watched is not None else ():
            yield from label_set.items

    def matches_any(self, text: str) -> bool:
        """Whether a watched selector matches any item."""
        watched = self._watched.get(text)
        return watched is not None and bool(watched.matches)

    def put(
        self, item: ResourceKey, own: Labels, profiles: tuple[str, ...]
    ) -> tuple[Set[str], Set[str]]:
        """The item has these labels and profiles; returns the selectors before and after."""
        before = self._items.get(item)
        if before is not None and (before.own, before.group.profiles) == (own, profiles):
            return before.selectors, before.selectors
        after = self._label_set(own, profiles)
        after.items.add(item)
        self._items[item] = after
        if before is None:
            return NONE, after.selectors
        self._leave(item, before)
        return before.selectors, after.selectors

    def remove(self, item: ResourceKey) -> Set[str]:
        """Remove an item; returns the selectors that matched it."""
        before = self._items.pop(item, None)
        if before is None:
            return NONE
        self._leave(item, before)
        return before.selectors

    def set_profile(self, name: str, labels: Mapping[str, str] | None) -> list[Flip]:
        """A profile hands down these labels, None: it does not exist; returns what flips."""
        if self._profiles.get(name) == labels:
            return []
        if labels is None:
            del self._profiles[name]
        else:
            self._profiles[name] = dict(labels)
        return [
            flip for group in list(self._groups_of.get(name, ())) for flip in self._regroup(group)
        ]

    def watch(self, selector: Selector) -> str:
        """Follow a selector; returns the text it is known by. Following it already is no error."""
        text = selector.text
        if text in self._watched:
            return text
        pairs = anchors(selector.root, self._cost)
        watched = Watched(selector, pairs, mentioned(selector.root), set())
        self._watched[text] = watched
        for holders in self._dispatch(watched):
            holders.add(text)
        for label_set in self._candidates(pairs):
            self._operations.evaluations += 1
            if selector.matches(label_set.labels()):
                watched.matches.add(label_set)
                label_set.selectors.add(text)
        return text

    def unwatch(self, text: str) -> None:
        """Follow a selector no more."""
        watched = self._watched.pop(text)
        for label_set in watched.matches:
            label_set.selectors.discard(text)
        for anchor in watched.anchors or ():
            self._anchored[anchor].discard(text)
            if not self._anchored[anchor]:
                del self._anchored[anchor]
        self._unanchored.discard(text)
        for label in watched.mentions:
            self._mentioning[label].discard(text)
            if not self._mentioning[label]:
                del self._mentioning[label]

    def _dispatch(self, watched: Watched) -> Iterator[set[str]]:
        if watched.anchors is None:
            yield self._unanchored
        for anchor in watched.anchors or ():
            yield self._anchored.setdefault(anchor, set())
        for label in watched.mentions:
            yield self._mentioning.setdefault(label, set())

    def _cost(self, anchor: Anchor) -> int:
        inherited = sum(len(group.label_sets) for group in self._inherited.find(anchor))
        return self._own.count(anchor) + inherited

    def _candidates(self, pairs: tuple[Anchor, ...] | None) -> Iterable[LabelSet]:
        if pairs is None:
            return self._label_sets.values()
        holders: set[LabelSet] = set()
        for anchor in pairs:
            holders.update(self._own.find(anchor))
            for group in self._inherited.find(anchor):
                holders |= group.label_sets
        return holders

    def _label_set(self, own: Labels, profiles: tuple[str, ...]) -> LabelSet:
        known = self._label_sets.get((own, profiles))
        if known is not None:
            return known
        group = self._groups.get(profiles) or self._group(profiles)
        label_set = LabelSet(own, group, set(), set())
        self._label_sets[own, profiles] = label_set
        group.label_sets.add(label_set)
        self._own.add(own, label_set)
        labels = label_set.labels()
        for text in self._possible(labels):
            self._operations.evaluations += 1
            watched = self._watched[text]
            if watched.selector.matches(labels):
                watched.matches.add(label_set)
                label_set.selectors.add(text)
        return label_set

    def _possible(self, labels: Mapping[str, str]) -> set[str]:
        possible = set(self._unanchored)
        for label, value in labels.items():
            possible |= self._anchored.get((label, value), NONE)
            possible |= self._anchored.get((label, None), NONE)
        return possible

    def _leave(self, item: ResourceKey, label_set: LabelSet) -> None:
        label_set.items.discard(item)
        if label_set.items:
            return
        group = label_set.group
        del self._label_sets[label_set.own, group.profiles]
        self._own.discard(label_set.own, label_set)
        for text in label_set.selectors:
            self._watched[text].matches.discard(label_set)
        group.label_sets.discard(label_set)
        if not group.label_sets:
            del self._groups[group.profiles]
            self._inherited.discard(group.inherited.items(), group)
            for name in set(group.profiles):
                self._groups_of[name].discard(group)
                if not self._groups_of[name]:
                    del self._groups_of[name]

    def _group(self, profiles: tuple[str, ...]) -> Group:
        group = Group(profiles, self._inherit(profiles), set())
        self._groups[profiles] = group
        self._inherited.add(group.inherited.items(), group)
        for name in profiles:
            self._groups_of.setdefault(name, set()).add(group)
        return group

    def _inherit(self, profiles: tuple[str, ...]) -> dict[str, str]:
        labels: dict[str, str] = {}
        for name in reversed(profiles):
            labels.update(self._profiles.get(name, {}))
        return labels

    def _regroup(self, group: Group) -> list[Flip]:
        before, after = group.inherited, self._inherit(group.profiles)
        if before == after:
            return []
        self._inherited.discard(before.items(), group)
        group.inherited = after
        self._inherited.add(after.items(), group)
        changed = dict(before.items() ^ after.items())
        concerned = {text for label in changed for text in self._mentioning.get(label, ())}
        if not concerned:
            return []
        flips: list[Flip] = []
        for label_set in group.label_sets:
            labels = label_set.labels()
            for text in concerned:
                self._operations.evaluations += 1
                watched = self._watched[text]
                matches = watched.selector.matches(labels)
                if matches == (text in label_set.selectors):
                    continue
                change = set.add if matches else set.discard
                change(watched.matches, label_set)
                change(label_set.selectors, text)
                flips.append(Flip(text, frozenset(label_set.items), matches))
        return flips
