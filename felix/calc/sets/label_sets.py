"""The different label sets of a cluster, and which of them have a label.

Most label sets differ from others in a label or two: the name of a pod, the uid of a job. So a
label set is a *stem* and *leaves*: the pairs of labels with few values, and those of labels with
very many. Stems are few, so what is remembered of each pair of theirs is short; a pod that comes
costs a look at its stem and one leaf. Pairs, stems, label sets, and groups (lists of profiles, with
the labels that they hand down) have dense ids; what is known of them lies in columns.

Inherited labels are never copied into label sets: a namespace's label costs nothing until a
selector mentions it. A stem belongs to a group. Of several profiles the first that has a label
wins; an own label wins over all.

Invariants:
  COL-1  A pair, a stem, a label set, a group lives exactly as long as something has it; its id may
         then mean another, so no caller keeps ids over a change.
  COL-3  Equal labels of the same profiles are one label set. Exempt are those that came while one
         of their labels had few values, beside those that came later.
Tested in tests/felix/calc/policy/test_label_sets.py, test_model.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from felix.calc.sets.anchors import Anchor
from felix.calc.sets.idlists import Allocator, IdList, each, length, with_id, without_id
from felix.calc.sets.pairs import Pairs
from felix.calc.sets.profile_groups import Group, ProfileGroups, drop_label_set

Leaves = int | tuple[int, ...]
"""One pair, or none or several: a tuple of one would be the largest part of a label set."""
MANY_VALUES = 1000
"""A label with so many values is no part of new stems."""
MOST_PLANS = 10_000
"""Different lists of names of labels that are remembered."""
SAMPLE = 16
"""Stems that are counted; the label sets of more are guessed from these."""


class _Plan(NamedTuple):
    """For labels of certain names: the pairs by value of each, and which pairs make what."""

    columns: list[dict[str, int]]
    stem: Callable[[Sequence[Any]], tuple[int, ...]]
    leaves: Callable[[Sequence[Any]], Leaves]


class LabelSets:
    """`intern` gives a label set its number, `forget` ends it."""

    def __init__(self) -> None:
        self.groups = ProfileGroups()
        self.born = 0
        """Label sets that came so far: a number may be given again only when this has grown."""
        self._pairs = Pairs()
        self._plans: dict[tuple[str, ...], _Plan] = {}
        # Label sets.
        self._ids = Allocator()
        self._stem_of = array("I")
        self._leaves_of: list[Leaves | None] = []
        self._with_leaf: list[IdList] = []
        self._interned: dict[int | tuple[int, Leaves], int] = {}
        """Those that have no leaf that no other has: by such a leaf a label set is found, too."""
        # Stems: their pairs, and their group.
        self._stem_ids = Allocator()
        self._stems: dict[tuple[int, ...], int] = {}
        self._ids_of: list[tuple[int, ...]] = []
        self._of_stem: list[IdList] = []
        self._with_pair: dict[int, IdList] = {}

    def __len__(self) -> int:
        return len(self._ids)

    # -- label sets ----------------------------------------------------------------------------

    def intern(self, labels: Mapping[str, str], profiles: tuple[str, ...]) -> int:
        """The label set of these labels, new if need be; give it an item at once."""
        group = self.groups.current.get(profiles)
        if group is None:
            group = self.groups.new(profiles)
        names, values = tuple(labels), labels.values()
        plan = self._plans.get(names)
        if plan is None:
            plan = self._new_plan(names)
        pairs: list[Any] = list(map(dict.get, plan.columns, values))
        fresh = None in pairs
        if fresh:
            self._new_pairs(names, list(values), pairs)
        leaves, ids = plan.leaves(pairs), (*plan.stem(pairs), group.number)
        stem = self._stems.get(ids)
        if stem is None:
            stem = self._new_stem(ids)
        elif not fresh and (known := self._known(stem, leaves)) is not None:
            return known
        return self._new(stem, leaves, group)

    def _new_plan(self, names: tuple[str, ...]) -> _Plan:
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        columns = [self._pairs.by_value(name) for name in names]
        # In the order of names, so that the order in which labels come tells no stems apart.
        ordered = sorted(range(len(names)), key=names.__getitem__)
        stem = [at for at in ordered if len(columns[at]) < MANY_VALUES]
        leaves = [at for at in ordered if len(columns[at]) >= MANY_VALUES]
        plan = self._plans[names] = _Plan(columns, _picked(stem), _one_or_several(leaves))
        return plan

    def _new_pairs(self, names: Sequence[str], values: list[str], pairs: list[Any]) -> None:
        """Make those pairs of a label set that are new."""
        while None in pairs:
            at = pairs.index(None)
            pairs[at] = self._pairs.new(names[at], values[at])
            if self._pairs.count(names[at]) == MANY_VALUES:
                self._plans.clear()
        missing = len(self._pairs.values) - len(self._with_leaf)
        self._with_leaf += repeat(None, missing)

    def _known(self, stem: int, leaves: Leaves) -> int | None:
        """The label set of a stem and leaves, if there is one."""
        known = self._interned.get(_name(stem, leaves))
        if known is not None:
            return known
        for pair in _each(leaves):
            alone = self._with_leaf[pair]
            if type(alone) is int:
                same = self._stem_of[alone] == stem and self._leaves_of[alone] == leaves
                return alone if same else None
        return None

    def _new(self, stem: int, leaves: Leaves, group: Group) -> int:
        label_set = self._ids.allocate()
        self.born += 1
        if label_set == len(self._stem_of):
            self._stem_of.append(stem)
            self._leaves_of.append(leaves)
        else:
            self._stem_of[label_set] = stem
            self._leaves_of[label_set] = leaves
        self._of_stem[stem] = with_id(self._of_stem[stem], label_set)
        with_id(group.label_sets, label_set)
        alone, with_leaf = False, self._with_leaf
        for pair in _each(leaves):
            there = with_leaf[pair]
            if there is None:
                alone = True
            elif isinstance(there, int):
                self._intern(there)
            with_leaf[pair] = with_id(there, label_set)
        if not alone:
            self._intern(label_set)
        return label_set

    def _intern(self, label_set: int) -> None:
        """A label set may have no leaf any more that no other has."""
        leaves = self._leaves_of[label_set]
        assert leaves is not None
        self._interned[_name(self._stem_of[label_set], leaves)] = label_set

    def labels(self, label_set: int) -> dict[str, str]:
        """Own and inherited labels."""
        leaves = self._leaves_of[label_set]
        assert leaves is not None
        *pairs, group = self._ids_of[self._stem_of[label_set]]
        result = dict(self.groups.at(group).inherited)
        labels, values = self._pairs.labels, self._pairs.values
        for pair in (*pairs, *_each(leaves)):
            result[labels[pair]] = values[pair]
        return result

    def lives(self, label_set: int) -> bool:
        """Whether a label set still exists."""
        return self._leaves_of[label_set] is not None

    def forget(self, label_set: int) -> None:
        """A label set that no item has any more."""
        stem, leaves = self._stem_of[label_set], self._leaves_of[label_set]
        assert leaves is not None
        self._interned.pop(_name(stem, leaves), None)
        self._leaves_of[label_set] = None
        for pair in _each(leaves):
            self._with_leaf[pair] = without_id(self._with_leaf[pair], label_set)
            self._unuse(pair)
        self._leave_stem(stem, label_set)
        self._ids.free(label_set)

    # -- stems ---------------------------------------------------------------------------------

    def _new_stem(self, ids: tuple[int, ...]) -> int:
        stem = self._stems[ids] = self._stem_ids.allocate()
        if stem == len(self._ids_of):
            self._ids_of.append(ids)
            self._of_stem.append(None)
        else:
            self._ids_of[stem] = ids
        for pair in ids[:-1]:
            self._with_pair[pair] = with_id(self._with_pair.get(pair), stem)
        return stem

    def _leave_stem(self, stem: int, label_set: int) -> None:
        """A stem has one label set less, and so has its group."""
        *pairs, number = self._ids_of[stem]
        left = self._of_stem[stem] = without_id(self._of_stem[stem], label_set)
        if left is None:
            del self._stems[self._ids_of[stem]]
            self._ids_of[stem] = ()
            for pair in pairs:
                stems = without_id(self._with_pair[pair], stem)
                if stems is None:
                    del self._with_pair[pair]
                    self._unuse(pair)
                else:
                    self._with_pair[pair] = stems
            self._stem_ids.free(stem)
        group = self.groups.at(number)
        drop_label_set(group, label_set)
        if not group.label_sets:
            self.groups.forget(group)

    def _unuse(self, pair: int) -> None:
        """One less has a pair."""
        if self._with_leaf[pair] is not None or pair in self._with_pair:
            return
        if self._pairs.forget(pair):
            # The label is gone: plans with its values must not be used.
            self._plans.clear()

    # -- who has a label -----------------------------------------------------------------------

    def own(self, anchor: Anchor) -> Iterator[Sequence[int]]:
        """The label sets that have an anchor among their own labels, in parts; none twice."""
        # Others may come and go while a reader iterates over this.
        for pair in self._pairs.having(anchor):
            yield each(self._with_leaf[pair])
            for stem in list(each(self._with_pair.get(pair))):
                yield each(self._of_stem[stem])

    def has_own(self, label: str) -> bool:
        """Whether any label set has a label of its own, not inherited."""
        return label in self._pairs

    def values(self, label: str) -> list[str]:
        """The values that a label has, own and inherited."""
        return [*self._pairs.values_of(label), *self.groups.values(label)]

    def cost(self, anchor: Anchor) -> int:
        """How many label sets have an anchor, about."""
        pairs = self._pairs.having(anchor)
        # A label of very many values is not looked at value by value.
        own = len(pairs) if len(pairs) > MANY_VALUES else sum(map(self._size, pairs))
        return own + sum(len(group.label_sets) for group in self.groups.inheriting(anchor))

    def _size(self, pair: int) -> int:
        stems = each(self._with_pair.get(pair))
        counted = sum(length(self._of_stem[stem]) for stem in stems[:SAMPLE])
        if len(stems) > SAMPLE:
            counted = counted * len(stems) // SAMPLE
        return counted + length(self._with_leaf[pair])

    def all(self) -> Iterator[int]:
        """All label sets."""
        return iter([n for n, leaves in enumerate(self._leaves_of) if leaves is not None])

    # -- from group to group -------------------------------------------------------------------

    def transfer(self, label_set: int) -> int:
        """Bring a label set of a retired group into the current one.

        Returns what it is there: another one, if that exists, and then nothing is changed.
        """
        left, leaves = self._stem_of[label_set], self._leaves_of[label_set]
        assert leaves is not None
        *pairs, retired = self._ids_of[left]
        profiles = self.groups.at(retired).profiles
        group = self.groups.current.get(profiles) or self.groups.new(profiles)
        ids = (*pairs, group.number)
        stem = self._stems.get(ids)
        if stem is None:
            stem = self._new_stem(ids)
        elif (there := self._known(stem, leaves)) is not None:
            return there
        was_interned = self._interned.pop(_name(left, leaves), None) is not None
        self._stem_of[label_set] = stem
        self._of_stem[stem] = with_id(self._of_stem[stem], label_set)
        with_id(group.label_sets, label_set)
        if was_interned:
            self._intern(label_set)
        self._leave_stem(left, label_set)
        return label_set


def _name(stem: int, leaves: Leaves) -> int | tuple[int, Leaves]:
    """What a label set is interned by."""
    return (stem, leaves) if leaves != () else stem


def _each(leaves: Leaves) -> tuple[int, ...]:
    return (leaves,) if isinstance(leaves, int) else leaves


def _one_or_several(places: list[int]) -> Callable[[Sequence[Any]], Any]:
    """What stands in these places: one as it is, none or several as a tuple."""
    return itemgetter(*places) if places else lambda _: ()


def _picked(places: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What stands in these places, as a tuple."""
    if len(places) == 1:
        (place,) = places
        return lambda given: (given[place],)
    return _one_or_several(places)
