"""Lists of profiles that items have, and the labels that each list hands down.

Of several profiles the first that has a label wins.

Tested in tests/felix/calc/policy/test_population.py, test_model.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from felix.calc.sets.anchors import Anchor
from felix.calc.sets.idlists import Allocator


@dataclass(slots=True, eq=False)
class Group:
    """A list of profiles, and the labels that its label sets inherit. `current`: new ones too."""

    number: int
    profiles: tuple[str, ...]
    inherited: dict[str, str]
    label_sets: array[int] = field(default_factory=lambda: array("I"))
    current: bool = True


class ProfileGroups:
    """Groups by id. `profiles`: the labels of each; `current`: the group that new label sets of a
    list of profiles come into."""

    def __init__(self) -> None:
        self.profiles: dict[str, Mapping[str, str]] = {}
        self.current: dict[tuple[str, ...], Group] = {}
        self._all: list[Group | None] = []
        self._ids = Allocator()
        self._of: dict[str, set[Group]] = {}
        self._inheriting: dict[str, dict[str, set[Group]]] = {}

    def inheriting(self, anchor: Anchor) -> Iterator[Group]:
        """The groups that hand an anchor down."""
        label, value = anchor
        by_value = self._inheriting.get(label, {})
        if value is None:
            for groups in by_value.values():
                yield from groups
        else:
            yield from by_value.get(value, ())

    def of(self, profile: str) -> list[Group]:
        """The current groups that a profile is in."""
        return [group for group in self._of.get(profile, ()) if group.current]

    def inherit(self, profiles: tuple[str, ...]) -> dict[str, str]:
        """What a list of profiles hands down."""
        labels: dict[str, str] = {}
        for name in reversed(profiles):
            labels.update(self.profiles.get(name, {}))
        return labels

    def relabel(self, group: Group, inherited: dict[str, str]) -> None:
        """A group hands down other labels, at once."""
        self._list(group, there=False)
        group.inherited = inherited
        self._list(group, there=True)

    def retire(self, group: Group) -> None:
        """New label sets of these profiles come into another group; this one is to be emptied."""
        group.current = False
        del self.current[group.profiles]

    def at(self, number: int) -> Group:
        """The group with an id."""
        group = self._all[number]
        assert group is not None
        return group

    def new(self, profiles: tuple[str, ...]) -> Group:
        """The group of a list of profiles that has no current one."""
        number = self._ids.allocate()
        group = Group(number, profiles, self.inherit(profiles))
        if number == len(self._all):
            self._all.append(group)
        else:
            self._all[number] = group
        self.current[profiles] = group
        for name in set(profiles):
            self._of.setdefault(name, set()).add(group)
        self._list(group, there=True)
        return group

    def forget(self, group: Group) -> None:
        """A group that no label set has any more."""
        self._list(group, there=False)
        for name in set(group.profiles):
            self._of[name].discard(group)
            if not self._of[name]:
                del self._of[name]
        if group.current:
            del self.current[group.profiles]
        self._all[group.number] = None
        self._ids.free(group.number)

    def _list(self, group: Group, *, there: bool) -> None:
        for label, value in group.inherited.items():
            by_value = self._inheriting.setdefault(label, {})
            groups = by_value.setdefault(value, set())
            (groups.add if there else groups.discard)(group)
            if not groups:
                del by_value[value]
                if not by_value:
                    del self._inheriting[label]

    def values(self, label: str) -> Iterable[str]:
        """The values of a label that are handed down."""
        return self._inheriting.get(label, ())


def drop_label_set(group: Group, label_set: int) -> None:
    """A group has one label set less."""
    group.label_sets.pop(bisect_left(group.label_sets, label_set))
